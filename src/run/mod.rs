//! The life of a run: what it is called, how it starts, by which rules it is sealed and published, and its journal.

mod claimer;
mod clock;
mod feed_lock;
mod gates;
mod identity;
mod journal;
mod protocol;
mod restart;
mod state;
mod taking_back;
mod work;

pub use claimer::{Settled, Views, view_of};
pub use clock::{now_text, seconds_since};
pub use feed_lock::{FeedLock, FeedLockError};
pub use gates::{GateFailure, Gates, LIMITED_MIN};
pub use identity::{derived_run_id, nth_pass};
pub use journal::{Journal, JournalError};
pub use protocol::{RunPlan, choose, execute};
pub use restart::{Start, StartRefusal};
pub use state::may_follow;
pub use taking_back::{
    Dependents, Resolution, TakeBackStop, TakenBack, dependents_of, find_revertible, resolve, revert,
};
pub use work::{ClaimBatch, Completed, Names, ProtocolStop, TakeClaims, Work};
