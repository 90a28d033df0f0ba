//! What a record is, when two are the same, and what becomes of each. No I/O, no clock, no threads.

mod amount;
mod canonical;
mod claim;
mod content;
mod decision;
mod hash;
mod ids;
mod instant;
mod interrupt;
mod money;
mod posted_at;
mod record;
mod run_record;
mod run_store;
mod text;

pub use amount::{Amount, Currency};
pub use canonical::{CANONICAL_VERSION, Canonical, Canonicalizer};
pub use claim::{Adoption, Bid, Claim, ClaimOutcome, ClaimScope, Marker, Original, Owner};
pub use content::{Content, FieldChecks};
pub use decision::{Basis, Decided, Decision, Judgement, RunView, decide, judge};
pub use hash::{Digest, IdentityHash, SourceHash, write_hex};
pub use ids::{RunId, RunIdError};
pub use instant::is_iso_instant;
pub use interrupt::{Interrupt, InterruptSignal};
pub use money::{Money, Total};
pub use posted_at::{PostedDay, UnknownZone, Zone};
pub use record::{Field, RawRecord, RejectReason};
pub use run_record::{OutputRecord, RunCounts, RunRecord, RunState};
pub use run_store::{Expected, FeedNote, KnownRun, Lease, Lineage, RunStore};
