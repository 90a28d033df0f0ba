//! The threads of a run, the queues between them, and whose failure counts; or all stages on one thread.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread::{self, ScopedJoinHandle};

use super::claimer::{Claimer, Holder};
use super::collector::{Collected, Collector};
use super::error::IngestError;
use super::lease::LeaseKeeper;
use super::request::{IngestRequest, Progress};
use super::router::{decide_batch, route_all};
use super::writers::{AuditWriter, RecordTotals, RecordWriter, flush_files, write_audit, write_records};
use crate::domain::RunId;
use crate::input::FeedReader;
use crate::output::{AuditLog, DecisionFiles, Latency, OutputError};
use crate::run::ClaimBatch;

/// Batches that wait between two stages: none, each is handed over. A batch of a large store has tens of megabytes,
/// and the blocks that wait behind the hashers keep every stage at work.
const BATCHES_WAITING_MAX: usize = 0;

/// Files that wait to be synced, and rooms of batches that wait to be used again.
const SPARE_MAX: usize = 1;

/// How far the other stages stand back, in steps of the scheduler's nice values.
const STEP_BACK: i32 = 5;

/// What the stages work with.
pub(super) struct Stages<'a> {
    pub(super) request: &'a IngestRequest,
    pub(super) reader: Box<dyn FeedReader>,
    pub(super) files: DecisionFiles,
    pub(super) audit: AuditLog,
    /// The folder of the outputs, for messages.
    pub(super) folder: &'a Path,
    pub(super) progress: &'a dyn Progress,
    pub(super) run: &'a RunId,
    /// How many claims the store likes at once.
    pub(super) claims_max: usize,
}

/// What the stages leave.
pub(super) struct Staged {
    pub(super) totals: RecordTotals,
    pub(super) audit: AuditLog,
    pub(super) skipped: BTreeMap<&'static str, u64>,
    pub(super) collected: Collected,
    pub(super) latency: Latency,
    pub(super) holders: Vec<Holder>,
}

impl Stages<'_> {
    /// Runs every stage to the feed's end, claiming by `claim` on the calling thread, as long as `lease` is ours.
    pub(super) fn run(
        self,
        lease: &LeaseKeeper,
        claim: &mut ClaimBatch<'_, IngestError>,
    ) -> Result<Staged, IngestError> {
        let claimer = Claimer::new(self.request, lease, claim);
        if self.request.threads <= 1 { self.run_here(claimer) } else { self.run_on_threads(claimer) }
    }

    /// Every stage in turn on the calling thread, batch by batch: what happens, and in which order, is always the same.
    fn run_here(self, mut claimer: Claimer<'_, '_>) -> Result<Staged, IngestError> {
        let Self { request, reader, files, audit, folder: _, progress, run, claims_max } = self;
        let mut records = RecordWriter::new(files);
        let mut audit = AuditWriter::new(audit);
        let take_batch = |batch| {
            let (decided, room) = decide_batch(run, claimer.claim_batch(batch)?, progress);
            records.write(&decided)?;
            audit.write(&decided)?;
            Ok(room)
        };
        let collected = Collector::new(claims_max, take_batch).collect(reader, request.hashing())?;
        Ok(Staged::new(records.finish()?, audit, collected, &claimer))
    }

    fn run_on_threads(self, mut claimer: Claimer<'_, '_>) -> Result<Staged, IngestError> {
        let Self { request, reader, files, audit, folder, progress, run, claims_max } = self;
        thread::scope(|scope| {
            let (flusher, to_flush) = sync_channel(SPARE_MAX);
            let (to_records, for_records) = sync_channel(BATCHES_WAITING_MAX);
            let (to_audit, for_audit) = sync_channel(BATCHES_WAITING_MAX);
            let (to_router, for_router) = sync_channel(BATCHES_WAITING_MAX);
            let (to_claimer, for_claimer) = sync_channel(BATCHES_WAITING_MAX);
            let (give_room, room) = sync_channel(SPARE_MAX);
            let flusher_of_records = flusher.clone();
            let flushing = scope.spawn(move || flush_files(&to_flush));
            let recording = scope.spawn(move || {
                step_back();
                write_records(&for_records, RecordWriter::new(files), &flusher_of_records)
            });
            let auditing = scope.spawn(move || {
                step_back();
                write_audit(&for_audit, AuditWriter::new(audit), &flusher)
            });
            let routing = scope.spawn(move || {
                step_back();
                route_all(run, &for_router, &[to_records, to_audit], &give_room, progress)
            });
            let collecting = scope.spawn(move || {
                step_back();
                let hand_on = |batch| {
                    to_claimer.send(batch).map_err(|_| IngestError::WriterGone)?;
                    Ok(room.try_recv().unwrap_or_default())
                };
                Collector::new(claims_max, hand_on).collect(reader, request.hashing())
            });
            let claimed = claimer.claim_all(&for_claimer, &to_router);
            // Whoever waits for these queues finds them closed.
            drop((for_claimer, to_router));
            let mut failures = Failures::default();
            let totals = failures.of(joined(recording).and_then(|written| Ok(written?)));
            let audited = failures.of(joined(auditing).and_then(|written| Ok(written?)));
            let flushed = joined(flushing)
                .and_then(|flushed| Ok(flushed.map_err(|source| OutputError::writing(folder, source))?));
            failures.of(flushed);
            failures.of(claimed);
            failures.of(joined(routing).and_then(|routed| routed));
            let collected = failures.of(joined(collecting).and_then(|collected| collected));
            match (totals, audited, collected, failures.cause()) {
                (_, _, _, Some(cause)) => Err(cause),
                (Some(totals), Some(audit), Some(collected), None) => {
                    Ok(Staged::new(totals, audit, collected, &claimer))
                }
                (_, _, _, None) => unreachable!("a stage without a result has a failure"),
            }
        })
    }
}

impl Staged {
    fn new(totals: RecordTotals, audit: AuditWriter, collected: Collected, claimer: &Claimer<'_, '_>) -> Self {
        let AuditWriter { audit, skipped } = audit;
        let (latency, holders) = (claimer.latencies.percentiles(), claimer.holders());
        Self { totals, audit, skipped, collected, latency, holders }
    }
}

/// Lets the claimer go first, and the store's server where it is on this machine: they set the pace.
pub(super) fn step_back() {
    // A thread that may not be slowed down is only a little less polite.
    let _ = rustix::process::nice(STEP_BACK);
}

fn joined<T>(stage: ScopedJoinHandle<'_, T>) -> Result<T, IngestError> {
    stage.join().map_err(|_| IngestError::Panicked)
}

/// What the stages failed with; one that only found its neighbour gone is no cause.
#[derive(Default)]
struct Failures(Vec<IngestError>);

impl Failures {
    fn of<T>(&mut self, outcome: Result<T, IngestError>) -> Option<T> {
        outcome.map_err(|error| self.0.push(error)).ok()
    }

    fn cause(mut self) -> Option<IngestError> {
        self.0.sort_by_key(|error| matches!(error, IngestError::WriterGone));
        self.0.into_iter().next()
    }
}
