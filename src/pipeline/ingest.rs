//! Ingesting a feed: from its first byte to published files.

use std::time::Instant;

use super::claimer::Holder;
use super::error::IngestError;
use super::feed_work::{FeedWork, RunFacts, Told};
use super::request::{IngestRequest, Progress};
use super::writers::{ConflictNote, RejectNote};
use crate::domain::{Decision, Digest, RunCounts, RunId, RunRecord};
use crate::output::OutputNames;
use crate::run::{RunPlan, execute, now_text};
use crate::store::Store;

/// A published run, as the operator is told of it.
#[derive(Debug)]
pub struct IngestReport {
    pub run: RunId,
    pub pass: u32,
    pub counts: RunCounts,
    /// The first of the rejected lines.
    pub rejects: Vec<RejectNote>,
    /// The first of the conflicts.
    pub conflicts: Vec<ConflictNote>,
    /// The runs that hold records of the feed.
    pub holders: Vec<Holder>,
    pub names: OutputNames,
    /// File names in the order in which they appeared.
    pub files: Vec<String>,
    /// Whether an earlier attempt was gone on with.
    pub is_resumed: bool,
    pub elapsed: std::time::Duration,
    /// The summary as it was published.
    pub summary: serde_json::Value,
}

/// The exit code of a published run: 0, or 3 if records wait for a person.
pub fn published_exit_code(counts: &RunCounts) -> u8 {
    let waits = |decision: &Decision| decision.waits_for_a_person() && counts[decision.index()] > 0;
    if Decision::ALL.iter().any(waits) { 3 } else { 0 }
}

/// Ingests the feed of `request`: decides every record, and publishes the files.
pub fn ingest(
    request: &IngestRequest,
    store: &mut dyn Store,
    progress: &dyn Progress,
) -> Result<IngestReport, IngestError> {
    let started = Instant::now();
    let started_at = now_text();
    // A feed that cannot be read leaves no trace: no lock, no run, no file.
    let (format, reader) = request.feed.reader(&request.profile)?;
    let snapshot = request.feed.snapshot(&request.interrupt)?;
    let lock = request.worker.lock(&request.lock_folder, &snapshot.digest, &started_at)?;
    let plan = plan(request, snapshot.digest, lock.id().to_owned());
    let extension = request.feed.extension.clone().unwrap_or_else(|| format.name().to_owned());
    let facts = RunFacts { snapshot, started, started_at, extension };
    let mut work = FeedWork::new(request, &facts, progress, store.another(), reader);
    let record = execute(&plan, store, &mut work)?;
    let names = work.output_names().clone();
    Ok(report(&record, names, work.told, started.elapsed()))
}

/// What the run protocol is told of the feed of `request`, which has this digest, under a kernel lock that is ours.
pub(super) fn plan(request: &IngestRequest, feed: Digest, lock: String) -> RunPlan {
    RunPlan {
        feed,
        meaning: request.profile.meaning(),
        feed_name: request.feed.name.clone(),
        name: request.run.clone(),
        key_prefix: request.key_prefix.clone(),
        host: request.worker.host.clone(),
        pid: request.worker.pid,
        lock,
        folder: request.folder.to_string_lossy().into_owned(),
        opened_at: request.now.clone().unwrap_or_else(now_text),
        lease: request.lease,
    }
}

fn report(record: &RunRecord, names: OutputNames, told: Told, elapsed: std::time::Duration) -> IngestReport {
    let Told { rejects, conflicts, holders, summary } = told;
    IngestReport {
        run: record.run.clone(),
        pass: record.pass,
        counts: record.counts,
        rejects,
        conflicts,
        holders,
        names,
        files: record.outputs.iter().map(|output| output.name.clone()).collect(),
        is_resumed: record.epoch > 1,
        elapsed,
        summary,
    }
}
