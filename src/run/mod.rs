//! The life of a run: what it is called, how it starts, what may stop it, and its journal.

mod clock;
mod feed_lock;
mod gates;
mod identity;
mod journal;
mod restart;

pub use clock::now_text;
pub use feed_lock::{FeedLock, FeedLockError};
pub use gates::{GateFailure, Gates, REJECTS_MIN};
pub use identity::{derived_run_id, nth_pass};
pub use journal::{Journal, JournalError};
pub use restart::{Found, Place, Start, StartRefusal, plan_start};
