//! What is to be done with one feed, all settings resolved.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::IngestError;
use super::feed_file::FeedFile;
use super::hasher::Hashing;
use crate::domain::{ClaimScope, Digest, Interrupt, RunId};
use crate::input::Profile;
use crate::run::{FeedLock, FeedLockError, Gates};

/// Who does the work.
#[derive(Debug, Clone)]
pub struct Worker {
    pub host: String,
    pub user: String,
    pub pid: u32,
}

impl Worker {
    /// Takes the lock on the feed of digest `feed` in `folder`, in the name of this worker, at work `since` then.
    pub(super) fn lock(&self, folder: &Path, feed: &Digest, since: &str) -> Result<FeedLock, FeedLockError> {
        FeedLock::take(folder, feed, &format!("process {} on {} since {since}", self.pid, self.host))
    }
}

/// One feed to ingest.
#[derive(Debug, Clone)]
pub struct IngestRequest {
    pub feed: FeedFile,
    pub profile: Profile,
    /// The absolute folder of the outputs.
    pub folder: PathBuf,
    /// What output names start with.
    pub stem: String,
    /// The operator's name for the run.
    pub run: Option<RunId>,
    /// Stands as the time in outputs and markers; nothing is decided by it.
    pub now: Option<String>,
    pub key_prefix: String,
    /// What the records are claimed for: with the drift check the payment, otherwise the content alone.
    pub claim_scope: ClaimScope,
    pub threads: usize,
    pub tags: BTreeMap<String, String>,
    pub gates: Gates,
    /// How long others wait for a sign of life of this run's worker.
    pub lease: Duration,
    /// Where locks on feeds are kept.
    pub lock_folder: PathBuf,
    pub worker: Worker,
    /// The store in summaries, without secrets.
    pub store_address: String,
    /// Looked at between two steps, until the run is sealed.
    pub interrupt: Interrupt,
}

impl IngestRequest {
    /// How its records are read and claimed.
    pub(super) fn hashing(&self) -> Hashing<'_> {
        Hashing { profile: &self.profile, scope: self.claim_scope, threads: self.threads }
    }

    /// Fails once somebody asked for an early end.
    pub(super) fn check_interrupt(&self) -> Result<(), IngestError> {
        self.feed.check_interrupt(&self.interrupt)
    }
}

/// Sees how far a run has come.
pub trait Progress: Sync {
    /// A feed of this many bytes is about to be read.
    fn start(&self, feed: &str, bytes: u64);

    /// This many more bytes and records are decided.
    fn advance(&self, bytes: u64, records: u64);

    /// No more is to come.
    fn finish(&self);
}
