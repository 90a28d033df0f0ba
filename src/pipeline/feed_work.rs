//! A feed on this machine as the run protocol's work: what is read, written, renamed and noted.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

use super::batch::Batch;
use super::claimer::Holder;
use super::closing;
use super::error::IngestError;
use super::feed_file::Snapshot;
use super::lease::LeaseKeeper;
use super::request::{IngestRequest, Progress};
use super::stages::read_and_hash;
use super::threads::{Staged, Stages};
use super::writers::{ConflictNote, RejectNote};
use crate::domain::{CANONICAL_VERSION, OutputRecord, RunRecord};
use crate::input::{FeedBlock, FeedReader, InputError, LineContent};
use crate::output::{
    Attempt, AuditLog, DecisionFiles, FeedFacts, OutputError, OutputNames, is_standing, is_waiting, is_waiting_whole,
    publish, remove_earlier_temporaries, remove_temporaries, sync_folder,
};
use crate::run::{ClaimBatch, Completed, Journal, Names, TakeClaims, Work};
use crate::store::{Store, StoreError};

/// The journal's word that every file has its name, and the disk knows it.
const FILES_PUBLISHED: &str = "files.published";

/// What is known of a feed and its ingestion from the start.
pub(super) struct RunFacts {
    pub(super) snapshot: Snapshot,
    pub(super) started: Instant,
    pub(super) started_at: String,
    /// The extension of files of records.
    pub(super) extension: String,
}

/// What only the process that decided can tell.
#[derive(Default)]
pub(super) struct Told {
    pub(super) rejects: Vec<RejectNote>,
    pub(super) conflicts: Vec<ConflictNote>,
    pub(super) holders: Vec<Holder>,
    pub(super) summary: Value,
}

/// The work on one feed.
pub(super) struct FeedWork<'a> {
    pub(super) request: &'a IngestRequest,
    pub(super) facts: &'a RunFacts,
    pub(super) progress: &'a dyn Progress,
    /// For the keeper of the lease.
    pub(super) store: Box<dyn Store>,
    /// A reader at the feed's start, until the first pass takes it.
    pub(super) reader: Option<Box<dyn FeedReader>>,
    names: Option<OutputNames>,
    /// Where an earlier attempt left its temporaries.
    names_left: Option<OutputNames>,
    journal: Option<Journal>,
    lease: Option<LeaseKeeper>,
    /// What the last pass left, until it is completed.
    staged: Option<Staged>,
    pub(super) told: Told,
}

impl<'a> FeedWork<'a> {
    pub(super) fn new(
        request: &'a IngestRequest,
        facts: &'a RunFacts,
        progress: &'a dyn Progress,
        store: Box<dyn Store>,
        reader: Box<dyn FeedReader>,
    ) -> Self {
        let (names, names_left, journal, lease, staged) = (None, None, None, None, None);
        let (reader, told) = (Some(reader), Told::default());
        Self { request, facts, progress, store, reader, names, names_left, journal, lease, staged, told }
    }

    /// The names of the run's files, once it is begun.
    pub(super) fn output_names(&self) -> &OutputNames {
        self.names.as_ref().expect("a run that is begun has names")
    }

    fn names_of(&self, record: &RunRecord) -> OutputNames {
        OutputNames::of_run(record, &self.facts.extension)
    }

    fn keep_lease(&mut self, record: &RunRecord) {
        self.lease = None;
        let (run, lease) = (record.run.clone(), self.request.lease);
        self.lease = Some(LeaseKeeper::start(self.store.another(), run, record.epoch, lease));
    }

    fn decide_once(
        &mut self,
        record: &RunRecord,
        claim: &mut ClaimBatch<'_, IngestError>,
    ) -> Result<Staged, IngestError> {
        let request = self.request;
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => request.feed.reader(&request.profile)?.1,
        };
        let (names, attempt) = (self.output_names().clone(), attempt_of(record));
        let files = DecisionFiles::create(&names, &attempt, &reader.prologue().raw)?;
        let mut audit = AuditLog::create(&names.audit(), &attempt, &record.opened_at, &request.feed.name)?;
        audit.opened(&feed_facts(request, self.facts, record))?;
        let mut prologue_skipped = BTreeMap::new();
        audit_prologue(reader.prologue(), &mut audit, &mut prologue_skipped)?;
        let lease = self.lease.as_ref().expect("a run that is begun has a lease");
        let folder = &names.folder;
        let claims_max = self.store.claims_per_call();
        let stages =
            Stages { request, reader, files, audit, folder, progress: self.progress, run: &record.run, claims_max };
        let mut staged = stages.run(lease, claim)?;
        request.feed.check_unchanged(&self.facts.snapshot, &staged.collected.digest)?;
        for (rule, lines) in prologue_skipped {
            *staged.skipped.entry(rule).or_default() += lines;
        }
        Ok(staged)
    }
}

impl Work for FeedWork<'_> {
    type Error = IngestError;

    fn names(&mut self, left: Option<&RunRecord>) -> Result<Names, IngestError> {
        self.names_left = self.names_left.take().or_else(|| left.map(|left| self.names_of(left)));
        let folder = &self.request.folder;
        let names = match left.map(|left| self.names_of(left)) {
            Some(names) if names.folder == *folder && names.is_on(&self.request.stem) => names,
            Some(_) | None => OutputNames::unused(folder, &self.request.stem, &self.facts.extension)?,
        };
        Ok(Names { folder: names.folder.to_string_lossy().into_owned(), stem: names.stem })
    }

    fn begin(&mut self, record: &RunRecord) -> Result<bool, IngestError> {
        let names = self.names_of(record);
        let Some(mut journal) = Journal::open(&names.journal(), &record.run)? else { return Ok(false) };
        // The run is ours: what earlier attempts left half-written is of no use to anybody.
        for left in self.names_left.iter().chain([&names]) {
            remove_earlier_temporaries(left, &record.run, record.epoch);
        }
        self.keep_lease(record);
        journal.append("run.opened", opened_fields(self.request, record))?;
        (self.names, self.journal) = (Some(names), Some(journal));
        Ok(true)
    }

    fn resume(&mut self, record: &RunRecord) -> Result<(), IngestError> {
        let names = self.names_of(record);
        self.journal = Journal::open(&names.journal(), &record.run)?;
        self.keep_lease(record);
        // It may have been taken away by a reader that waited for it.
        let summary = std::fs::read(names.summary()).ok().and_then(|read| serde_json::from_slice(&read).ok());
        self.told.summary = summary.unwrap_or_default();
        self.names = Some(names);
        Ok(())
    }

    fn decide(&mut self, record: &RunRecord, claim: &mut ClaimBatch<'_, IngestError>) -> Result<(), IngestError> {
        if self.staged.take().is_some() {
            remove_temporaries(self.output_names(), &attempt_of(record));
        }
        self.progress.start(&self.request.feed.shown, self.facts.snapshot.bytes);
        let staged = self.decide_once(record, claim);
        self.progress.finish();
        self.staged = Some(staged?);
        Ok(())
    }

    fn complete(&mut self, record: &RunRecord) -> Result<Completed, IngestError> {
        let staged = self.staged.take().expect("a run that is completed was decided");
        let (completed, told) = closing::close(self.request, self.facts, record, self.output_names(), staged)?;
        self.told = told;
        // The last look: what is sealed is published, which takes milliseconds.
        self.request.check_interrupt()?;
        Ok(completed)
    }

    fn check_waiting(&mut self, record: &RunRecord) -> Result<(), IngestError> {
        let attempt = attempt_of(record);
        match record.outputs.iter().find(|output| !is_waiting(self.output_names(), &attempt, output)) {
            None => Ok(()),
            Some(missing) => {
                let path = self.output_names().folder.join(&missing.name);
                Err(OutputError::writing(&path, std::io::ErrorKind::NotFound.into()).into())
            }
        }
    }

    fn is_waiting(&mut self, record: &RunRecord, output: &OutputRecord) -> Result<bool, IngestError> {
        Ok(is_waiting_whole(self.output_names(), &attempt_of(record), output)?)
    }

    fn is_standing(&mut self, _record: &RunRecord, output: &OutputRecord) -> Result<bool, IngestError> {
        Ok(is_standing(self.output_names(), output)?)
    }

    fn rename(&mut self, record: &RunRecord, output: &OutputRecord) -> Result<(), IngestError> {
        Ok(publish(self.output_names(), &attempt_of(record), output)?)
    }

    fn sync_names(&mut self, _record: &RunRecord) -> Result<(), IngestError> {
        Ok(sync_folder(&self.output_names().folder)?)
    }

    fn note(&mut self, event: &str, fields: Value) -> Result<(), IngestError> {
        match &mut self.journal {
            Some(journal) => Ok(journal.append(event, fields)?),
            // A run that died while publishing is gone on with, also where its journal was taken away.
            None => Ok(()),
        }
    }

    fn were_published(&mut self, record: &RunRecord) -> Result<bool, IngestError> {
        match &self.journal {
            Some(journal) => Ok(journal.holds(FILES_PUBLISHED, "epoch", record.epoch)?),
            None => Ok(false),
        }
    }

    fn all_claims(&mut self, take: &mut TakeClaims<'_, IngestError>) -> Result<(), IngestError> {
        let (_, reader) = self.request.feed.reader(&self.request.profile)?;
        let read = read_and_hash(reader, self.request.hashing(), |block| {
            let mut batch = Batch::default();
            batch.push(block);
            take(&batch.claims)
        });
        match read {
            // It ends as it did when its claims were made.
            Ok(_) | Err(IngestError::Input(InputError::Unreadable { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn abandon(&mut self, record: &RunRecord, error: &IngestError) {
        self.lease = None;
        if let Some(names) = &self.names {
            remove_temporaries(names, &attempt_of(record));
        }
        // What stopped the run counts; that the journal could not be written as well does not.
        let _ = self.note("run.stopped", json!({ "epoch": record.epoch, "reason": error.to_string() }));
    }

    fn let_lease_go(&mut self) {
        self.lease = None;
    }

    fn is_of_the_feed(&self, error: &IngestError) -> bool {
        matches!(
            error,
            IngestError::Gate(_) | IngestError::Input(InputError::Unreadable { .. } | InputError::Changed { .. })
        )
    }

    fn is_of_the_store(&self, error: &IngestError) -> bool {
        matches!(error, IngestError::Store(error) if !matches!(error, StoreError::Interrupted { .. }))
    }

    fn unfinished(error: IngestError) -> IngestError {
        IngestError::Unfinished(Box::new(error))
    }
}

/// The attempt that writes the outputs of `record`.
pub(super) fn attempt_of(record: &RunRecord) -> Attempt {
    Attempt { run: record.run.clone(), epoch: record.epoch }
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

fn opened_fields(request: &IngestRequest, record: &RunRecord) -> Value {
    json!({
        "epoch": record.epoch,
        "pass": record.pass,
        "resumed": record.epoch > 1,
        "file": record.feed_name,
        "sha256": record.feed_digest.to_string(),
        "host": request.worker.host,
        "user": request.worker.user,
        "pid": request.worker.pid,
        "store": request.store_address,
        "program": concat!("feeddedup ", env!("CARGO_PKG_VERSION")),
    })
}
