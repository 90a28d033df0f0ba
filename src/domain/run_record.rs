//! What a store remembers of a run.

use super::{Digest, Lineage, Owner, RunId};

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RunState {
    /// Claims are provisional; nothing is published.
    Open,
    /// Outputs are complete and hashed; nothing is renamed yet.
    Sealed,
    /// The renames have begun, on one host, in one folder.
    Publishing,
    /// The outputs stand under their names.
    Published,
    /// Barred from sealing, by another run or by a gate of its own.
    Fenced,
    /// Taken back by the operator.
    Reverted,
}

impl RunState {
    /// Every state, in the order of a run's life.
    pub const ALL: [Self; 6] =
        [Self::Open, Self::Sealed, Self::Publishing, Self::Published, Self::Fenced, Self::Reverted];

    /// The state's spelling in stores and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Sealed => "SEALED",
            Self::Publishing => "PUBLISHING",
            Self::Published => "PUBLISHED",
            Self::Fenced => "FENCED",
            Self::Reverted => "REVERTED",
        }
    }

    /// The state spelled `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// An output file of a sealed run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OutputRecord {
    /// File name within the run's folder.
    pub name: String,
    pub bytes: u64,
    pub sha256: Digest,
}

/// Records by what became of them, in the order of `Decision::ALL`.
pub type RunCounts = [u64; 6];

/// A run as its store remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunRecord {
    pub run: RunId,
    pub state: RunState,
    /// Which attempt, from 1; a restart is a new one.
    pub epoch: u32,
    /// Which run over this feed, from 1; once published, ingesting the feed again is the next.
    pub pass: u32,
    /// SHA-256 of the feed's bytes.
    pub feed_digest: Digest,
    /// The feed's file name, for people.
    pub feed_name: String,
    /// SHA-256 over all settings that change what the feed's lines mean.
    pub meaning: Digest,
    /// When this attempt was opened, an ISO 8601 instant; display data.
    pub opened_at: String,
    pub host: String,
    pub pid: u32,
    /// The kernel lock that the worker holds, as its host numbers files: who gets it knows that the worker is dead.
    pub lock: String,
    /// Which history the store's data had when the attempt began.
    pub lineage: Lineage,
    /// The absolute folder of the outputs.
    pub folder: String,
    /// The stem that all output names start with, number included: `july` or `july.2`.
    pub stem: String,
    /// The published runs because of which records of this run are suppressed; empty before the feed was read.
    pub suppressed_against: Vec<RunId>,
    /// Records by decision; zero before the seal.
    pub counts: RunCounts,
    /// The outputs with their digests; empty before the seal.
    pub outputs: Vec<OutputRecord>,
    /// The last link of the audit log's chain; none before the seal.
    pub audit_chain: Option<Digest>,
}

impl RunRecord {
    /// Whether the attempt `epoch` may still bring the run to its end: then its lease is its own to renew.
    pub fn is_alive_in(&self, epoch: u32) -> bool {
        self.epoch == epoch && !matches!(self.state, RunState::Fenced | RunState::Reverted)
    }

    /// The owner of the claims that this attempt makes.
    pub fn owner(&self) -> Owner {
        Owner { run: self.run.clone(), epoch: self.epoch, seen_at: self.opened_at.clone() }
    }

    /// The first attempt at `run`, in `state` and with as little as can be, for tests to vary.
    #[cfg(test)]
    pub(crate) fn sample(run: &str, state: RunState) -> Self {
        Self {
            run: RunId::parse(run).unwrap(),
            state,
            epoch: 1,
            pass: 1,
            feed_digest: Digest::of(b"feed"),
            feed_name: format!("{run}.csv"),
            meaning: Digest::of(b""),
            opened_at: String::new(),
            host: "db1".into(),
            pid: 1,
            lock: "1:2".into(),
            lineage: Lineage::default(),
            folder: "/out".into(),
            stem: run.into(),
            suppressed_against: Vec::new(),
            counts: [0; 6],
            outputs: Vec::new(),
            audit_chain: None,
        }
    }
}
