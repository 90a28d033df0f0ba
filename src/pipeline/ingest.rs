//! Ingesting a feed: from its first byte to published files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;

use super::batch::Batch;
use super::claimer::Holder;
use super::collector::Collected;
use super::error::{GateStop, IngestError};
use super::feed_file::Snapshot;
use super::open_run::{FeedIdentity, OpenRun, choose_run};
use super::request::{IngestRequest, Progress};
use super::stages::read_and_hash;
use super::threads::{Staged, Stages};
use super::writers::{RecordTotals, RejectNote};
use crate::domain::{
    Amount, Bid, CANONICAL_VERSION, Currency, Decision, Money, Owner, RunCounts, RunId, RunRecord, RunState, Total,
};
use crate::input::{FeedBlock, FeedReader, InputError, LineContent};
use crate::output::{
    Attempt, AuditLog, DecisionFiles, FeedFacts, GatesTold, HashedFile, Latency, Operation, OutputError, OutputNames,
    Summary, first_missing, publish, remove_temporaries, sync_folder,
};
use crate::run::{FeedLock, GateFailure, Gates, Journal, Start, now_text};
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
    let snapshot = request.feed.snapshot(&request.interrupt)?;
    let feed = FeedIdentity::new(request, &snapshot, format);
    let holder = format!("process {} on {} since {started_at}", request.worker.pid, request.worker.host);
    let _lock = FeedLock::take(&request.lock_folder, &snapshot.digest, &holder)?;
    let mut open = match choose_run(request, &feed, store)? {
        Start::Begin { run, pass } => OpenRun::open(request, &feed, store, None, run, pass)?,
        Start::GoOn(left) => {
            let (run, pass) = (left.run.clone(), left.pass);
            OpenRun::open(request, &feed, store, Some(&left), run, pass)?
        }
        Start::Publish(record) => {
            return finish_publishing(*record, request, store, started).map_err(unfinished);
        }
        Start::NextPass => unreachable!("`choose_run` goes on to the next pass"),
    };
    progress.start(&request.feed.shown, snapshot.bytes);
    let facts = RunFacts { snapshot, started, started_at };
    let outcome = run_to_seal(request, &facts, reader, &mut open, store, progress);
    progress.finish();
    let told = match outcome {
        Ok(sealed) => sealed,
        Err(error) => return Err(give_up(request, open, store, error)),
    };
    publish_sealed(&mut open, store).map_err(unfinished)?;
    Ok(report(&open.record, open.names, told, started.elapsed()))
}

/// What a run is told with, apart from its record.
struct RunFacts {
    snapshot: Snapshot,
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
    let staged = decide_and_write(request, facts, reader, open, store, progress)?;
    let Staged { totals, audit, skipped, collected, latency, holders } = staged;
    check_control_totals(&totals, &collected)?;
    check_gates(request, &totals, &collected.money)?;
    let (audit, chain) = audit.closed(&totals.counts)?;
    let mut outputs = totals.outputs;
    outputs.push(audit);
    let operation = match request.now {
        Some(_) => None,
        None => Some(operation(request, facts, open.record.epoch, collected.records, latency)),
    };
    let summary = Summary {
        run: &open.record.run,
        pass: open.record.pass,
        ts: &open.record.opened_at,
        feed_name: &request.feed.name,
        feed_digest: &open.record.feed_digest,
        feed_bytes: facts.snapshot.bytes,
        meaning: &open.record.meaning,
        tags: &request.tags,
        skipped: &skipped,
        counts: &totals.counts,
        money: &totals.money,
        outputs: &outputs,
        audit_chain: &chain,
        exit_code: published_exit_code(&totals.counts),
        gates: gates_told(&request.gates, &totals.counts),
        operation,
    };
    let summary_json = summary.to_json_value();
    let summary_file = HashedFile::create(&open.names.summary(), &open.attempt())?;
    let summary_output = summary.write(summary_file)?;
    outputs.push(summary_output);
    // The names of the temporaries must outlive a power cut before the seal says that they are complete.
    sync_folder(&open.names.folder)?;
    // The last look: what is sealed is published, which takes milliseconds.
    request.check_interrupt()?;
    store.check_intact()?;
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

fn decide_and_write(
    request: &IngestRequest,
    facts: &RunFacts,
    reader: Box<dyn FeedReader>,
    open: &OpenRun,
    store: &mut dyn Store,
    progress: &dyn Progress,
) -> Result<Staged, IngestError> {
    let RunRecord { run, epoch, opened_at, .. } = &open.record;
    let attempt = open.attempt();
    let files = DecisionFiles::create(&open.names, &attempt, &reader.prologue().raw)?;
    let mut audit = AuditLog::create(&open.names.audit(), &attempt, opened_at, &request.feed.name)?;
    audit.opened(&feed_facts(request, facts, &open.record))?;
    let mut prologue_skipped = BTreeMap::new();
    audit_prologue(reader.prologue(), &mut audit, &mut prologue_skipped)?;
    let bid: Bid = Arc::new(Owner { run: run.clone(), epoch: *epoch, seen_at: opened_at.clone() });
    let stages = Stages { request, reader, files, audit, folder: &open.names.folder, progress };
    let mut staged = stages.run(store, &bid)?;
    request.feed.check_unchanged(&facts.snapshot, &staged.collected.digest)?;
    for (rule, lines) in prologue_skipped {
        *staged.skipped.entry(rule).or_default() += lines;
    }
    Ok(staged)
}

fn feed_facts(request: &IngestRequest, facts: &RunFacts, record: &RunRecord) -> FeedFacts {
    FeedFacts {
        run_id: record.run.to_string(),
        pass: record.pass,
        file: request.feed.name.clone(),
        sha256: record.feed_digest.to_string(),
        bytes: facts.snapshot.bytes,
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
fn check_control_totals(totals: &RecordTotals, collected: &Collected) -> Result<(), IngestError> {
    let mut money_out = Money::default();
    totals.money.iter().for_each(|money| money_out.add_all(money));
    if totals.counts.iter().sum::<u64>() != collected.records || !money_out.equals(&collected.money) {
        return Err(IngestError::ControlTotals);
    }
    Ok(())
}

/// Fails with the first gate that does not hold.
pub(super) fn check_gates(request: &IngestRequest, totals: &RecordTotals, money_in: &Money) -> Result<(), IngestError> {
    request.gates.check(&totals.counts, money_in).map_err(|failure| {
        let is_of_rejects = matches!(failure, GateFailure::Rejects { .. });
        let first_reject = totals.rejects.first().filter(|_| is_of_rejects).cloned();
        IngestError::Gate(Box::new(GateStop { feed: request.feed.shown.clone(), failure, first_reject }))
    })
}

fn gates_told(gates: &Gates, counts: &RunCounts) -> GatesTold {
    let total = |(currency, amount): &(Currency, Amount)| {
        (currency.as_str().to_owned(), Money::text_of(*currency, &Total::from(*amount)))
    };
    GatesTold {
        expected_records: gates.records,
        expected_totals: gates.totals.iter().map(total).collect(),
        reject_limit_percent: gates.reject_limit,
        rejected: counts[Decision::Rejected.index()],
    }
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

/// The journal's word that every file has its name, and the disk knows it.
const FILES_PUBLISHED: &str = "files.published";

/// A failure after the seal, told as one: what stands is not what stands before it.
fn unfinished(error: IngestError) -> IngestError {
    IngestError::Unfinished(Box::new(error))
}

/// Renames the outputs, between the two states that say so.
fn publish_sealed(open: &mut OpenRun, store: &mut dyn Store) -> Result<(), IngestError> {
    // A folder that was taken away is noticed while another may still be given.
    if let Some(output) = first_missing(&open.names, &open.attempt(), &open.record.outputs) {
        let path = open.names.folder.join(&output.name);
        return Err(OutputError::writing(&path, std::io::ErrorKind::NotFound.into()).into());
    }
    open.change_state(store, RunState::Publishing)?;
    publish_files(&open.record, &open.names)?;
    // From here on the files may be taken away: who goes on after a crash must know that they were there.
    open.journal.append(FILES_PUBLISHED, json!({ "epoch": open.record.epoch }))?;
    open.change_state(store, RunState::Published)
}

fn publish_files(record: &RunRecord, names: &OutputNames) -> Result<(), IngestError> {
    let attempt = Attempt { run: record.run.clone(), epoch: record.epoch };
    match publish(names, &attempt, &record.outputs)? {
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
    let mut journal = Journal::open(&names.journal(), &record.run)?;
    let was_done = match &journal {
        Some(journal) => journal.holds(FILES_PUBLISHED, "epoch", record.epoch)?,
        None => false,
    };
    if !was_done {
        publish_files(&record, &names)?;
    }
    let expected = crate::store::Expected { state: record.state, epoch: record.epoch };
    record.state = RunState::Published;
    if !store.write_run(Some(expected), &record)? {
        return Err(IngestError::Overtaken { run: record.run });
    }
    if let Some(journal) = &mut journal {
        journal.append("run.published", json!({ "epoch": record.epoch, "resumed": true }))?;
    }
    // It may have been taken away by a reader that waited for it.
    let summary = std::fs::read(names.summary()).ok().and_then(|read| serde_json::from_slice(&read).ok());
    let summary = summary.unwrap_or_default();
    Ok(report(&record, names, Told { summary, ..Told::default() }, started.elapsed()))
}

/// Leaves a run that cannot go on: no half-written file, and no claim of a run that a gate stopped.
fn give_up(request: &IngestRequest, mut open: OpenRun, store: &mut dyn Store, error: IngestError) -> IngestError {
    remove_temporaries(&open.names, &open.attempt());
    // What stopped the run counts; that the journal could not be written as well does not.
    let _ = open.journal.append("run.stopped", json!({ "reason": error.to_string() }));
    if is_of_the_feed(&error)
        && let Err(worse) = fence_and_free(request, &mut open, store)
    {
        return worse;
    }
    error
}

/// Whether the feed itself stopped the run: repeating the command would not help, so its claims must not stay.
fn is_of_the_feed(error: &IngestError) -> bool {
    matches!(
        error,
        IngestError::Gate(_) | IngestError::Input(InputError::Unreadable { .. } | InputError::Changed { .. })
    )
}

/// Bars the run from sealing, then frees its claims: another feed must not find them and wait.
fn fence_and_free(request: &IngestRequest, open: &mut OpenRun, store: &mut dyn Store) -> Result<(), IngestError> {
    open.change_state(store, RunState::Fenced)?;
    let (_, reader) = request.feed.reader(&request.profile)?;
    let mut freed = 0;
    let read = read_and_hash(reader, &request.profile, request.threads, |block| {
        let mut batch = Batch::default();
        batch.push(block);
        freed += store.release(&open.record.run, &batch.claims)?;
        Ok(())
    });
    match read {
        // It ends as it did when its claims were made.
        Ok(_) | Err(IngestError::Input(InputError::Unreadable { .. })) => {}
        Err(error) => return Err(error),
    }
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
