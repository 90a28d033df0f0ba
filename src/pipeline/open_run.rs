//! Opening a run: which one it is, its record, its names, its journal.

use std::path::PathBuf;

use serde_json::json;

use super::error::IngestError;
use super::request::IngestRequest;
use crate::domain::{Digest, RunId, RunRecord, RunState};
use crate::output::{OutputNames, remove_temporaries};
use crate::run::{Found, Journal, Start, derived_run_id, now_text, nth_pass, plan_start};
use crate::store::{Expected, FeedNote, Store};

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

/// The run to do: the first pass over the feed that is not published.
pub(super) fn choose_run(
    request: &IngestRequest,
    feed: &FeedIdentity,
    store: &mut dyn Store,
) -> Result<Start, IngestError> {
    let note = store.feed_note(&feed.digest, &feed.meaning)?;
    let id_of = |pass| match &request.run {
        Some(name) => nth_pass(name, pass),
        None => derived_run_id(&feed.digest, &feed.meaning, &request.key_prefix, pass),
    };
    // Where the latest run over the feed is known, the passes before it need not be asked.
    let (mut run, mut pass) = match note {
        Some(FeedNote { run, pass }) if request.run.is_none() || run == id_of(pass) => (run, pass),
        Some(_) | None => (id_of(1), 1),
    };
    loop {
        let record = store.run_record(&run)?;
        let folder = request.folder.to_string_lossy();
        let found = Found { run, pass, record };
        match plan_start(found, &feed.digest, &request.worker.host, &folder)? {
            Start::NextPass => {}
            start @ (Start::Begin { .. } | Start::GoOn(_) | Start::Publish(_)) => return Ok(start),
        }
        pass += 1;
        run = id_of(pass);
    }
}

impl OpenRun {
    /// Opens a run that nobody has begun.
    pub(super) fn begin(
        request: &IngestRequest,
        feed: &FeedIdentity,
        store: &mut dyn Store,
        run: RunId,
        pass: u32,
    ) -> Result<Self, IngestError> {
        Self::open(request, feed, store, None, run, pass)
    }

    /// Opens the next epoch of a run that an earlier attempt left.
    pub(super) fn go_on(
        request: &IngestRequest,
        feed: &FeedIdentity,
        store: &mut dyn Store,
        left: &RunRecord,
    ) -> Result<Self, IngestError> {
        Self::open(request, feed, store, Some(left), left.run.clone(), left.pass)
    }

    fn open(
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
        let mut names = match names_left {
            Some(names) if names.folder == request.folder => names,
            other_folder => {
                // The earlier attempt's half-written files are of no use here.
                other_folder.iter().for_each(|names| remove_temporaries(names, &run));
                OutputNames::unused(&request.folder, &request.stem, &feed.extension)?.0
            }
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
                return Err(IngestError::Overtaken { run });
            }
            if let Some(mut journal) = Journal::open(&names.journal(), &run)? {
                store.write_feed_note(&feed.digest, &feed.meaning, &FeedNote { run, pass })?;
                journal.append("run.opened", opened_fields(request, &record))?;
                return Ok(Self { record, names, journal });
            }
            // Another run took the number since it was looked up.
            expected = Some(Expected { state: record.state, epoch: record.epoch });
            names = OutputNames::unused(&request.folder, &request.stem, &feed.extension)?.0;
        }
    }

    /// Changes the run's state in the store, which must still be as we left it.
    pub(super) fn change_state(&mut self, store: &mut dyn Store, state: RunState) -> Result<(), IngestError> {
        let expected = Expected { state: self.record.state, epoch: self.record.epoch };
        self.record.state = state;
        if !store.write_run(Some(expected), &self.record)? {
            return Err(IngestError::Overtaken { run: self.record.run.clone() });
        }
        let event = format!("run.{}", state.name().to_lowercase());
        self.journal.append(&event, json!({ "epoch": self.record.epoch }))?;
        Ok(())
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
