//! What a run leaves behind: files of records, the audit log, the summary.
//!
//! Files are written as temporaries beside their targets and hashed on the way; nothing here renames them before
//! the run is sealed, and nothing is ever overwritten.

mod audit;
mod conflict;
mod decision_files;
mod error;
mod hashed_file;
mod names;
mod publish;
mod summary;

pub use audit::{AuditLog, CheckedRecord, FeedFacts};
pub use conflict::Conflict;
pub use decision_files::DecisionFiles;
pub use error::OutputError;
pub use hashed_file::HashedFile;
pub use names::{Attempt, OutputNames};
pub use publish::{
    is_standing, is_waiting, is_waiting_whole, publish, publish_released, remove_earlier_temporaries,
    remove_temporaries, remove_unreleased, sync_folder,
};
pub use summary::{GatesTold, Latency, Operation, Summary};
