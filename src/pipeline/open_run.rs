//! Opening a run: which one it is, its record, its names, its journal.

use std::path::PathBuf;

use serde_json::json;

use super::error::IngestError;
use super::feed_file::Snapshot;
use super::request::IngestRequest;
use crate::domain::{Digest, RunId, RunRecord, RunState};
use crate::input::Format;
use crate::output::{Attempt, OutputNames, remove_earlier_temporaries};
use crate::run::{Found, Journal, Place, Start, derived_run_id, now_text, nth_pass, plan_start};
use crate::store::{Expected, FeedNote, Store, StoreError};

/// A run whose record stands in the store as `OPEN`, in our name.
#[derive(Debug)]
pub(super) struct OpenRun {
    pub(super) record: RunRecord,
    pub(super) names: OutputNames,
    pub(super) journal: Journal,
}

/// What is known of the feed before the run is chosen.
#[derive(Debug)]
pub(super) struct FeedIdentity {
    pub(super) digest: Digest,
    pub(super) meaning: Digest,
    /// The extension of files of records.
    pub(super) extension: String,
}

impl FeedIdentity {
    /// The feed of `request`, read through once and found to be of `format`.
    pub(super) fn new(request: &IngestRequest, snapshot: &Snapshot, format: Format) -> Self {
        let extension = request.feed.extension.clone().unwrap_or_else(|| format.name().to_owned());
        Self { digest: snapshot.digest, meaning: request.profile.meaning(), extension }
    }
}

/// The run to do: the first pass over the feed that is not published.
pub(super) fn choose_run(
    request: &IngestRequest,
    feed: &FeedIdentity,
    store: &mut dyn Store,
) -> Result<Start, IngestError> {
    let note = store.feed_note(&feed.digest, &feed.meaning)?;
    if let Some(FeedNote { run, .. }) = &note
        && store.run_record(run)?.is_none()
    {
        // Its claims would pass for those of a run that begins now.
        let cause = format!("the record of run `{run}` over this feed is gone");
        let address = request.store_address.clone();
        return Err(StoreError::Forgotten { address, cause }.into());
    }
    let id_of = |pass| match &request.run {
        Some(name) => nth_pass(name, pass),
        None => derived_run_id(&feed.digest, &feed.meaning, &request.key_prefix, pass),
    };
    // Where the latest run over the feed is known, the passes before it need not be asked.
    let (mut run, mut pass) = match note {
        Some(FeedNote { run, pass }) if request.run.is_none() || run == id_of(pass) => (run, pass),
        Some(_) | None => (id_of(1), 1),
    };
    let folder = request.folder.to_string_lossy();
    loop {
        let record = store.run_record(&run)?;
        let found = Found { run, pass, record };
        let (feed, meaning) = (&feed.digest, &feed.meaning);
        match plan_start(found, Place { feed, meaning, host: &request.worker.host, folder: &folder })? {
            Start::NextPass => {}
            start @ (Start::Begin { .. } | Start::GoOn(_) | Start::Publish(_)) => return Ok(start),
        }
        pass += 1;
        run = id_of(pass);
    }
}

impl OpenRun {
    /// Opens the run, or the next epoch of it where an earlier attempt `left` one.
    pub(super) fn open(
        request: &IngestRequest,
        feed: &FeedIdentity,
        store: &mut dyn Store,
        left: Option<&RunRecord>,
        run: RunId,
        pass: u32,
    ) -> Result<Self, IngestError> {
        let folder = request.folder.to_string_lossy().into_owned();
        let mut expected = left.map(|left| Expected { state: left.state, epoch: left.epoch });
        let names_left = left.map(|left| OutputNames {
            folder: PathBuf::from(&left.folder),
            stem: left.stem.clone(),
            extension: feed.extension.clone(),
        });
        let mut names = match names_left.clone() {
            Some(names) if names.folder == request.folder && names.is_on(&request.stem) => names,
            Some(_) | None => OutputNames::unused(&request.folder, &request.stem, &feed.extension)?,
        };
        loop {
            let record = RunRecord {
                run: run.clone(),
                state: RunState::Open,
                epoch: left.map_or(1, |left| left.epoch + 1),
                pass,
                feed_digest: feed.digest,
                feed_name: request.feed.name.clone(),
                meaning: feed.meaning,
                opened_at: request.now.clone().unwrap_or_else(now_text),
                host: request.worker.host.clone(),
                pid: request.worker.pid,
                folder: folder.clone(),
                stem: names.stem.clone(),
                counts: [0; 6],
                outputs: Vec::new(),
                audit_chain: None,
            };
            // The record stands before the first file and the first claim: whoever finds one of them finds it.
            if !store.write_run(expected, &record)? {
                return Err(overtaken(store, run));
            }
            if let Some(mut journal) = Journal::open(&names.journal(), &run)? {
                // The run is ours: what earlier attempts left half-written is of no use to anybody.
                names_left.iter().for_each(|names| remove_earlier_temporaries(names, &run, record.epoch));
                store.write_feed_note(&feed.digest, &feed.meaning, &FeedNote { run, pass })?;
                journal.append("run.opened", opened_fields(request, &record))?;
                return Ok(Self { record, names, journal });
            }
            // Another run took the number since it was looked up.
            expected = Some(Expected { state: record.state, epoch: record.epoch });
            names = OutputNames::unused(&request.folder, &request.stem, &feed.extension)?;
        }
    }

    /// Changes the run's state in the store, which must still be as we left it.
    pub(super) fn change_state(&mut self, store: &mut dyn Store, state: RunState) -> Result<(), IngestError> {
        let expected = Expected { state: self.record.state, epoch: self.record.epoch };
        self.record.state = state;
        if !store.write_run(Some(expected), &self.record)? {
            return Err(overtaken(store, self.record.run.clone()));
        }
        let event = format!("run.{}", state.name().to_lowercase());
        let written = self.journal.append(&event, json!({ "epoch": self.record.epoch }));
        // A published run is done, whether its journal says so or not.
        if state == RunState::Published { Ok(()) } else { Ok(written?) }
    }

    /// The attempt that this process is.
    pub(super) fn attempt(&self) -> Attempt {
        Attempt { run: self.record.run.clone(), epoch: self.record.epoch }
    }
}

/// Why the record of `run` is not as it was left: another worker changed it, or the store forgot it.
fn overtaken(store: &mut dyn Store, run: RunId) -> IngestError {
    match store.check_intact() {
        Ok(()) => IngestError::Overtaken { run },
        Err(forgot) => forgot.into(),
    }
}

fn opened_fields(request: &IngestRequest, record: &RunRecord) -> serde_json::Value {
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
