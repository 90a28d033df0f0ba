//! What travels between the stages.

use crate::domain::{Amount, Claim, ClaimOutcome, Currency, Decided, Money, RejectReason};
use crate::input::{FeedBlock, SkipRule};
use crate::run::Views;

/// A block of a feed on its way to the hashers.
#[derive(Debug)]
pub(super) struct NumberedBlock {
    pub(super) block: FeedBlock,
    /// The number of its first record, from 1.
    pub(super) first_row: u64,
}

/// A block whose records have their hashes; the texts are gone, the bytes are kept.
#[derive(Debug, Default)]
pub(super) struct HashedBlock {
    pub(super) raw: Vec<u8>,
    pub(super) offset: u64,
    pub(super) first_row: u64,
    pub(super) lines: Vec<HashedLine>,
    /// How many of the lines are records, rejected ones included.
    pub(super) records: u64,
    /// The readable money of all its records: control totals are taken before anything is decided.
    pub(super) money: Money,
}

#[derive(Debug)]
pub(super) struct HashedLine {
    pub(super) len: u32,
    pub(super) line_number: u64,
    pub(super) content: HashedContent,
}

#[derive(Debug)]
pub(super) enum HashedContent {
    Record(HashedRecord),
    Rejected(Box<RejectedLine>),
    Skipped(SkipRule),
}

#[derive(Debug)]
pub(super) struct HashedRecord {
    pub(super) claim: Claim,
    pub(super) currency: Currency,
    pub(super) amount: Amount,
}

#[derive(Debug)]
pub(super) struct RejectedLine {
    pub(super) reason: RejectReason,
    /// What the line would have moved, where that much can be read.
    pub(super) money: Option<(Currency, Amount)>,
}

impl HashedContent {
    /// The money of a record, where it is readable.
    pub(super) fn money(&self) -> Option<(Currency, Amount)> {
        match self {
            Self::Record(record) => Some((record.currency, record.amount)),
            Self::Rejected(line) => line.money,
            Self::Skipped(_) => None,
        }
    }
}

/// Blocks whose records are claimed at once.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) blocks: Vec<HashedBlock>,
    /// The claims of their records.
    pub(super) claims: Vec<Claim>,
    pub(super) bytes: u64,
}

/// A batch with the store's answers.
#[derive(Debug)]
pub(super) struct ClaimedBatch {
    pub(super) batch: Batch,
    /// The answers to its claims, in their order.
    pub(super) outcomes: Vec<ClaimOutcome>,
    /// What is known of the runs that own the markers found.
    pub(super) views: Views,
}

/// Blocks on their way to the files.
#[derive(Debug, Default)]
pub(super) struct DecidedBatch {
    pub(super) blocks: Vec<HashedBlock>,
    /// What was decided on their claims, in their order.
    pub(super) decided: Vec<Decided>,
}

impl Batch {
    /// Adds a block and the claims of its records.
    pub(super) fn push(&mut self, block: HashedBlock) {
        self.claims.extend(block.lines.iter().filter_map(|line| match &line.content {
            HashedContent::Record(record) => Some(record.claim),
            HashedContent::Rejected(_) | HashedContent::Skipped(_) => None,
        }));
        self.bytes += block.raw.len() as u64;
        self.blocks.push(block);
    }
}
