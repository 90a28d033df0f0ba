//! What the run protocol asks of the world around the store: the feed, the files, the journal.

use std::fmt;

use serde_json::Value;

use super::claimer::Settled;
use super::restart::StartRefusal;
use crate::domain::{Claim, Digest, OutputRecord, RunCounts, RunId, RunRecord};

/// Where the outputs of a run go: an absolute folder, and what all their names start with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    pub folder: String,
    pub stem: String,
}

/// The outputs of an attempt that has decided every record, complete and synced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completed {
    pub counts: RunCounts,
    /// In the order in which they are to appear.
    pub outputs: Vec<OutputRecord>,
    pub audit_chain: Digest,
}

/// Why the protocol itself stops a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProtocolStop {
    /// It may not start.
    Refused(StartRefusal),
    /// Another worker changed the run's record.
    Overtaken { run: RunId },
    /// Somebody took the sealed run back. Some of its `files` may have their names, if it was being published.
    TakenBack { run: RunId, files: Option<Names> },
    /// Somebody else ended the publishing of the run.
    Ended { run: RunId },
    /// The record of a run that has claims is gone from the store.
    RecordGone { run: RunId },
    /// The store lost its history, or the runs that hold records kept changing, as often as is borne.
    Unsettled { run: RunId },
    /// An output neither stands under its name nor waits for it, as it was sealed.
    Stuck { run: RunId, output: String },
}

impl fmt::Display for ProtocolStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Overtaken { run } => write!(f, "another worker has taken run `{run}` over"),
            Self::TakenBack { run, files: Some(_) } => {
                write!(f, "run `{run}` was taken back in the middle of its publishing")
            }
            Self::TakenBack { run, files: None } => write!(f, "run `{run}` was taken back before it was published"),
            Self::Ended { run } => write!(f, "another worker has ended the publishing of run `{run}`"),
            Self::RecordGone { run } => {
                write!(f, "the store has forgotten run `{run}`, which is the latest over this feed")
            }
            Self::Unsettled { run } => {
                write!(f, "could not settle run `{run}`: what it rests on in the store kept changing")
            }
            Self::Stuck { run, output } => write!(
                f,
                "run `{run}` died while publishing, and its `{output}` neither stands nor waits as it was sealed"
            ),
        }
    }
}

/// Claims a batch for the run; what comes back is settled.
pub type ClaimBatch<'a, E> = dyn FnMut(&[Claim]) -> Result<Settled, E> + 'a;

/// Takes some claims of a feed.
pub type TakeClaims<'a, E> = dyn FnMut(&[Claim]) -> Result<(), E> + 'a;

/// A feed to be run, and the place where its outputs go.
pub trait Work {
    type Error: From<ProtocolStop>;

    /// Names for the outputs that no file bears, or those that an earlier attempt has `left`.
    fn names(&mut self, left: Option<&RunRecord>) -> Result<Names, Self::Error>;

    /// Begins the attempt `record`, which is ours; false if another run took its names in the meantime.
    fn begin(&mut self, record: &RunRecord) -> Result<bool, Self::Error>;

    /// Goes on with `record`, which an earlier attempt left between its renames; keeps its lease from now on.
    fn resume(&mut self, record: &RunRecord) -> Result<(), Self::Error>;

    /// Goes once over the feed, in its order: claims every record by `claim` and writes what is decided to temporaries.
    ///
    /// May be called again for the same attempt; then what the last call wrote is of no use.
    fn decide(&mut self, record: &RunRecord, claim: &mut ClaimBatch<'_, Self::Error>) -> Result<(), Self::Error>;

    /// Checks the gates, writes what is left and waits until the disk has all of it, names of temporaries included.
    fn complete(&mut self, record: &RunRecord) -> Result<Completed, Self::Error>;

    /// Fails unless every output of `record` is waiting to be renamed.
    fn check_waiting(&mut self, record: &RunRecord) -> Result<(), Self::Error>;

    /// Whether the temporary that an earlier attempt left of `output` is there, byte for byte as it was sealed.
    fn is_waiting(&mut self, record: &RunRecord, output: &OutputRecord) -> Result<bool, Self::Error>;

    /// Whether `output` stands under its name, byte for byte as it was sealed.
    fn is_standing(&mut self, record: &RunRecord, output: &OutputRecord) -> Result<bool, Self::Error>;

    /// Gives `output` its name; never replaces another file.
    fn rename(&mut self, record: &RunRecord, output: &OutputRecord) -> Result<(), Self::Error>;

    /// Waits until the disk knows all names.
    fn sync_names(&mut self, record: &RunRecord) -> Result<(), Self::Error>;

    /// Writes `event` into the journal.
    fn note(&mut self, event: &str, fields: Value) -> Result<(), Self::Error>;

    /// Whether the journal says that every output of `record` had its name: since then they may have been taken away.
    fn were_published(&mut self, record: &RunRecord) -> Result<bool, Self::Error>;

    /// All claims of the feed, read once more.
    fn all_claims(&mut self, take: &mut TakeClaims<'_, Self::Error>) -> Result<(), Self::Error>;

    /// Leaves the attempt `record` because of `error`: its temporaries go, and nobody renews its lease any more.
    fn abandon(&mut self, record: &RunRecord, error: &Self::Error);

    /// Renews the lease no more. What is sealed stays as it is.
    fn let_lease_go(&mut self);

    /// Whether `error` is the feed's own fault: repeating the command would not help, so its claims must not stay.
    fn is_of_the_feed(&self, error: &Self::Error) -> bool;

    /// Whether `error` says that the store cannot be asked any more.
    fn is_of_the_store(&self, error: &Self::Error) -> bool;

    /// `error` as it is told of a run that is sealed: what stands is not what stands before.
    fn unfinished(error: Self::Error) -> Self::Error;
}
