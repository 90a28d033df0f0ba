//! A feed on this machine, which is read more than once: it must stay what it was.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::error::IngestError;
use super::pipe::Pipe;
use crate::domain::{Digest, Interrupt};
use crate::input::{FeedReader, Format, InputError, Profile, open_feed};

/// Where the bytes of a feed are.
#[derive(Debug, Clone)]
pub enum FeedBytes {
    /// In a file.
    Path(PathBuf),
    /// In a file without a name, which holds what came through a pipe.
    Spooled(Arc<File>),
    /// In what is no file, to be read once: at a path, or else behind standard input.
    Pipe { path: Option<PathBuf>, interrupt: Interrupt },
}

/// A feed and what it is called.
#[derive(Debug, Clone)]
pub struct FeedFile {
    pub bytes: FeedBytes,
    /// The feed in messages: the path as the operator gave it.
    pub shown: String,
    /// The feed in outputs and records: its file name.
    pub name: String,
    pub extension: Option<String>,
}

/// A feed's digest, and how to see whether it still has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) digest: Digest,
    pub(super) bytes: u64,
    /// Size and time of the last change, which a writer cannot help to touch.
    stamp: Stamp,
}

type Stamp = (u64, i64, i64);

fn stamp_of(about: &Metadata) -> Stamp {
    (about.len(), about.mtime(), about.mtime_nsec())
}

/// Whether `feed` is there and begins as `profile` says, before anything is opened for it.
pub fn check_feed(feed: &FeedFile, profile: &Profile) -> Result<(), IngestError> {
    feed.reader(profile).map(|_| ())
}

impl FeedFile {
    /// Fails once somebody asked for an early end.
    pub(super) fn check_interrupt(&self, interrupt: &Interrupt) -> Result<(), IngestError> {
        let stop = |signal| Err(IngestError::Interrupted { feed: self.shown.clone(), signal });
        interrupt.asked().map_or(Ok(()), stop)
    }

    /// Reads the feed through once.
    pub(super) fn snapshot(&self, interrupt: &Interrupt) -> Result<Snapshot, IngestError> {
        let mut source = self.open()?;
        let stamp = self.stamp()?;
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 256 * 1024];
        let mut bytes = 0;
        loop {
            self.check_interrupt(interrupt)?;
            let read = match source.read(&mut buffer) {
                // A read that a signal breaks off is made again.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(|source| InputError::Read { feed: self.shown.clone(), offset: bytes, source })?,
            };
            if read == 0 {
                let digest = Digest::from_bytes(hasher.finalize().into());
                return Ok(Snapshot { digest, bytes, stamp });
            }
            hasher.update(&buffer[..read]);
            bytes += read as u64;
        }
    }

    /// Fails unless the feed is what it was, whose lines, read again, had the digest `read_again`.
    pub(super) fn check_unchanged(&self, snapshot: &Snapshot, read_again: &Digest) -> Result<(), IngestError> {
        if snapshot.digest == *read_again && self.stamp()? == snapshot.stamp {
            return Ok(());
        }
        Err(InputError::Changed { feed: self.shown.clone() }.into())
    }

    /// A reader at the feed's start.
    pub(super) fn reader(&self, profile: &Profile) -> Result<(Format, Box<dyn FeedReader>), IngestError> {
        Ok(open_feed(self.open()?, &self.shown, self.extension.as_deref(), profile)?)
    }

    fn stamp(&self) -> Result<Stamp, InputError> {
        let about = match &self.bytes {
            FeedBytes::Path(path) => path.metadata(),
            FeedBytes::Spooled(file) => file.metadata(),
            FeedBytes::Pipe { .. } => return Ok((0, 0, 0)),
        };
        about.map(|about| stamp_of(&about)).map_err(|source| self.cannot_open(source))
    }

    fn open(&self) -> Result<Box<dyn Read + Send>, InputError> {
        let path = match &self.bytes {
            FeedBytes::Path(path) => path,
            FeedBytes::Spooled(file) => return Ok(Box::new(Spool { file: Arc::clone(file), at: 0 })),
            FeedBytes::Pipe { path, interrupt } => {
                let pipe = Pipe::open(path.as_deref(), interrupt).map_err(|source| self.cannot_open(source))?;
                return Ok(Box::new(pipe));
            }
        };
        let file = File::open(path).map_err(|source| self.cannot_open(source))?;
        let about = file.metadata().map_err(|source| self.cannot_open(source))?;
        if about.is_dir() {
            return Err(self.cannot_open(io::ErrorKind::IsADirectory.into()));
        }
        Ok(Box::new(file))
    }

    fn cannot_open(&self, source: io::Error) -> InputError {
        InputError::CannotOpen { feed: self.shown.clone(), source }
    }
}

/// A reader with a place of its own in a shared file.
struct Spool {
    file: Arc<File>,
    at: u64,
}

impl Read for Spool {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
