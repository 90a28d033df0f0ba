//! Has the store answer the claims of every batch.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Instant;

use super::batch::{Batch, ClaimedBatch};
use super::error::IngestError;
use super::latency::Latencies;
use super::request::IngestRequest;
use crate::domain::{Adoption, Bid, Claim, ClaimOutcome, Marker, Owner, RunId, RunState, RunView, SourceHash};
use crate::store::{Store, StoreError};

/// Claims the records of a run.
pub(super) struct Claimer<'a> {
    request: &'a IngestRequest,
    store: &'a mut dyn Store,
    bid: Bid,
    views: Views,
    pub(super) latencies: Latencies,
}

impl<'a> Claimer<'a> {
    pub(super) fn new(request: &'a IngestRequest, store: &'a mut dyn Store, bid: Bid) -> Self {
        Self { request, store, bid, views: Views::default(), latencies: Latencies::default() }
    }

    /// The runs that hold records of the feed.
    pub(super) fn holders(&self) -> Vec<Holder> {
        self.views.holders()
    }

    /// Claims every batch, in order, and does nothing else: while it works on an answer, the store waits.
    pub(super) fn claim_all(
        &mut self,
        batches: &Receiver<Batch>,
        hand_on: &SyncSender<ClaimedBatch>,
    ) -> Result<(), IngestError> {
        for batch in batches {
            let claimed = self.claim_batch(batch)?;
            hand_on.send(claimed).map_err(|_| IngestError::WriterGone)?;
        }
        Ok(())
    }

    /// Has the store answer the claims of one batch.
    pub(super) fn claim_batch(&mut self, batch: Batch) -> Result<ClaimedBatch, IngestError> {
        let outcomes = self.claim(&batch.claims)?;
        Ok(ClaimedBatch { batch, outcomes, views: self.views.clone() })
    }

    fn claim(&mut self, all_claims: &[Claim]) -> Result<Vec<ClaimOutcome>, IngestError> {
        let mut all_outcomes = Vec::new();
        // A block may hold more claims than the store likes at once.
        for claims in all_claims.chunks(self.store.claims_per_call().max(1)) {
            self.request.check_interrupt()?;
            let asked = Instant::now();
            let mut outcomes = self.store.claim(&self.bid, claims)?;
            self.latencies.add(asked.elapsed());
            assert_eq!(outcomes.len(), claims.len(), "every claim has an outcome");
            self.adopt_from_dead_attempts(claims, &mut outcomes)?;
            self.views.load_owners_of(&outcomes, &self.bid.run, self.store)?;
            if all_outcomes.is_empty() {
                all_outcomes = outcomes;
            } else {
                all_outcomes.append(&mut outcomes);
            }
        }
        Ok(all_outcomes)
    }

    /// Makes claims of earlier epochs our own, each for the first row that has its hash, and writes that to `outcomes`.
    ///
    /// The row that a dead attempt gave a hash proves nothing: it may have read other bytes. So the row decides that
    /// has the hash now, and what stays behind in an earlier epoch suppresses nothing.
    fn adopt_from_dead_attempts(&mut self, claims: &[Claim], outcomes: &mut [ClaimOutcome]) -> Result<(), IngestError> {
        let mut inheritance = Inheritance::default();
        for (claim, outcome) in claims.iter().zip(outcomes) {
            let ClaimOutcome::Found(Marker::Run { owner, row }) = outcome else { continue };
            if owner.run != self.bid.run || owner.epoch == self.bid.epoch {
                continue;
            }
            if owner.epoch > self.bid.epoch {
                return Err(IngestError::Overtaken { run: self.bid.run.clone() });
            }
            let (owner, row) = inheritance.pass_on(claim, owner, *row, &self.bid);
            *outcome = ClaimOutcome::Found(Marker::Run { owner, row });
        }
        if !inheritance.adoptions.is_empty() && self.store.adopt(&inheritance.adoptions)?.contains(&false) {
            return Err(IngestError::Overtaken { run: self.bid.run.clone() });
        }
        Ok(())
    }
}

/// The claims of one call that an earlier epoch of the run made.
#[derive(Default)]
struct Inheritance {
    adoptions: Vec<Adoption>,
    /// The first row of each hash among them.
    rows: HashMap<SourceHash, (Arc<Owner>, u64)>,
}

impl Inheritance {
    /// Whom the hash of `claim`, found under `owner` and `row` of an earlier epoch, belongs to from now on.
    fn pass_on(&mut self, claim: &Claim, owner: &Arc<Owner>, row: u64, bid: &Bid) -> (Arc<Owner>, u64) {
        let heir = self.rows.entry(claim.source_hash).or_insert_with(|| {
            // The time of the first sight stays.
            let heir = Arc::new(Owner { seen_at: owner.seen_at.clone(), ..(**bid).clone() });
            let found = (Arc::clone(owner), row);
            self.adoptions.push(Adoption { claim: *claim, found, owner: Arc::clone(&heir) });
            (heir, claim.row)
        });
        heir.clone()
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
#[derive(Debug, Clone, Default)]
pub(super) struct Views(Arc<HashMap<RunId, Option<Arc<RunView>>>>);

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
                let view = record.map(|record| RunView {
                    state: record.state,
                    epoch: record.epoch,
                    feed_name: record.feed_name,
                });
                // A copy of the few that are known, where a batch on its way still looks at them.
                Arc::make_mut(&mut self.0).insert(owner.run.clone(), view.map(Arc::new));
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
