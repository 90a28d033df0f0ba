//! What a run that started now would decide; nothing is written, nowhere.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::batch::{Batch, DecidedBatch, HashedBlock};
use super::closing::check_gates;
use super::error::IngestError;
use super::ingest::plan;
use super::request::{IngestRequest, Progress};
use super::stages::read_and_hash;
use super::writers::{ConflictNote, RecordTotals, RejectNote, count_batch};
use crate::domain::{
    Claim, ClaimScope, Content, Decided, Decision, Judgement, KnownRun, Lease, Money, RunCounts, RunId, RunState,
    RunView, decide, judge,
};
use crate::run::{FeedLock, Start, Views, choose, view_of};
use crate::store::{Store, StoreError};

/// Claims looked up at once.
const LOOK_UPS_PER_CALL: usize = 32_768;

/// What a run would come to.
#[derive(Debug)]
pub struct DryRunReport {
    pub run: RunId,
    pub counts: RunCounts,
    pub money: [Money; 6],
    pub rejects: Vec<RejectNote>,
    /// Conflicts with what stands in the store.
    pub conflicts: Vec<ConflictNote>,
}

/// The leading half of a hash: enough to tell the records of one feed apart, at half the memory.
type ShortHash = [u8; 16];

/// What would have been claimed so far, by the feeds before too: without claims nobody else remembers.
///
/// 34 bytes a record: what was claimed, a payment or a content of one, and the content.
#[derive(Debug, Default)]
pub struct WouldBeClaims(HashMap<ShortHash, Content>);

impl WouldBeClaims {
    /// What would become of `claim`, which nobody has claimed in the store.
    fn decide(&mut self, claim: &Claim) -> Decision {
        let hash = match claim.scope {
            ClaimScope::Payment => claim.identity.as_bytes(),
            ClaimScope::Content => claim.source_hash.as_bytes(),
        };
        match self.0.entry(*hash.first_chunk().expect("a hash is longer than its half")) {
            Entry::Vacant(place) => {
                place.insert(claim.content());
                Decision::Accepted
            }
            Entry::Occupied(first) if *first.get() == claim.content() => Decision::Suppressed,
            Entry::Occupied(_) => Decision::Conflict,
        }
    }
}

/// Decides every record as a run would that started now and met nobody; checks the gates as it would.
pub fn dry_run(
    request: &IngestRequest,
    claims: &mut WouldBeClaims,
    store: &mut dyn Store,
    progress: &dyn Progress,
) -> Result<DryRunReport, IngestError> {
    let (_, reader) = request.feed.reader(&request.profile)?;
    let snapshot = request.feed.snapshot(&request.interrupt)?;
    // A lock that is not there yet is no dead worker's.
    let lock = FeedLock::look(&request.lock_folder, &snapshot.digest)?.unwrap_or_default();
    let run = match choose::<_, IngestError>(&plan(request, snapshot.digest, lock), store)? {
        Start::Begin { run, .. } => run,
        Start::GoOn { left: record, .. } | Start::Publish(record) => record.run,
        Start::NextPass => unreachable!("`choose` goes on to the next pass"),
    };
    progress.start(&request.feed.shown, snapshot.bytes);
    let mut looker = Looker { run, store, seen: claims, views: Views::default(), totals: RecordTotals::default() };
    let mut batch = Batch::default();
    let mut money_in = Money::default();
    let read = read_and_hash(reader, request.hashing(), |block: HashedBlock| {
        money_in.add_all(&block.money);
        request.check_interrupt()?;
        batch.push(block);
        if batch.claims.len() < LOOK_UPS_PER_CALL {
            return Ok(());
        }
        let batch = std::mem::take(&mut batch);
        progress.advance(batch.bytes, batch.blocks.iter().map(|block| block.records).sum());
        looker.look_up(batch)
    });
    progress.finish();
    request.feed.check_unchanged(&snapshot, &read?)?;
    looker.look_up(batch)?;
    let Looker { run, totals, .. } = looker;
    check_gates(request, &totals, &money_in)?;
    Ok(DryRunReport {
        run,
        counts: totals.counts,
        money: totals.money,
        rejects: totals.rejects,
        conflicts: totals.conflicts,
    })
}

struct Looker<'a> {
    run: RunId,
    store: &'a mut dyn Store,
    /// The records that nobody has claimed.
    seen: &'a mut WouldBeClaims,
    views: Views,
    totals: RecordTotals,
}

impl Looker<'_> {
    fn look_up(&mut self, batch: Batch) -> Result<(), IngestError> {
        let mut all_decided = Vec::with_capacity(batch.claims.len());
        let outcomes = self.store.look_up(&batch.claims)?;
        let store = &mut *self.store;
        self.views.load_owners_of(&outcomes, &self.run, |run| {
            Ok::<_, StoreError>(store.run_record(run)?.map(as_if_fenced))
        })?;
        for (claim, outcome) in batch.claims.iter().zip(outcomes) {
            // A claim of an attempt that died would pass to the first row that asks for it.
            let is_free = outcome.marker().is_none()
                || outcome.run_marker().is_some_and(|(owner, _)| {
                    let view = || self.views.view(&owner.run);
                    owner.run == self.run || judge(owner.epoch, view().as_deref()) == Judgement::TakeOver
                });
            let decided = match is_free {
                true => Decided::on_nothing(self.seen.decide(claim)),
                false => decide(&self.run, claim.row, outcome, |run| self.views.view(run)),
            };
            all_decided.push(decided);
        }
        let batch = DecidedBatch { blocks: batch.blocks, decided: all_decided };
        count_batch(&batch, &mut self.totals);
        Ok(())
    }
}

/// A run as a run that started now would find it: one whose worker is dead would be barred from publishing.
fn as_if_fenced(known: KnownRun) -> RunView {
    let KnownRun { mut record, lease } = known;
    if record.state == RunState::Open && lease == Lease::Over {
        record.state = RunState::Fenced;
    }
    view_of(record)
}
