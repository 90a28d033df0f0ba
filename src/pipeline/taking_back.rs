//! Taking runs back, and resolving those whose host is gone: the rules of runs joined with files and journals.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::release::{ReleaseError, Released, release};
use super::request::Worker;
use crate::domain::{RunId, RunRecord, RunState};
use crate::input::Profile;
use crate::output::OutputNames;
use crate::run::{
    self, Dependents, FeedLock, FeedLockError, Journal, JournalError, Resolution, TakeBackStop, TakenBack,
    dependents_of, find_revertible, now_text,
};
use crate::store::{Store, StoreError};

/// A run to be taken back.
#[derive(Debug, Clone)]
pub struct TakeBackRequest {
    pub run: RunId,
    /// Whether what other runs suppressed because of it is handed out again.
    pub release_suppressed: bool,
    /// How the feeds of those runs were read.
    pub profile: Profile,
    /// Where handed out records go, if not beside the files of the run that suppressed them.
    pub folder: Option<PathBuf>,
    pub lock_folder: PathBuf,
    pub worker: Worker,
}

/// A run whose fate the operator knows.
#[derive(Debug, Clone)]
pub struct ResolveRequest {
    pub run: RunId,
    pub resolution: Resolution,
    pub lock_folder: PathBuf,
    pub worker: Worker,
}

/// What was done.
#[derive(Debug)]
pub struct TakeBackReport {
    pub taken: TakenBack,
    pub released: Vec<Released>,
    /// Whether the run's journal tells of it.
    pub is_noted: bool,
    /// Why the records that were suppressed since could not be handed out; the run is taken back all the same.
    pub late_failure: Option<ReleaseError>,
}

/// What would be done, or what keeps it from being done.
#[derive(Debug)]
pub struct TakeBackOutlook {
    pub record: RunRecord,
    pub dependents: Dependents,
}

/// Why nothing, or not all, was done.
#[derive(Debug)]
pub enum TakeBackError {
    Stop(TakeBackStop<StoreError>),
    /// Somebody works on the run's feed.
    Lock(FeedLockError),
    /// The store is as it was.
    Release(ReleaseError),
}

impl From<TakeBackStop<StoreError>> for TakeBackError {
    fn from(stop: TakeBackStop<StoreError>) -> Self {
        Self::Stop(stop)
    }
}

impl From<StoreError> for TakeBackError {
    fn from(error: StoreError) -> Self {
        Self::Stop(TakeBackStop::Store(error))
    }
}

/// Takes a run back. Killed at any instruction and repeated, it comes to the same end.
///
/// What other runs suppressed because of it is written, and on the disk, before the run's state changes: killed in
/// between, the files are there too early, and ingesting one then suppresses its records again, which loses nothing.
/// The other way round, whoever forgets to repeat the command has records that no published output holds, and nothing
/// that tells of them. Then the state, then the claims, since a claim that is freed under a published run would let its
/// record in twice. Only the journals come last: they tell of what is done.
pub fn revert(request: &TakeBackRequest, store: &mut dyn Store) -> Result<TakeBackReport, TakeBackError> {
    let record = find_revertible(store, &request.run)?;
    let _lock = lock(&request.lock_folder, &record, &request.worker)?;
    let mut released = Vec::new();
    if request.release_suppressed {
        let before = dependents_of(store, &record.run)?;
        if record.state != RunState::Reverted && !before.unpublished.is_empty() {
            // The rules refuse it anyway: this spares the files.
            return Err(TakeBackStop::NeededSoon { run: record.run, by: before.unpublished }.into());
        }
        released = release(request, &record, &before.published).map_err(TakeBackError::Release)?;
    }
    let mut taken = run::revert(store, &request.run, request.release_suppressed)?;
    let mut late_failure = None;
    if request.release_suppressed {
        // Runs that were about to be published when the state changed.
        let is_late = |record: &RunRecord| !released.iter().any(|released| released.run == record.run);
        let late: Vec<_> = taken.dependents.published.drain(..).filter(is_late).collect();
        match release(request, &record, &late) {
            Ok(more) => released.extend(more),
            Err(error) => late_failure = Some(error),
        }
    }
    let files: Vec<_> = released.iter().map(|released| released.path.display().to_string()).collect();
    let fields = json!({ "was_reverted": taken.was_reverted, "claims": taken.freed, "released": files });
    let is_noted = note(&request.worker, &taken.record, "run.reverted", fields);
    Ok(TakeBackReport { taken, released, is_noted, late_failure })
}

/// What `revert` would find now; changes nothing.
pub fn foresee_revert(run: &RunId, store: &mut dyn Store) -> Result<TakeBackOutlook, TakeBackError> {
    let record = find_revertible(store, run)?;
    let dependents = dependents_of(store, run)?;
    Ok(TakeBackOutlook { record, dependents })
}

/// Ends a run that was left between its renames. May be repeated.
pub fn resolve(request: &ResolveRequest, store: &mut dyn Store) -> Result<TakeBackReport, TakeBackError> {
    let known = store.run_record(&request.run)?;
    let record = known.ok_or_else(|| TakeBackStop::Unknown { run: request.run.clone() })?.record;
    // Beside the lease, which a worker that was stopped and goes on does not have.
    let _lock = lock(&request.lock_folder, &record, &request.worker)?;
    let taken = run::resolve(store, &request.run, request.resolution)?;
    let fields = json!({ "state": taken.record.state.name(), "claims": taken.freed });
    let is_noted = note(&request.worker, &taken.record, "run.resolved", fields);
    Ok(TakeBackReport { taken, released: Vec::new(), is_noted, late_failure: None })
}

/// Keeps others of this machine from the run's feed.
fn lock(folder: &Path, record: &RunRecord, worker: &Worker) -> Result<FeedLock, TakeBackError> {
    worker.lock(folder, &record.feed_digest, &now_text()).map_err(TakeBackError::Lock)
}

/// Tells the journal of `record` what `worker` did, `fields` and who it is; says whether it could be told.
pub(super) fn note(worker: &Worker, record: &RunRecord, event: &str, mut fields: Value) -> bool {
    fields["host"] = json!(worker.host);
    fields["user"] = json!(worker.user);
    fields["pid"] = json!(worker.pid);
    let journal = journal_of(record).ok().flatten();
    journal.is_some_and(|mut journal| journal.append(event, fields).is_ok())
}

/// The journal of `record`, if it is within reach: another machine may have a folder of the same name.
pub(super) fn journal_of(record: &RunRecord) -> Result<Option<Journal>, JournalError> {
    Journal::open_existing(&OutputNames::of_run(record, "").journal(), &record.run)
}
