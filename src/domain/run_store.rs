//! What the run protocol asks of a store, and nothing of how a store does it.
//!
//! Every method is idempotent: a caller whose answer was lost may ask again. None resends by itself what it cannot
//! repeat.

use std::time::Duration;

use super::{Adoption, Bid, Claim, ClaimOutcome, Digest, RunId, RunRecord, RunState};

/// How a run record must stand for a change to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Expected {
    pub state: RunState,
    pub epoch: u32,
    /// Whether the run's lease must be over, by the store's clock.
    pub lease_over: bool,
}

impl Expected {
    /// Whether what is known of a run is as `expected`, none meaning that there must be no record.
    pub fn is_met(expected: Option<Self>, known: Option<&KnownRun>) -> bool {
        match (known, expected) {
            (None, None) => true,
            (Some(KnownRun { record, lease }), Some(Self { state, epoch, lease_over })) => {
                record.state == state && record.epoch == epoch && (!lease_over || *lease == Lease::Over)
            }
            (None, Some(_)) | (Some(_), None) => false,
        }
    }
}

/// Whether the worker of a run has shown itself lately, by the store's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lease {
    /// There is none: nothing is known of the worker, so it may be alive.
    Unknown,
    /// It lasts this much longer.
    Running { left: Duration },
    /// The worker gave it up, or did not renew it.
    Over,
}

impl Lease {
    /// How a lease stands at `now` that ends at `end`, by the same clock. An end that is not known is never over.
    pub fn ending_at(end: Option<Duration>, now: Duration) -> Self {
        match end.map(|end| end.saturating_sub(now)) {
            None => Self::Unknown,
            Some(Duration::ZERO) => Self::Over,
            Some(left) => Self::Running { left },
        }
    }
}

/// A run as its store knows it now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KnownRun {
    pub record: RunRecord,
    pub lease: Lease,
}

/// The latest run over a feed, under one meaning of its lines.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FeedNote {
    pub run: RunId,
    pub pass: u32,
}

/// Which history a store's data has: two that differ say that confirmed writes may be gone in between.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Lineage(pub String);

/// Where markers and run records are kept.
pub trait RunStore {
    /// What it can do instead of answering.
    type Error;

    /// How many claims the store likes to be handed at once.
    fn claims_per_call(&self) -> usize;

    /// Makes every claim of `claims` under `bid`; the outcomes come back in the order of `claims`.
    ///
    /// Of equal source hashes the first in `claims` wins, and so does of several contents of a payment. An error leaves
    /// open which claims were made: asking again finds them as the run's own.
    fn claim(&mut self, bid: &Bid, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, Self::Error>;

    /// How often an answer was lost and its claims were asked again, by this handle: what was asked first may be carried
    /// out long after it was answered.
    fn answers_lost(&self) -> u64;

    /// Replaces each marker that was found by its new one, if it still stands; says which are in place.
    ///
    /// True also where the new marker stands already: an answer that was lost.
    fn adopt(&mut self, adoptions: &[Adoption]) -> Result<Vec<bool>, Self::Error>;

    /// What stands for `claims`, in their order; writes nothing. What nobody has claimed is novel.
    fn look_up(&mut self, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, Self::Error>;

    /// Frees those of `claims` whose marker is of `run` and of an epoch up to `epoch`; says how many there were.
    ///
    /// Another content of the same payment stays.
    /// A later attempt at the run may have begun: its claims are not the caller's to free.
    fn release(&mut self, run: &RunId, epoch: u32, claims: &[Claim]) -> Result<u64, Self::Error>;

    /// Frees every claim of `run`, of whatever epoch, by looking through the whole store; says how many there were.
    fn release_run(&mut self, run: &RunId) -> Result<u64, Self::Error>;

    /// Fails if the store can be seen to have lost claims since it was opened.
    fn check_intact(&mut self) -> Result<(), Self::Error>;

    /// Which history the data has now.
    fn lineage(&mut self) -> Result<Lineage, Self::Error>;

    /// Waits until all that was written so far is held by as many replicas as the settings demand, or fails.
    fn confirm(&mut self) -> Result<(), Self::Error>;

    /// The record of `run` and how its lease stands.
    fn run_record(&mut self, run: &RunId) -> Result<Option<KnownRun>, Self::Error>;

    /// Writes `record` if the stored one is as `expected`, none meaning that there is none; says whether it stands.
    ///
    /// With `lease` the run's lease lasts that long from now on. True also if the stored record is `record` already:
    /// an answer that was lost.
    fn write_run(
        &mut self,
        expected: Option<Expected>,
        record: &RunRecord,
        lease: Option<Duration>,
    ) -> Result<bool, Self::Error>;

    /// Makes the lease of `run` last for `lease` from now on, if the run is still in `epoch` and neither fenced nor
    /// reverted; says whether it is. None at all gives the lease up.
    fn renew_lease(&mut self, run: &RunId, epoch: u32, lease: Duration) -> Result<bool, Self::Error>;

    /// Calls `act` for every run that is known, in the order of their ids.
    fn each_run(&mut self, act: &mut dyn FnMut(KnownRun)) -> Result<(), Self::Error>;

    /// The latest run over the feed of this digest, under `meaning`.
    fn feed_note(&mut self, feed: &Digest, meaning: &Digest) -> Result<Option<FeedNote>, Self::Error>;

    /// Remembers `note` as the latest run over the feed.
    fn write_feed_note(&mut self, feed: &Digest, meaning: &Digest, note: &FeedNote) -> Result<(), Self::Error>;
}
