//! What can go wrong with an output.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why an output could not be made.
#[derive(Debug)]
pub enum OutputError {
    /// It cannot be created: the folder is missing or closed to us.
    CannotCreate { path: PathBuf, source: io::Error },
    /// Writing, syncing or renaming broke off.
    Write { path: PathBuf, source: io::Error },
    /// Something else stands where it belongs.
    Occupied { path: PathBuf },
}

impl OutputError {
    /// A failure to create `path`; a full disk is one of writing.
    pub(super) fn creating(path: &Path, source: io::Error) -> Self {
        if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return Self::writing(path, source);
        }
        Self::CannotCreate { path: path.to_owned(), source }
    }

    /// A failure to write, sync or rename `path`.
    pub fn writing(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_owned(), source }
    }
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotCreate { path, .. } => write!(f, "cannot create `{}`", path.display()),
            Self::Write { path, .. } => write!(f, "could not write `{}`", path.display()),
            Self::Occupied { path } => write!(f, "`{}` exists and is never overwritten", path.display()),
        }
    }
}

impl std::error::Error for OutputError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::CannotCreate { source, .. } | Self::Write { source, .. } => Some(source),
            Self::Occupied { .. } => None,
        }
    }
}
