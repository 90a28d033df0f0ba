//! What is to be done with one feed, all settings resolved.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use sha2::{Digest as _, Sha256};

use super::error::IngestError;
use crate::domain::{Digest, RunId};
use crate::input::{FeedReader, Format, InputError, Profile, open_feed};
use crate::run::Gates;

/// A feed on this machine.
#[derive(Debug, Clone)]
pub struct FeedFile {
    pub path: PathBuf,
    /// The feed in messages: the path as the operator gave it.
    pub shown: String,
    /// The feed in outputs and records: its file name.
    pub name: String,
    pub extension: Option<String>,
}

/// Who does the work.
#[derive(Debug, Clone)]
pub struct Worker {
    pub host: String,
    pub user: String,
    pub pid: u32,
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
    pub threads: usize,
    pub tags: BTreeMap<String, String>,
    pub gates: Gates,
    /// Where locks on feeds are kept.
    pub lock_folder: PathBuf,
    pub worker: Worker,
    /// The store in summaries, without secrets.
    pub store_address: String,
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

/// Whether `feed` is there and begins as `profile` says, before anything is opened for it.
pub fn check_feed(feed: &FeedFile, profile: &Profile) -> Result<(), IngestError> {
    feed.reader(profile).map(|_| ())
}

impl FeedFile {
    /// The feed's digest and size.
    pub(super) fn digest(&self) -> Result<(Digest, u64), IngestError> {
        let mut file = self.open()?;
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 256 * 1024];
        let mut bytes = 0;
        loop {
            let read = file.read(&mut buffer).map_err(|source| InputError::Read {
                feed: self.shown.clone(),
                offset: bytes,
                source,
            })?;
            if read == 0 {
                return Ok((Digest::from_bytes(hasher.finalize().into()), bytes));
            }
            hasher.update(&buffer[..read]);
            bytes += read as u64;
        }
    }

    /// A reader at the feed's start.
    pub(super) fn reader(&self, profile: &Profile) -> Result<(Format, Box<dyn FeedReader>), IngestError> {
        Ok(open_feed(Box::new(self.open()?), &self.shown, self.extension.as_deref(), profile)?)
    }

    fn open(&self) -> Result<File, InputError> {
        let cannot_open = |source| InputError::CannotOpen { feed: self.shown.clone(), source };
        let file = File::open(&self.path).map_err(cannot_open)?;
        let about = file.metadata().map_err(cannot_open)?;
        if about.is_dir() {
            return Err(cannot_open(std::io::ErrorKind::IsADirectory.into()));
        }
        Ok(file)
    }
}
