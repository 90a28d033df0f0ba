//! Markers: who claimed which source hash; and what is remembered of runs.

#[cfg(test)]
mod conformance;
mod error;
mod lmdb_store;
mod location;
mod marker;
mod memory_store;
mod open;
mod record_wire;
mod redis_store;
#[cfg(test)]
mod test_server;

pub use error::StoreError;
pub use location::{LocationError, StoreLocation};
pub use memory_store::MemoryStore;
pub use open::{Access, OpenedStore, Secret, StoreConfig};
pub use redis_store::RedisStore;

use crate::domain::{Adoption, Bid, Claim, ClaimOutcome, Digest, Marker, RunId, RunRecord, RunState};

/// 32 random digits: what tells a store from every other.
fn random_hex() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system hands out random bytes");
    let mut hex = Vec::new();
    crate::domain::write_hex(&bytes, &mut hex);
    String::from_utf8(hex).expect("hexadecimal is ASCII")
}

/// The state and epoch that a run record must have for a change to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    pub state: RunState,
    pub epoch: u32,
}

/// The latest run over a feed, under one meaning of its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedNote {
    pub run: RunId,
    pub pass: u32,
}

/// Where markers and run records are kept.
///
/// Every method is idempotent: a caller whose answer was lost may ask again.
pub trait Store: Send {
    /// How many claims the store likes to be handed at once.
    fn claims_per_call(&self) -> usize;

    /// Makes every claim of `claims` under `bid`; the outcomes come back in the order of `claims`.
    ///
    /// Of equal source hashes the first in `claims` wins. An error leaves open which claims were made: asking again
    /// finds them as the run's own.
    fn claim(&mut self, bid: &Bid, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, StoreError>;

    /// Replaces each marker that was found by one of the present epoch, if it still stands; says which are in place.
    ///
    /// True also where the new marker stands already: an answer that was lost.
    fn adopt(&mut self, adoptions: &[Adoption]) -> Result<Vec<bool>, StoreError>;

    /// The markers that stand under the hashes of `claims`, in their order; writes nothing.
    fn look_up(&mut self, claims: &[Claim]) -> Result<Vec<Option<Marker>>, StoreError>;

    /// Frees those of `claims` whose marker is of `run` and of the claim's own row; says how many there were.
    fn release(&mut self, run: &RunId, claims: &[Claim]) -> Result<u64, StoreError>;

    /// A number that only grows, and does so now: an older copy of the store has a lower one.
    fn advance_age(&mut self) -> Result<u64, StoreError>;

    /// Fails if the store can be seen to have lost claims since it was opened; asked before a run is sealed.
    fn check_intact(&mut self) -> Result<(), StoreError>;

    /// The record of `run`.
    fn run_record(&mut self, run: &RunId) -> Result<Option<RunRecord>, StoreError>;

    /// Writes `record` if the stored one is as `expected`, none meaning that there is none; says whether it stands.
    ///
    /// True also if the stored record is `record` already: an answer that was lost.
    fn write_run(&mut self, expected: Option<Expected>, record: &RunRecord) -> Result<bool, StoreError>;

    /// The latest run over the feed of this digest, under `meaning`.
    fn feed_note(&mut self, feed: &Digest, meaning: &Digest) -> Result<Option<FeedNote>, StoreError>;

    /// Remembers `note` as the latest run over the feed.
    fn write_feed_note(&mut self, feed: &Digest, meaning: &Digest, note: &FeedNote) -> Result<(), StoreError>;
}

/// Opens the store that `config` names.
///
/// A further kind of store needs: a variant of `StoreLocation`, an arm here, a row in `conformance.rs`.
pub fn open(config: &StoreConfig) -> Result<OpenedStore, StoreError> {
    match &config.location {
        StoreLocation::File(path) => lmdb_store::open(config, path),
        StoreLocation::Redis { .. } => redis_store::open(config),
    }
}
