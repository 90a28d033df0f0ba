//! A bid for a record, and the store's answer.

use std::sync::Arc;

use super::{Content, FieldChecks, IdentityHash, PostedDay, RunId, SourceHash};

/// A record's bid for its source hash, and for being the one content of its payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Claim {
    pub source_hash: SourceHash,
    /// The payment: account and bank id.
    pub identity: IdentityHash,
    pub checks: FieldChecks,
    pub scope: ClaimScope,
    /// Orders the embedded store: the months of a feed are its working set.
    pub posted_day: PostedDay,
    /// The record's number in its feed, from 1.
    pub row: u64,
}

impl Claim {
    /// What a store keeps of the content.
    pub fn content(&self) -> Content {
        Content::new(&self.source_hash, self.checks)
    }
}

/// What a claim is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClaimScope {
    /// The payment: refused where another content of it stands.
    Payment,
    /// The content alone, whatever else stands of the payment.
    Content,
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

/// What stands in the store for a claimed record.
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
    /// The content that was found, where it is another one than the claim's.
    pub differing: Option<Content>,
    /// The owner from now on.
    pub owner: Arc<Owner>,
}

/// The content that stands for a payment where another one is claimed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Original {
    pub marker: Marker,
    pub content: Content,
}

/// The store's answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClaimOutcome {
    /// Nobody had claimed the record; the marker is ours now.
    Novel,
    /// The marker that stood there, and still stands. It may be our own.
    Found(Marker),
    /// Another content stands for the payment. The source hash may be ours now, and is to be released then.
    Differs(Box<Original>),
}

impl ClaimOutcome {
    /// The marker that was found, of whatever content.
    pub fn marker(&self) -> Option<&Marker> {
        match self {
            Self::Novel => None,
            Self::Found(marker) => Some(marker),
            Self::Differs(original) => Some(&original.marker),
        }
    }

    /// The run's marker that was found, of whatever content: its owner and its row.
    pub fn run_marker(&self) -> Option<(&Arc<Owner>, u64)> {
        match self.marker()? {
            Marker::Run { owner, row } => Some((owner, *row)),
            Marker::OtherWriter(_) | Marker::Unreadable => None,
        }
    }
}
