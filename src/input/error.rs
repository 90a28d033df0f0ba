//! What makes a feed as a whole unreadable. A bad line is no error but a rejected record.

use std::fmt;
use std::io;

/// Why a feed is of no more use.
#[derive(Debug)]
pub enum InputError {
    /// There is no such file, or it may not be read.
    CannotOpen { feed: String, source: io::Error },
    /// Reading broke off.
    Read { feed: String, offset: u64, source: io::Error },
    /// It is no statement that the profile can read.
    Unreadable { feed: String, line: u64, reason: String, hint: Option<String> },
    /// Its bytes are no longer those that the run was opened with.
    Changed { feed: String },
}

impl InputError {
    /// Line `line` of `feed` goes on beyond the limit of a record.
    pub(super) fn endless(feed: String, line: u64) -> Self {
        Self::Unreadable { feed, line, reason: super::lines::ENDLESS.to_owned(), hint: None }
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CannotOpen { feed, .. } => write!(f, "cannot open `{feed}`"),
            Self::Read { feed, offset, .. } => write!(f, "could not read `{feed}` beyond byte {offset}"),
            Self::Unreadable { feed, line: 0, reason, .. } => write!(f, "{feed}: {reason}"),
            Self::Unreadable { feed, line, reason, .. } => write!(f, "{feed}:{line}: {reason}"),
            Self::Changed { feed } => write!(f, "`{feed}` changed while it was being read"),
        }
    }
}

impl std::error::Error for InputError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::CannotOpen { source, .. } | Self::Read { source, .. } => Some(source),
            Self::Unreadable { .. } | Self::Changed { .. } => None,
        }
    }
}
