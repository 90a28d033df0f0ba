//! A bid for a source hash, and the store's answer.

use std::sync::Arc;

use super::{PostedDay, RunId, SourceHash};

/// A record's bid for its source hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    pub source_hash: SourceHash,
    /// Orders the embedded store: the months of a feed are its working set.
    pub posted_day: PostedDay,
    /// The record's number in its feed, from 1.
    pub row: u64,
}

/// On whose behalf claims are made: what a marker says apart from the row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    pub run: RunId,
    /// Which attempt at the run, from 1.
    pub epoch: u32,
    /// When the attempt was opened, an ISO 8601 instant; display data.
    pub seen_at: String,
}

/// The owner under which a call makes its claims.
pub type Bid = Arc<Owner>;

/// What stands in the store under a claimed source hash.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Marker {
    /// One of ours, from this run or another.
    Run { owner: Arc<Owner>, row: u64 },
    /// Another writer that shares the store: its trace and its time, final.
    OtherWriter(Arc<(String, String)>),
    /// Nothing that this version can read: who claimed the hash is unknown.
    Unreadable,
}

/// A claim that passes to another owner: from a dead attempt to its run's present epoch, or from a run that was barred
/// from publishing to one that has the same record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Adoption {
    pub claim: Claim,
    /// The marker that was found: its owner and its row.
    pub found: (Arc<Owner>, u64),
    /// The owner from now on; within a run the time of the first sight stays.
    pub owner: Arc<Owner>,
}

/// The store's answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClaimOutcome {
    /// Nobody had claimed the hash; the marker is ours now.
    Novel,
    /// The marker that stood there, and still stands. It may be our own.
    Found(Marker),
}
