//! What a store can do instead of answering.

use std::fmt;

use crate::domain::InterruptSignal;

/// Why a store did not do what it was asked.
///
/// The variants follow what the operator has to do, because exit codes and hints branch on them.
#[derive(Debug)]
pub enum StoreError {
    /// No connection, a lost one, or no answer in time. What was asked may have been done.
    Unreachable { address: String, cause: String },
    /// The same, and a signal ended the wait for another attempt.
    Interrupted { address: String, cause: String, signal: InterruptSignal },
    /// It answers, but cannot take claims now: full, loading, read-only.
    Busy { address: String, cause: String },
    /// It does not let us in.
    Denied { address: String, cause: String },
    /// It is set up so that it would lose claims, or cannot do what is needed.
    Unfit { address: String, cause: String, hint: String },
    /// There is none, and none may be created.
    Missing { address: String },
    /// It is not the store that was used before, or no longer.
    Forgotten { address: String, cause: String },
    /// It was written under another version or layout.
    OtherVersion { address: String, found: String, expected: String },
    /// What stands in it cannot be read.
    Corrupt { address: String, cause: String },
    /// The disk under an embedded store.
    Io { path: String, source: std::io::Error },
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { address, .. } => write!(f, "no answer from the store at `{address}`"),
            Self::Interrupted { address, signal, .. } => {
                write!(f, "interrupted by {signal} while waiting for the store at `{address}`")
            }
            Self::Busy { address, .. } => write!(f, "the store at `{address}` takes no claims now"),
            Self::Denied { address, .. } => write!(f, "the store at `{address}` refused access"),
            Self::Unfit { address, .. } => write!(f, "the store at `{address}` cannot be trusted with claims"),
            Self::Missing { address } => write!(f, "there is no store at `{address}`, and `create_store` is false"),
            Self::Forgotten { address, .. } => write!(f, "the store at `{address}` has forgotten its claims"),
            Self::OtherVersion { address, found, expected } => {
                write!(f, "the store at `{address}` was written as {found}, and this program writes {expected}")
            }
            Self::Corrupt { address, .. } => write!(f, "the store at `{address}` holds what cannot be read"),
            Self::Io { path, .. } => write!(f, "could not use the store at `{path}`"),
        }
    }
}

impl StoreError {
    /// The cause behind the error, as one line.
    pub fn cause(&self) -> Option<String> {
        match self {
            Self::Unreachable { cause, .. }
            | Self::Interrupted { cause, .. }
            | Self::Busy { cause, .. }
            | Self::Denied { cause, .. }
            | Self::Unfit { cause, .. }
            | Self::Forgotten { cause, .. }
            | Self::Corrupt { cause, .. } => Some(cause.clone()),
            Self::Io { source, .. } => Some(source.to_string()),
            Self::Missing { .. } | Self::OtherVersion { .. } => None,
        }
    }
}

impl std::error::Error for StoreError {}
