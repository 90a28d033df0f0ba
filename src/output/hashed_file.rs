//! A temporary that is hashed while it is written.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::OutputError;
use super::names::Attempt;
use crate::domain::{Digest, OutputRecord};

/// Bytes gathered before they are hashed and written.
const BUFFER_BYTES: usize = 256 * 1024;

/// A file on its way to `target`, written beside it.
#[derive(Debug)]
pub struct HashedFile {
    target: PathBuf,
    file: Arc<File>,
    buffer: Vec<u8>,
    hasher: Sha256,
    /// Bytes written, those in the buffer left out.
    written: u64,
}

impl HashedFile {
    /// Creates the temporary of `attempt` for `target`.
    pub fn create(target: &Path, attempt: &Attempt) -> Result<Self, OutputError> {
        let temporary = attempt.temporary_of(target);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
            .map_err(|source| OutputError::creating(target, source))?;
        Ok(Self {
            target: target.to_owned(),
            file: Arc::new(file),
            buffer: Vec::with_capacity(BUFFER_BYTES + BUFFER_BYTES / 4),
            hasher: Sha256::new(),
            written: 0,
        })
    }

    /// The buffer to append to; `flush_if_full` must follow.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Hands a full buffer on.
    pub(super) fn flush_if_full(&mut self) -> Result<(), OutputError> {
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Appends `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), OutputError> {
        self.buffer.extend_from_slice(bytes);
        self.flush_if_full()
    }

    fn flush(&mut self) -> Result<(), OutputError> {
        self.hasher.update(&self.buffer);
        (&*self.file).write_all(&self.buffer).map_err(|source| OutputError::writing(&self.target, source))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// SHA-256 of everything so far.
    pub(super) fn digest_so_far(&mut self) -> Digest {
        let mut hasher = self.hasher.clone();
        hasher.update(&self.buffer);
        Digest::from_bytes(hasher.finalize().into())
    }

    /// The open file, so that a thread of its own can push written bytes to the disk early.
    pub fn handle(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Writes the rest and waits until the disk has all of it.
    pub fn finish(mut self) -> Result<OutputRecord, OutputError> {
        self.flush()?;
        self.file.sync_all().map_err(|source| OutputError::writing(&self.target, source))?;
        let name = self.target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(OutputRecord { name, bytes: self.written, sha256: Digest::from_bytes(self.hasher.finalize().into()) })
    }
}
