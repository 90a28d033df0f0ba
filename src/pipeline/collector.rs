//! Gathers hashed blocks into batches, and counts what comes in before anything is decided.

use super::batch::{Batch, HashedBlock};
use super::error::IngestError;
use super::hasher::Hashing;
use super::stages::read_and_hash;
use crate::domain::{Claim, Digest, Money};
use crate::input::FeedReader;

/// Bytes of a feed in one batch, whatever the number of its records: this bounds memory.
const BATCH_BYTES_MAX: u64 = 12 * 1024 * 1024;

/// What came in.
#[derive(Debug)]
pub(super) struct Collected {
    /// The digest of what was read.
    pub(super) digest: Digest,
    pub(super) records: u64,
    pub(super) money: Money,
}

/// Makes batches of blocks.
pub(super) struct Collector<F> {
    batch: Batch,
    records: u64,
    money: Money,
    claims_max: usize,
    /// Takes a batch; gives the room of one that is done: fresh memory costs a page fault for every 4 KiB.
    hand_on: F,
}

impl<F: FnMut(Batch) -> Result<Vec<Claim>, IngestError>> Collector<F> {
    /// A collector of batches of at most `claims_max` claims, where no single block has more.
    pub(super) fn new(claims_max: usize, hand_on: F) -> Self {
        Self { batch: Batch::default(), records: 0, money: Money::default(), claims_max, hand_on }
    }

    /// Reads `feed` to its end and hands all of it on.
    pub(super) fn collect(mut self, feed: Box<dyn FeedReader>, hashing: Hashing<'_>) -> Result<Collected, IngestError> {
        let digest = read_and_hash(feed, hashing, |block| self.push(block))?;
        self.hand_on()?;
        Ok(Collected { digest, records: self.records, money: self.money })
    }

    fn push(&mut self, block: HashedBlock) -> Result<(), IngestError> {
        self.records += block.records;
        self.money.add_all(&block.money);
        let claims = self.batch.claims.len() + block.lines.len();
        let bytes = self.batch.bytes + block.raw.len() as u64;
        if claims > self.claims_max || bytes > BATCH_BYTES_MAX {
            self.hand_on()?;
        }
        self.batch.push(block);
        Ok(())
    }

    fn hand_on(&mut self) -> Result<(), IngestError> {
        if self.batch.blocks.is_empty() {
            return Ok(());
        }
        self.batch.claims = (self.hand_on)(std::mem::take(&mut self.batch))?;
        Ok(())
    }
}
