//! One process of this machine on one feed at a time.
//!
//! The kernel gives the lock back when its holder dies, so there is never a stale one to break.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::domain::Digest;

/// The lock on a feed, held until it is dropped. The file stays: it is never renamed nor removed.
#[derive(Debug)]
pub struct FeedLock {
    _file: File,
    id: String,
}

/// Why the lock was not had.
#[derive(Debug)]
pub enum FeedLockError {
    /// Another process has it; who, if it said so.
    Held { by: String },
    /// The lock file cannot be made.
    Io { path: PathBuf, source: io::Error },
}

impl fmt::Display for FeedLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { by } => write!(f, "the feed is being ingested already, by {by}"),
            Self::Io { path, .. } => write!(f, "cannot lock `{}`", path.display()),
        }
    }
}

impl std::error::Error for FeedLockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Held { .. } => None,
            Self::Io { source, .. } => Some(source),
        }
    }
}

impl FeedLock {
    /// Takes the lock on the feed of digest `feed` in `folder`, in the name of `holder`.
    pub fn take(folder: &Path, feed: &Digest, holder: &str) -> Result<Self, FeedLockError> {
        let path = folder.join(format!("{feed}.lock"));
        let fail = |source| FeedLockError::Io { path: path.clone(), source };
        std::fs::create_dir_all(folder).map_err(fail)?;
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(&mut file, &path)),
            Err(TryLockError::Error(source)) => return Err(fail(source)),
        }
        let id = id_of(&file).map_err(fail)?;
        // Only for the message of whoever comes second.
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(holder.as_bytes())).map_err(fail)?;
        Ok(Self { _file: file, id })
    }

    /// Which lock it is on this host, however its folder is called: who gets it knows that its last holder is dead.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The lock that `take` would get now, if its file is there and can be read; fails where another process has it.
    ///
    /// Nothing is made or changed.
    pub fn look(folder: &Path, feed: &Digest) -> Result<Option<String>, FeedLockError> {
        let path = folder.join(format!("{feed}.lock"));
        let Ok(mut file) = File::open(&path) else { return Ok(None) };
        match file.try_lock_shared() {
            Ok(()) => Ok(id_of(&file).ok()),
            Err(TryLockError::WouldBlock) => Err(held(&mut file, &path)),
            Err(TryLockError::Error(_)) => Ok(None),
        }
    }
}

/// That another process has the lock `file` at `path`, which says who it is.
fn held(file: &mut File, path: &Path) -> FeedLockError {
    let mut by = String::new();
    match file.read_to_string(&mut by) {
        Ok(0) => FeedLockError::Held { by: "another process".to_owned() },
        Ok(_) => FeedLockError::Held { by },
        Err(source) => FeedLockError::Io { path: path.to_owned(), source },
    }
}

fn id_of(file: &File) -> io::Result<String> {
    let about = file.metadata()?;
    Ok(format!("{}:{}", about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_holder_is_told_who_the_first_is() {
        let folder = tempfile::tempdir().unwrap();
        let feed = Digest::of(b"feed");
        let first = FeedLock::take(folder.path(), &feed, "process 7 on db1").unwrap();
        let second = FeedLock::take(folder.path(), &feed, "process 8 on db1").unwrap_err();
        assert_eq!(second.to_string(), "the feed is being ingested already, by process 7 on db1");
        assert!(FeedLock::take(folder.path(), &Digest::of(b"another"), "process 8 on db1").is_ok());
        let seen = FeedLock::look(folder.path(), &feed).unwrap_err();
        assert_eq!(seen.to_string(), second.to_string(), "who only looks is told the same");
        assert_eq!(FeedLock::look(folder.path(), &Digest::of(b"nobody's")).unwrap(), None);
        let id = first.id().to_owned();
        drop(first);
        assert_eq!(FeedLock::look(folder.path(), &feed).unwrap(), Some(id));
        assert!(FeedLock::take(folder.path(), &feed, "process 8 on db1").is_ok());
    }
}
