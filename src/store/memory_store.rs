//! A store in memory, for tests of what stands above stores.

use std::collections::HashMap;

use super::{Expected, FeedNote, Store, StoreError};
use crate::domain::{Adoption, Bid, Claim, ClaimOutcome, Digest, Marker, RunId, RunRecord, SourceHash};

/// A store that forgets everything with its process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    markers: HashMap<SourceHash, Marker>,
    runs: HashMap<RunId, RunRecord>,
    feeds: HashMap<(Digest, Digest), FeedNote>,
    age: u64,
}

impl Store for MemoryStore {
    fn claims_per_call(&self) -> usize {
        1_000
    }

    fn claim(&mut self, bid: &Bid, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, StoreError> {
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

    fn adopt(&mut self, adoptions: &[Adoption]) -> Result<Vec<bool>, StoreError> {
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

    fn look_up(&mut self, claims: &[Claim]) -> Result<Vec<Option<Marker>>, StoreError> {
        Ok(claims.iter().map(|claim| self.markers.get(&claim.source_hash).cloned()).collect())
    }

    fn release(&mut self, run: &RunId, claims: &[Claim]) -> Result<u64, StoreError> {
        let before = self.markers.len();
        for claim in claims {
            let own = matches!(self.markers.get(&claim.source_hash),
                Some(Marker::Run { owner, row }) if owner.run == *run && *row == claim.row);
            if own {
                self.markers.remove(&claim.source_hash);
            }
        }
        Ok((before - self.markers.len()) as u64)
    }

    fn advance_age(&mut self) -> Result<u64, StoreError> {
        self.age += 1;
        Ok(self.age)
    }

    fn check_intact(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn run_record(&mut self, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        Ok(self.runs.get(run).cloned())
    }

    fn write_run(&mut self, expected: Option<Expected>, record: &RunRecord) -> Result<bool, StoreError> {
        let stored = self.runs.get(&record.run);
        if stored == Some(record) {
            return Ok(true);
        }
        if stored.map(|known| Expected { state: known.state, epoch: known.epoch }) != expected {
            return Ok(false);
        }
        self.runs.insert(record.run.clone(), record.clone());
        Ok(true)
    }

    fn feed_note(&mut self, feed: &Digest, meaning: &Digest) -> Result<Option<FeedNote>, StoreError> {
        Ok(self.feeds.get(&(*feed, *meaning)).cloned())
    }

    fn write_feed_note(&mut self, feed: &Digest, meaning: &Digest, note: &FeedNote) -> Result<(), StoreError> {
        self.feeds.insert((*feed, *meaning), note.clone());
        Ok(())
    }
}
