//! From a feed to hashed blocks in the feed's order: one reader, several hashers, one consumer; or one thread for all.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use sha2::{Digest as _, Sha256};

use super::batch::{HashedBlock, NumberedBlock};
use super::error::IngestError;
use super::hasher::{Hashing, hash_block};
use super::threads::step_back;
use crate::domain::{Canonicalizer, Digest};
use crate::input::{FeedBlock, FeedReader, InputError, LineContent};

/// Blocks that wait before and behind all hashers: more than a batch of the store, so that the next one is read and
/// hashed while the store works on the last.
const BLOCKS_WAITING_MAX: usize = 32;

/// Reads `feed` to its end and hands its hashed blocks to `consume`, in order; returns the digest of what was read.
pub(super) fn read_and_hash(
    feed: Box<dyn FeedReader>,
    hashing: Hashing<'_>,
    consume: impl FnMut(HashedBlock) -> Result<(), IngestError>,
) -> Result<Digest, IngestError> {
    let reader = BlockReader::new(feed);
    if hashing.threads <= 1 { hash_here(reader, hashing, consume) } else { hash_on_threads(reader, hashing, consume) }
}

fn hash_here(
    mut reader: BlockReader,
    hashing: Hashing<'_>,
    mut consume: impl FnMut(HashedBlock) -> Result<(), IngestError>,
) -> Result<Digest, IngestError> {
    let mut canonicalizer = Canonicalizer::new(hashing.profile.zone.clone());
    while let Some(block) = reader.next()? {
        consume(hash_block(block, &mut canonicalizer, hashing))?;
    }
    Ok(reader.digest())
}

/// Blocks are dealt to the hashers in turn and collected in turn, so their order needs no sorting.
fn hash_on_threads(
    reader: BlockReader,
    hashing: Hashing<'_>,
    mut consume: impl FnMut(HashedBlock) -> Result<(), IngestError>,
) -> Result<Digest, IngestError> {
    thread::scope(|scope| {
        let mut to_hashers = Vec::new();
        let mut from_hashers = Vec::new();
        let waiting_max = BLOCKS_WAITING_MAX.div_ceil(2 * hashing.threads);
        for _ in 0..hashing.threads {
            let (deal, dealt) = sync_channel(waiting_max);
            let (hand_on, handed_on) = sync_channel(waiting_max);
            scope.spawn(move || run_hasher(&dealt, &hand_on, hashing));
            to_hashers.push(deal);
            from_hashers.push(handed_on);
        }
        let reading = scope.spawn(move || {
            step_back();
            deal_blocks(reader, &to_hashers)
        });
        let consumed = collect(&from_hashers, &mut consume);
        // A reader that still deals finds nobody there and stops.
        drop(from_hashers);
        let read = reading.join().map_err(|_| IngestError::Panicked)?;
        consumed?;
        Ok(read?)
    })
}

fn run_hasher(dealt: &Receiver<NumberedBlock>, hand_on: &SyncSender<HashedBlock>, hashing: Hashing<'_>) {
    step_back();
    let mut canonicalizer = Canonicalizer::new(hashing.profile.zone.clone());
    for block in dealt {
        if hand_on.send(hash_block(block, &mut canonicalizer, hashing)).is_err() {
            // The consumer gave up.
            return;
        }
    }
}

fn deal_blocks(mut reader: BlockReader, to_hashers: &[SyncSender<NumberedBlock>]) -> Result<Digest, InputError> {
    for deal in to_hashers.iter().cycle() {
        let Some(block) = reader.next()? else { break };
        if deal.send(block).is_err() {
            // The consumer gave up; what it says counts.
            break;
        }
    }
    Ok(reader.digest())
}

fn collect(
    from_hashers: &[Receiver<HashedBlock>],
    consume: &mut impl FnMut(HashedBlock) -> Result<(), IngestError>,
) -> Result<(), IngestError> {
    for handed_on in from_hashers.iter().cycle() {
        match handed_on.recv() {
            Ok(block) => consume(block)?,
            // The reader dealt no more.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// Reads a feed block by block, numbers its records, and takes the digest of all it reads.
struct BlockReader {
    feed: Box<dyn FeedReader>,
    hasher: Sha256,
    next_row: u64,
}

impl BlockReader {
    fn new(feed: Box<dyn FeedReader>) -> Self {
        let hasher = Sha256::new_with_prefix(&feed.prologue().raw);
        Self { feed, hasher, next_row: 1 }
    }

    /// The next block; none at the feed's end.
    fn next(&mut self) -> Result<Option<NumberedBlock>, InputError> {
        let mut block = FeedBlock::default();
        if !self.feed.read_block(&mut block)? {
            return Ok(None);
        }
        self.hasher.update(&block.raw);
        let is_record = |content: &LineContent| !matches!(content, LineContent::Skipped(_));
        let records = block.lines.iter().filter(|line| is_record(&line.content)).count() as u64;
        let first_row = self.next_row;
        self.next_row += records;
        Ok(Some(NumberedBlock { block, first_row }))
    }

    /// The digest of everything so far.
    fn digest(self) -> Digest {
        Digest::from_bytes(self.hasher.finalize().into())
    }
}
