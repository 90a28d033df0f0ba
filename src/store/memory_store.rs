//! A store in memory, for tests of what stands above stores, and for looking at a store that does not exist.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Store, StoreError};
use crate::domain::{
    Adoption, Bid, Claim, ClaimOutcome, Digest, Expected, FeedNote, KnownRun, Lease, Lineage, Marker, RunId, RunRecord,
    RunStore, SourceHash,
};

/// Claims that it likes to be handed at once.
const CLAIMS_PER_CALL: usize = 1_000;

/// What a store in memory holds. It can be copied and compared, so that tests can explore what may become of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    pub markers: BTreeMap<SourceHash, Marker>,
    pub runs: BTreeMap<RunId, RunRecord>,
    /// When each lease ends, by the store's clock.
    pub leases: BTreeMap<RunId, Duration>,
    pub feeds: BTreeMap<(Digest, Digest), FeedNote>,
    pub lineage: Lineage,
    /// The store's clock, which stands still unless a test moves it.
    pub now: Duration,
    pub age: u64,
}

impl Memory {
    fn known(&self, record: &RunRecord) -> KnownRun {
        let lease = Lease::ending_at(self.leases.get(&record.run).copied(), self.now);
        KnownRun { record: record.clone(), lease }
    }

    fn free(&mut self, mut is_to_go: impl FnMut(&SourceHash, &Marker) -> bool) -> u64 {
        let before = self.markers.len();
        self.markers.retain(|hash, marker| !is_to_go(hash, marker));
        (before - self.markers.len()) as u64
    }
}

impl RunStore for Memory {
    type Error = Infallible;

    fn claims_per_call(&self) -> usize {
        CLAIMS_PER_CALL
    }

    fn claim(&mut self, bid: &Bid, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, Infallible> {
        let mut claim_one = |claim: &Claim| {
            let own = Marker::Run { owner: bid.clone(), row: claim.row };
            match self.markers.get(&claim.source_hash) {
                Some(found) => ClaimOutcome::Found(found.clone()),
                None => {
                    self.markers.insert(claim.source_hash, own);
                    ClaimOutcome::Novel
                }
            }
        };
        Ok(claims.iter().map(&mut claim_one).collect())
    }

    fn answers_lost(&self) -> u64 {
        0
    }

    fn adopt(&mut self, adoptions: &[Adoption]) -> Result<Vec<bool>, Infallible> {
        let adopt_one = |adoption: &Adoption| {
            let (owner, row) = adoption.found.clone();
            let (old, new) =
                (Marker::Run { owner, row }, Marker::Run { owner: adoption.owner.clone(), row: adoption.claim.row });
            match self.markers.get_mut(&adoption.claim.source_hash) {
                Some(standing) if *standing == old || *standing == new => {
                    *standing = new;
                    true
                }
                Some(_) | None => false,
            }
        };
        Ok(adoptions.iter().map(adopt_one).collect())
    }

    fn look_up(&mut self, claims: &[Claim]) -> Result<Vec<Option<Marker>>, Infallible> {
        Ok(claims.iter().map(|claim| self.markers.get(&claim.source_hash).cloned()).collect())
    }

    fn release(&mut self, run: &RunId, epoch: u32, claims: &[Claim]) -> Result<u64, Infallible> {
        let is_own =
            |marker: &Marker| matches!(marker, Marker::Run { owner, .. } if owner.run == *run && owner.epoch <= epoch);
        let hashes: Vec<_> = claims.iter().map(|claim| claim.source_hash).collect();
        Ok(self.free(|hash, marker| hashes.contains(hash) && is_own(marker)))
    }

    fn release_run(&mut self, run: &RunId) -> Result<u64, Infallible> {
        Ok(self.free(|_, marker| matches!(marker, Marker::Run { owner, .. } if owner.run == *run)))
    }

    fn check_intact(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn lineage(&mut self) -> Result<Lineage, Infallible> {
        Ok(self.lineage.clone())
    }

    fn confirm(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn run_record(&mut self, run: &RunId) -> Result<Option<KnownRun>, Infallible> {
        Ok(self.runs.get(run).map(|record| self.known(record)))
    }

    fn write_run(
        &mut self,
        expected: Option<Expected>,
        record: &RunRecord,
        lease: Option<Duration>,
    ) -> Result<bool, Infallible> {
        let known = self.runs.get(&record.run).map(|stored| self.known(stored));
        if known.as_ref().is_none_or(|known| known.record != *record) {
            if !Expected::is_met(expected, known.as_ref()) {
                return Ok(false);
            }
            self.runs.insert(record.run.clone(), record.clone());
        }
        if let Some(lease) = lease {
            self.leases.insert(record.run.clone(), self.now + lease);
        }
        Ok(true)
    }

    fn renew_lease(&mut self, run: &RunId, epoch: u32, lease: Duration) -> Result<bool, Infallible> {
        if !self.runs.get(run).is_some_and(|record| record.is_alive_in(epoch)) {
            return Ok(false);
        }
        self.leases.insert(run.clone(), self.now + lease);
        Ok(true)
    }

    fn each_run(&mut self, act: &mut dyn FnMut(KnownRun)) -> Result<(), Infallible> {
        self.runs.values().for_each(|record| act(self.known(record)));
        Ok(())
    }

    fn feed_note(&mut self, feed: &Digest, meaning: &Digest) -> Result<Option<FeedNote>, Infallible> {
        Ok(self.feeds.get(&(*feed, *meaning)).cloned())
    }

    fn write_feed_note(&mut self, feed: &Digest, meaning: &Digest, note: &FeedNote) -> Result<(), Infallible> {
        self.feeds.insert((*feed, *meaning), note.clone());
        Ok(())
    }
}

/// A handle on a store that is forgotten with its last handle.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore(Arc<Mutex<Memory>>);

impl MemoryStore {
    /// What it holds; a handle that panicked left it whole, because every call does one thing.
    pub fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer of a store that always has one.
fn sure<T>(answer: Result<T, Infallible>) -> Result<T, StoreError> {
    answer.map_err(|never| match never {})
}

impl RunStore for MemoryStore {
    type Error = StoreError;

    fn claims_per_call(&self) -> usize {
        CLAIMS_PER_CALL
    }

    fn claim(&mut self, bid: &Bid, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, StoreError> {
        sure(self.lock().claim(bid, claims))
    }

    fn answers_lost(&self) -> u64 {
        0
    }

    fn adopt(&mut self, adoptions: &[Adoption]) -> Result<Vec<bool>, StoreError> {
        sure(self.lock().adopt(adoptions))
    }

    fn look_up(&mut self, claims: &[Claim]) -> Result<Vec<Option<Marker>>, StoreError> {
        sure(self.lock().look_up(claims))
    }

    fn release(&mut self, run: &RunId, epoch: u32, claims: &[Claim]) -> Result<u64, StoreError> {
        sure(self.lock().release(run, epoch, claims))
    }

    fn release_run(&mut self, run: &RunId) -> Result<u64, StoreError> {
        sure(self.lock().release_run(run))
    }

    fn check_intact(&mut self) -> Result<(), StoreError> {
        sure(self.lock().check_intact())
    }

    fn lineage(&mut self) -> Result<Lineage, StoreError> {
        sure(self.lock().lineage())
    }

    fn confirm(&mut self) -> Result<(), StoreError> {
        sure(self.lock().confirm())
    }

    fn run_record(&mut self, run: &RunId) -> Result<Option<KnownRun>, StoreError> {
        sure(self.lock().run_record(run))
    }

    fn write_run(
        &mut self,
        expected: Option<Expected>,
        record: &RunRecord,
        lease: Option<Duration>,
    ) -> Result<bool, StoreError> {
        sure(self.lock().write_run(expected, record, lease))
    }

    fn renew_lease(&mut self, run: &RunId, epoch: u32, lease: Duration) -> Result<bool, StoreError> {
        sure(self.lock().renew_lease(run, epoch, lease))
    }

    fn each_run(&mut self, act: &mut dyn FnMut(KnownRun)) -> Result<(), StoreError> {
        sure(self.lock().each_run(act))
    }

    fn feed_note(&mut self, feed: &Digest, meaning: &Digest) -> Result<Option<FeedNote>, StoreError> {
        sure(self.lock().feed_note(feed, meaning))
    }

    fn write_feed_note(&mut self, feed: &Digest, meaning: &Digest, note: &FeedNote) -> Result<(), StoreError> {
        sure(self.lock().write_feed_note(feed, meaning, note))
    }
}

impl Store for MemoryStore {
    fn another(&self) -> Box<dyn Store> {
        Box::new(self.clone())
    }

    fn advance_age(&mut self) -> Result<u64, StoreError> {
        let mut memory = self.lock();
        memory.age += 1;
        Ok(memory.age)
    }
}
