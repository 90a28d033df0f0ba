//! Has the claims of every batch answered, unless the run was told to stop.

use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Instant;

use super::batch::{Batch, ClaimedBatch};
use super::error::IngestError;
use super::latency::Latencies;
use super::lease::LeaseKeeper;
use super::request::IngestRequest;
use crate::domain::{RunId, RunState};
use crate::run::{ClaimBatch, Views};

/// Claims the records of a run, batch by batch.
pub(super) struct Claimer<'a, 'b> {
    request: &'a IngestRequest,
    lease: &'a LeaseKeeper,
    claim: &'a mut ClaimBatch<'b, IngestError>,
    /// What the last batch left known.
    views: Views,
    pub(super) latencies: Latencies,
}

impl<'a, 'b> Claimer<'a, 'b> {
    pub(super) fn new(
        request: &'a IngestRequest,
        lease: &'a LeaseKeeper,
        claim: &'a mut ClaimBatch<'b, IngestError>,
    ) -> Self {
        Self { request, lease, claim, views: Views::default(), latencies: Latencies::default() }
    }

    /// The runs that hold records of the feed.
    pub(super) fn holders(&self) -> Vec<Holder> {
        holders(&self.views)
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

    /// Has the claims of one batch answered.
    pub(super) fn claim_batch(&mut self, batch: Batch) -> Result<ClaimedBatch, IngestError> {
        self.request.check_interrupt()?;
        self.lease.check()?;
        let asked = Instant::now();
        let settled = (self.claim)(&batch.claims)?;
        self.latencies.add(asked.elapsed());
        self.views = settled.views.clone();
        Ok(ClaimedBatch { batch, outcomes: settled.outcomes, views: settled.views })
    }
}

/// A run that is not published and has claimed records of this feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub run: RunId,
    /// None where the run has no record.
    pub feed_name: Option<String>,
}

/// The runs that hold records because they are not published, as the operator is told of them.
fn holders(views: &Views) -> Vec<Holder> {
    let is_holding = |state: RunState| match state {
        RunState::Open | RunState::Sealed | RunState::Publishing => true,
        RunState::Published | RunState::Fenced | RunState::Reverted => false,
    };
    let holding = views.all().filter(|(_, view)| view.is_none_or(|view| is_holding(view.state)));
    holding.map(|(run, view)| Holder { run: run.clone(), feed_name: view.map(|view| view.feed_name.clone()) }).collect()
}
