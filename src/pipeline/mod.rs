//! The only threads and queues: wires feeds, stores, files and the rules of runs together.
//!
//! ```text
//! reader -> hashers -> collector -> claimer -> router -> writer of records
//!                                                     -> writer of the audit log   -> flusher
//! ```
//!
//! Every queue has a named bound, so memory does not grow with the feed. With one thread there is no queue: the stages
//! act in turn on each batch.

mod batch;
mod claimer;
mod closing;
mod collector;
mod dry_run;
mod error;
mod feed_file;
mod feed_work;
mod hash_listing;
mod hasher;
mod ingest;
mod latency;
mod lease;
mod pipe;
mod release;
mod request;
mod router;
mod stages;
mod taking_back;
#[cfg(test)]
mod taking_back_tests;
#[cfg(test)]
mod tests;
mod threads;
mod writers;

pub use claimer::Holder;
pub use dry_run::{DryRunReport, WouldBeClaims, dry_run};
pub use error::{GateStop, IngestError};
pub use feed_file::{FeedBytes, FeedFile, check_feed};
pub use hash_listing::{HashedRow, list_hashes};
pub use ingest::{IngestReport, ingest, published_exit_code};
pub use pipe::Pipe;
pub use release::{ReleaseError, Released};
pub use request::{IngestRequest, Progress, Worker};
pub use taking_back::{
    ResolveRequest, TakeBackError, TakeBackOutlook, TakeBackReport, TakeBackRequest, foresee_revert, resolve, revert,
};
pub use writers::{ConflictNote, RejectNote};
