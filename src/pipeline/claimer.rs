//! Gathers blocks into batches, has the store answer them, and decides.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::batch::{Batch, HashedBlock};
use super::error::IngestError;
use super::latency::Latencies;
use crate::domain::{Bid, ClaimOutcome, Marker, RunId, RunState, RunView, decide};
use crate::store::{Store, StoreError};

/// Bytes of a feed in one batch, whatever the number of its records: this bounds memory.
const BATCH_BYTES_MAX: u64 = 12 * 1024 * 1024;

/// Claims the records of a run.
pub(super) struct Claimer<'a> {
    store: &'a mut dyn Store,
    bid: Bid,
    batch: Batch,
    views: Views,
    pub(super) latencies: Latencies,
}

impl<'a> Claimer<'a> {
    pub(super) fn new(store: &'a mut dyn Store, bid: Bid) -> Self {
        Self { store, bid, batch: Batch::default(), views: Views::default(), latencies: Latencies::default() }
    }

    /// The runs that hold records of the feed.
    pub(super) fn holders(&self) -> Vec<Holder> {
        self.views.holders()
    }

    /// Takes a block; hands a decided batch back when the block would overfill it.
    pub(super) fn push(&mut self, block: HashedBlock) -> Result<Option<Batch>, IngestError> {
        let claims = self.batch.claims.len() + block.lines.len();
        let bytes = self.batch.bytes + block.raw.len() as u64;
        let is_full = claims > self.store.claims_per_call() || bytes > BATCH_BYTES_MAX;
        let decided = if is_full { self.finish()? } else { None };
        self.batch.push(block);
        Ok(decided)
    }

    /// Decides what is left; none if nothing is.
    pub(super) fn finish(&mut self) -> Result<Option<Batch>, IngestError> {
        if self.batch.blocks.is_empty() { Ok(None) } else { self.decide().map(Some) }
    }

    fn decide(&mut self) -> Result<Batch, IngestError> {
        // The next batch is as large as this one, more or less.
        let room = Vec::with_capacity(self.batch.claims.len());
        let mut batch = std::mem::replace(&mut self.batch, Batch { claims: room, ..Batch::default() });
        batch.verdicts.reserve(batch.claims.len());
        // A block may hold more claims than the store likes at once.
        for claims in batch.claims.chunks(self.store.claims_per_call().max(1)) {
            let asked = Instant::now();
            let outcomes = self.store.claim(&self.bid, claims)?;
            self.latencies.add(asked.elapsed());
            assert_eq!(outcomes.len(), claims.len(), "every claim has an outcome");
            self.views.load_owners_of(&outcomes, &self.bid.run, self.store)?;
            for (claim, outcome) in claims.iter().zip(outcomes) {
                let verdict = decide(&self.bid.run, claim.row, outcome, |run| self.views.view(run));
                batch.verdicts.push(verdict);
            }
        }
        Ok(batch)
    }
}

/// A run that is not published and has claimed records of this feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub run: RunId,
    /// None where the run has no record.
    pub feed_name: Option<String>,
}

/// What is known of the runs that own markers; each is asked once, so that equal records share their fate.
#[derive(Debug, Default)]
pub(super) struct Views(HashMap<RunId, Option<Arc<RunView>>>);

impl Views {
    /// Learns of the owners of `outcomes` that are not known yet.
    pub(super) fn load_owners_of(
        &mut self,
        outcomes: &[ClaimOutcome],
        own: &RunId,
        store: &mut dyn Store,
    ) -> Result<(), StoreError> {
        let mut last = None;
        for outcome in outcomes {
            let ClaimOutcome::Found(Marker::Run { owner, .. }) = outcome else { continue };
            // A replay finds a million markers of one owner, one after another.
            if last.is_some_and(|last| Arc::ptr_eq(last, owner)) || owner.run == *own {
                continue;
            }
            last = Some(owner);
            if !self.0.contains_key(&owner.run) {
                let record = store.run_record(&owner.run)?;
                let view = record.map(|record| RunView { state: record.state, feed_name: record.feed_name });
                self.0.insert(owner.run.clone(), view.map(Arc::new));
            }
        }
        Ok(())
    }

    /// The runs that hold records because they are not published, as the operator is told of them.
    pub(super) fn holders(&self) -> Vec<Holder> {
        let is_published =
            |view: &Option<Arc<RunView>>| view.as_ref().is_some_and(|view| view.state == RunState::Published);
        let holding = self.0.iter().filter(|(_, view)| !is_published(view));
        let mut holders: Vec<_> = holding
            .map(|(run, view)| Holder { run: run.clone(), feed_name: view.as_ref().map(|view| view.feed_name.clone()) })
            .collect();
        holders.sort_by(|a, b| a.run.cmp(&b.run));
        holders
    }

    pub(super) fn view(&self, run: &RunId) -> Option<Arc<RunView>> {
        self.0.get(run).cloned().flatten()
    }
}
