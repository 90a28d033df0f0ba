//! What ends a run before it is published.

use std::fmt;

use super::writers::{ConflictNote, RejectNote};
use crate::domain::InterruptSignal;
use crate::input::InputError;
use crate::output::OutputError;
use crate::run::{FeedLockError, GateFailure, JournalError, ProtocolStop};
use crate::store::StoreError;

/// A gate that does not hold.
#[derive(Debug)]
pub struct GateStop {
    /// The feed as the operator gave it.
    pub feed: String,
    pub failure: GateFailure,
    /// The first of the rejected lines, where they are why.
    pub first_reject: Option<RejectNote>,
    /// The first of the conflicts, where they are why.
    pub first_conflict: Option<ConflictNote>,
}

/// Why a run stopped.
#[derive(Debug)]
pub enum IngestError {
    Input(InputError),
    Output(OutputError),
    Store(StoreError),
    Journal(JournalError),
    Lock(FeedLockError),
    /// The rules of runs stop it.
    Protocol(ProtocolStop),
    Gate(Box<GateStop>),
    /// A signal asked for an early end while this feed was worked on.
    Interrupted {
        feed: String,
        signal: InterruptSignal,
    },
    /// The run is sealed, and its publishing broke off: some of its files may stand already.
    Unfinished(Box<IngestError>),
    /// Records or money in are not the sum over the decisions: a bug.
    ControlTotals,
    /// A stage of the pipeline panicked: a bug.
    Panicked,
    /// A writer went away; why is told by the writer.
    WriterGone,
}

macro_rules! from {
    ($($variant:ident: $error:ty),+) => {
        $(impl From<$error> for IngestError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })+
    };
}

from!(Input: InputError, Output: OutputError, Store: StoreError, Journal: JournalError, Lock: FeedLockError,
    Protocol: ProtocolStop);

impl fmt::Display for IngestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(error) => error.fmt(f),
            Self::Output(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Journal(error) => error.fmt(f),
            Self::Lock(error) => error.fmt(f),
            Self::Protocol(stop) => stop.fmt(f),
            Self::Gate(stop) => write!(f, "{}: {}", stop.feed, stop.failure),
            Self::Interrupted { feed, signal } => write!(f, "interrupted by {signal} in the middle of `{feed}`"),
            Self::Unfinished(error) => error.fmt(f),
            Self::ControlTotals => write!(f, "records or money in are not the sum over the decisions"),
            Self::Panicked | Self::WriterGone => write!(f, "a part of the program failed"),
        }
    }
}

impl std::error::Error for IngestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Input(error) => error.source(),
            Self::Output(error) => error.source(),
            Self::Store(error) => error.source(),
            Self::Journal(error) => error.source(),
            Self::Lock(error) => error.source(),
            Self::Unfinished(error) => error.source(),
            Self::Protocol(_)
            | Self::Gate(_)
            | Self::Interrupted { .. }
            | Self::ControlTotals
            | Self::Panicked
            | Self::WriterGone => None,
        }
    }
}
