//! Who may write: the processes that use a store queue at a lock of the kernel before they come to those of LMDB.
//!
//! LMDB's own lock for writers lives in memory that the processes share. Where several wait for it and one that was
//! just woken is killed, the others may sleep for ever; and who opens a store while another is killed setting up
//! `lock.mdb` finds it half made. The kernel gives back a file's lock whenever its holder dies, and only after
//! LMDB's: with this lock held, LMDB's own for writers is free, or its owner is known to be dead.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use heed::{Env, RwTxn, WithoutTls};

use super::display;
use super::failure::told;
use crate::store::StoreError;

/// The file in the store's folder whose lock it is. It stays empty, and stays: one made anew would be another lock.
const FILE_NAME: &str = "writer.lock";

/// The lock, held until this is dropped.
///
/// Opened anew each time, so that it keeps apart the threads of a process too, and closing is what gives it back,
/// which cannot fail.
pub(super) struct WriterLock {
    _file: File,
}

impl WriterLock {
    /// Waits until nobody else writes to the store in `folder`, or opens it.
    pub(super) fn take(folder: &Path) -> Result<Self, StoreError> {
        // As LMDB makes its files: who may not use the store may not hold it up either.
        Self::hold(folder, OpenOptions::new().append(true).create(true).mode(0o600))
    }

    /// The same for who only reads, and so may make no file; none if there is no such file, or none to be opened.
    pub(super) fn take_existing(folder: &Path) -> Result<Option<Self>, StoreError> {
        match Self::hold(folder, OpenOptions::new().read(true)) {
            Err(StoreError::Io { source, .. })
                if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) =>
            {
                Ok(None)
            }
            held => held.map(Some),
        }
    }

    fn hold(folder: &Path, options: &OpenOptions) -> Result<Self, StoreError> {
        let path = folder.join(FILE_NAME);
        let held = options.open(&path).and_then(|file| wait_for(&file).map(|()| Self { _file: file }));
        held.map_err(|source| StoreError::Io { path: display(&path), source })
    }
}

fn wait_for(file: &File) -> io::Result<()> {
    loop {
        match file.lock() {
            // A signal is no failure.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// A transaction that writes, and the lock under which it does. Dropped, it has changed nothing.
pub(super) struct WriteTxn<'e> {
    // Before the lock, because fields are dropped in their order.
    txn: RwTxn<'e>,
    _lock: WriterLock,
}

impl<'e> WriteTxn<'e> {
    /// Begins to write to `env`, the store in `folder`. Who holds the lock already would wait for itself.
    pub(super) fn begin(env: &'e Env<WithoutTls>, folder: &Path) -> Result<Self, StoreError> {
        let lock = WriterLock::take(folder)?;
        let txn = env.write_txn().map_err(|error| told(folder, error))?;
        Ok(Self { txn, _lock: lock })
    }

    pub(super) fn commit(self) -> heed::Result<()> {
        self.txn.commit()
    }
}

impl<'e> Deref for WriteTxn<'e> {
    type Target = RwTxn<'e>;

    fn deref(&self) -> &Self::Target {
        &self.txn
    }
}

impl DerefMut for WriteTxn<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.txn
    }
}

#[cfg(test)]
mod tests {
    use std::fs::TryLockError;

    use super::*;

    #[test]
    fn the_lock_is_held_as_long_as_its_guard_lives() {
        let folder = tempfile::tempdir().unwrap();
        let held = WriterLock::take(folder.path()).unwrap();
        let other = File::open(folder.path().join(FILE_NAME)).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(held);
        other.try_lock().unwrap();
    }

    #[test]
    fn who_only_reads_takes_the_lock_that_is_there_and_makes_none() {
        let folder = tempfile::tempdir().unwrap();
        assert!(WriterLock::take_existing(folder.path()).unwrap().is_none());
        assert!(!folder.path().join(FILE_NAME).exists());
        drop(WriterLock::take(folder.path()).unwrap());
        let held = WriterLock::take_existing(folder.path()).unwrap();
        let other = File::open(folder.path().join(FILE_NAME)).unwrap();
        assert!(held.is_some() && matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
    }
}
