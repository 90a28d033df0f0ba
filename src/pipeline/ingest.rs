//! Ingesting a feed: from its first byte to published files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use serde_json::json;

use super::batch::Batch;
use super::claimer::{Claimer, Holder};
use super::error::IngestError;
use super::open_run::{FeedIdentity, OpenRun, choose_run};
use super::request::{IngestRequest, Progress};
use super::stages::read_and_hash;
use super::writers::{
    BATCHES_WAITING_MAX, RecordTotals, RejectNote, close_audit, flush_files, write_audit, write_records,
};
use crate::domain::{Bid, CANONICAL_VERSION, Decision, Digest, Money, Owner, RunCounts, RunId, RunRecord, RunState};
use crate::input::{FeedBlock, FeedReader, InputError, LineContent};
use crate::output::{
    AuditLog, DecisionFiles, FeedFacts, HashedFile, Latency, Operation, OutputError, OutputNames, Summary, publish,
    remove_temporaries, sync_folder,
};
use crate::run::{FeedLock, Journal, Start, now_text};
use crate::store::Store;

/// A published run, as the operator is told of it.
#[derive(Debug)]
pub struct IngestReport {
    pub run: RunId,
    pub pass: u32,
    pub counts: RunCounts,
    /// The first of the rejected lines.
    pub rejects: Vec<RejectNote>,
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
    let (digest, feed_bytes) = request.feed.digest()?;
    let extension = request.feed.extension.clone().unwrap_or_else(|| format.name().to_owned());
    let feed = FeedIdentity { digest, meaning: request.profile.meaning(), extension };
    let holder = format!("process {} on {} since {started_at}", request.worker.pid, request.worker.host);
    let _lock = FeedLock::take(&request.lock_folder, &digest, &holder)?;
    let mut open = match choose_run(request, &feed, store)? {
        Start::Begin { run, pass } => OpenRun::begin(request, &feed, store, run, pass)?,
        Start::GoOn(left) => OpenRun::go_on(request, &feed, store, &left)?,
        Start::Publish(record) => return finish_publishing(*record, request, store, started),
        Start::NextPass => unreachable!("`choose_run` goes on to the next pass"),
    };
    progress.start(&request.feed.shown, feed_bytes);
    let facts = RunFacts { feed_bytes, started, started_at };
    let outcome = run_to_seal(request, &facts, reader, &mut open, store, progress);
    progress.finish();
    let told = match outcome {
        Ok(sealed) => sealed,
        Err(error) => return Err(give_up(request, open, store, error)),
    };
    open.change_state(store, RunState::Publishing)?;
    publish_files(&open.record, &open.names)?;
    open.change_state(store, RunState::Published)?;
    Ok(report(&open.record, open.names, told, started.elapsed()))
}

/// What a run is told with, apart from its record.
struct RunFacts {
    feed_bytes: u64,
    started: Instant,
    started_at: String,
}

/// Decides every record, writes every file, checks the gates, and seals.
fn run_to_seal(
    request: &IngestRequest,
    facts: &RunFacts,
    reader: Box<dyn FeedReader>,
    open: &mut OpenRun,
    store: &mut dyn Store,
    progress: &dyn Progress,
) -> Result<Told, IngestError> {
    let written = decide_and_write(request, facts, reader, open, store, progress)?;
    let Written { totals, audit, skipped, money_in, records_in, latency, holders } = written;
    check_control_totals(&totals, records_in, &money_in)?;
    request.gates.check(&totals.counts, &money_in)?;
    let (audit, chain) = close_audit(audit, &totals.counts)?;
    let mut outputs = totals.outputs;
    outputs.push(audit);
    let operation = match request.now {
        Some(_) => None,
        None => Some(operation(request, facts, open.record.epoch, records_in, latency)),
    };
    let summary = Summary {
        run: &open.record.run,
        pass: open.record.pass,
        ts: &open.record.opened_at,
        feed_name: &request.feed.name,
        feed_digest: &open.record.feed_digest,
        feed_bytes: facts.feed_bytes,
        meaning: &open.record.meaning,
        tags: &request.tags,
        skipped: &skipped,
        counts: &totals.counts,
        money: &totals.money,
        outputs: &outputs,
        audit_chain: &chain,
        exit_code: published_exit_code(&totals.counts),
        operation,
    };
    let summary_json = summary.to_json_value();
    let summary_file = HashedFile::create(&open.names.summary(), &open.record.run)?;
    let summary_output = summary.write(summary_file)?;
    outputs.push(summary_output);
    // The names of the temporaries must outlive a power cut before the seal says that they are complete.
    sync_folder(&open.names.folder)?;
    store.check_memory()?;
    open.record.counts = totals.counts;
    open.record.outputs = outputs;
    open.record.audit_chain = Some(chain);
    open.change_state(store, RunState::Sealed)?;
    Ok(Told { rejects: totals.rejects, holders, summary: summary_json })
}

/// What only the process that decided can tell.
#[derive(Default)]
struct Told {
    rejects: Vec<RejectNote>,
    holders: Vec<Holder>,
    summary: serde_json::Value,
}

/// What the stages leave when the feed is at its end.
struct Written {
    totals: RecordTotals,
    audit: AuditLog,
    skipped: BTreeMap<&'static str, u64>,
    money_in: Money,
    records_in: u64,
    latency: Latency,
    holders: Vec<Holder>,
}

fn decide_and_write(
    request: &IngestRequest,
    facts: &RunFacts,
    reader: Box<dyn FeedReader>,
    open: &OpenRun,
    store: &mut dyn Store,
    progress: &dyn Progress,
) -> Result<Written, IngestError> {
    let RunRecord { run, epoch, opened_at, feed_digest, .. } = &open.record;
    let files = DecisionFiles::create(&open.names, run, &reader.prologue().raw)?;
    let mut audit = AuditLog::create(&open.names.audit(), run, opened_at, &request.feed.name)?;
    audit.opened(&feed_facts(request, facts, &open.record))?;
    let mut prologue_skipped = BTreeMap::new();
    audit_prologue(reader.prologue(), &mut audit, &mut prologue_skipped)?;
    let bid: Bid = Arc::new(Owner { run: run.clone(), epoch: *epoch, seen_at: opened_at.clone() });
    let mut claimer = Claimer::new(store, bid);
    let mut source = Source { request, money_in: Money::default(), records_in: 0 };
    let (totals, audit, mut skipped) = thread::scope(|scope| {
        let (flusher, to_flush) = sync_channel(BATCHES_WAITING_MAX);
        let flushing = scope.spawn(move || flush_files(&to_flush));
        let (to_records, for_records) = sync_channel(BATCHES_WAITING_MAX);
        let (to_audit, for_audit) = sync_channel(BATCHES_WAITING_MAX);
        let flusher_of_records = flusher.clone();
        let records = scope.spawn(move || write_records(&for_records, files, &flusher_of_records));
        let auditing = scope.spawn(move || write_audit(&for_audit, audit, &flusher));
        let decided = source.decide_all(reader, &mut claimer, progress, &[to_records, to_audit]);
        let records = records.join().map_err(|_| IngestError::Panicked)?;
        let audited = auditing.join().map_err(|_| IngestError::Panicked)?;
        let flushed = flushing.join().map_err(|_| IngestError::Panicked)?;
        // A writer that failed is the cause of what the others say.
        let (totals, (audit, skipped)) = (records?, audited?);
        flushed.map_err(|source| OutputError::writing(&open.names.folder, source))?;
        if decided? != *feed_digest {
            return Err(InputError::Changed { feed: request.feed.shown.clone() }.into());
        }
        Ok::<_, IngestError>((totals, audit, skipped))
    })?;
    for (rule, lines) in prologue_skipped {
        *skipped.entry(rule).or_default() += lines;
    }
    let (latency, holders) = (claimer.latencies.percentiles(), claimer.holders());
    Ok(Written { totals, audit, skipped, money_in: source.money_in, records_in: source.records_in, latency, holders })
}

/// A feed, and what is counted of it before anything is decided.
struct Source<'a> {
    request: &'a IngestRequest,
    money_in: Money,
    records_in: u64,
}

impl Source<'_> {
    /// Has every record decided and handed to all of `writers`; returns the digest of what was read.
    fn decide_all(
        &mut self,
        reader: Box<dyn FeedReader>,
        claimer: &mut Claimer<'_>,
        progress: &dyn Progress,
        writers: &[SyncSender<Arc<Batch>>],
    ) -> Result<Digest, IngestError> {
        let hand_on = |batch: Batch| {
            progress.advance(batch.bytes, batch.blocks.iter().map(|block| block.records).sum());
            let batch = Arc::new(batch);
            // A writer that is gone failed, and says why when it is joined.
            writers.iter().try_for_each(|writer| writer.send(Arc::clone(&batch)).map_err(|_| IngestError::Panicked))
        };
        let end = read_and_hash(reader, &self.request.profile, self.request.threads, |block| {
            self.money_in.add_all(&block.money);
            self.records_in += block.records;
            claimer.push(block)?.map_or(Ok(()), hand_on)
        })?;
        claimer.finish()?.map_or(Ok(()), hand_on)?;
        Ok(end.digest)
    }
}

fn feed_facts(request: &IngestRequest, facts: &RunFacts, record: &RunRecord) -> FeedFacts {
    FeedFacts {
        run_id: record.run.to_string(),
        pass: record.pass,
        file: request.feed.name.clone(),
        sha256: record.feed_digest.to_string(),
        bytes: facts.feed_bytes,
        canonical_version: CANONICAL_VERSION,
        profile_sha256: record.meaning.to_string(),
        tags: request.tags.clone(),
    }
}

fn audit_prologue(
    prologue: &FeedBlock,
    audit: &mut AuditLog,
    skipped: &mut BTreeMap<&'static str, u64>,
) -> Result<(), OutputError> {
    let mut offset = prologue.offset;
    for line in &prologue.lines {
        let LineContent::Skipped(rule) = line.content else { unreachable!("a prologue has no records") };
        *skipped.entry(rule.name()).or_default() += 1;
        audit.skipped(line.line_number, offset, u64::from(line.len), rule.name())?;
        offset += u64::from(line.len);
    }
    Ok(())
}

/// Records in and money in, counted before anything was decided, against the sum over the decisions.
fn check_control_totals(totals: &RecordTotals, records_in: u64, money_in: &Money) -> Result<(), IngestError> {
    let mut money_out = Money::default();
    totals.money.iter().for_each(|money| money_out.add_all(money));
    if totals.counts.iter().sum::<u64>() != records_in || !money_out.equals(money_in) {
        return Err(IngestError::ControlTotals);
    }
    Ok(())
}

fn operation(request: &IngestRequest, facts: &RunFacts, epoch: u32, records: u64, latency: Latency) -> Operation {
    let elapsed = facts.started.elapsed();
    let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX).max(1);
    Operation {
        store: request.store_address.clone(),
        host: request.worker.host.clone(),
        user: request.worker.user.clone(),
        epoch,
        started_at: facts.started_at.clone(),
        sealed_at: now_text(),
        elapsed_ms: micros / 1_000,
        records_per_second: records.saturating_mul(1_000_000) / micros,
        claim_latency_us: latency,
    }
}

fn publish_files(record: &RunRecord, names: &OutputNames) -> Result<(), IngestError> {
    match publish(names, &record.run, &record.outputs)? {
        None => Ok(()),
        Some(missing) => Err(IngestError::Stuck { run: record.run.clone(), output: missing.name.clone() }),
    }
}

/// Goes on with renames that an earlier attempt began.
fn finish_publishing(
    mut record: RunRecord,
    request: &IngestRequest,
    store: &mut dyn Store,
    started: Instant,
) -> Result<IngestReport, IngestError> {
    let names = OutputNames {
        folder: request.folder.clone(),
        stem: record.stem.clone(),
        extension: request.feed.extension.clone().unwrap_or_default(),
    };
    publish_files(&record, &names)?;
    let expected = crate::store::Expected { state: record.state, epoch: record.epoch };
    record.state = RunState::Published;
    if !store.write_run(Some(expected), &record)? {
        return Err(IngestError::Overtaken { run: record.run });
    }
    if let Some(mut journal) = Journal::open(&names.journal(), &record.run)? {
        journal.append("run.published", json!({ "epoch": record.epoch, "resumed": true }))?;
    }
    let read = std::fs::read(names.summary()).map_err(|source| OutputError::writing(&names.summary(), source))?;
    let summary = serde_json::from_slice(&read).unwrap_or_default();
    Ok(report(&record, names, Told { summary, ..Told::default() }, started.elapsed()))
}

/// Leaves a run that cannot go on: no half-written file, and no claim of a run that a gate stopped.
fn give_up(request: &IngestRequest, mut open: OpenRun, store: &mut dyn Store, error: IngestError) -> IngestError {
    remove_temporaries(&open.names, &open.record.run);
    // What stopped the run counts; that the journal could not be written as well does not.
    let _ = open.journal.append("run.stopped", json!({ "reason": error.to_string() }));
    if let IngestError::Gate(_) = error
        && let Err(worse) = fence_and_free(request, &mut open, store)
    {
        return worse;
    }
    error
}

/// Bars the run from sealing, then frees its claims: another feed must not find them and wait.
fn fence_and_free(request: &IngestRequest, open: &mut OpenRun, store: &mut dyn Store) -> Result<(), IngestError> {
    open.change_state(store, RunState::Fenced)?;
    let (_, reader) = request.feed.reader(&request.profile)?;
    let mut freed = 0;
    read_and_hash(reader, &request.profile, request.threads, |block| {
        let mut batch = Batch::default();
        batch.push(block);
        freed += store.release(&open.record.run, &batch.claims)?;
        Ok(())
    })?;
    open.journal.append("claims.freed", json!({ "claims": freed }))?;
    Ok(())
}

fn report(record: &RunRecord, names: OutputNames, told: Told, elapsed: std::time::Duration) -> IngestReport {
    let Told { rejects, holders, summary } = told;
    IngestReport {
        run: record.run.clone(),
        pass: record.pass,
        counts: record.counts,
        rejects,
        holders,
        names,
        files: record.outputs.iter().map(|output| output.name.clone()).collect(),
        is_resumed: record.epoch > 1,
        elapsed,
        summary,
    }
}
