//! Decides every claimed record, and hands the batch to all writers.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use super::batch::{ClaimedBatch, DecidedBatch};
use super::error::IngestError;
use super::request::Progress;
use crate::domain::{Claim, RunId, decide};

/// Decides every batch for `run`, in order; gives the room of its claims back to `room`.
pub(super) fn route_all(
    run: &RunId,
    batches: &Receiver<ClaimedBatch>,
    writers: &[SyncSender<Arc<DecidedBatch>>],
    room: &SyncSender<Vec<Claim>>,
    progress: &dyn Progress,
) -> Result<(), IngestError> {
    for batch in batches {
        let (decided, claims) = decide_batch(run, batch, progress);
        // Nobody may want it: then it is freed.
        let _ = room.try_send(claims);
        let decided = Arc::new(decided);
        for writer in writers {
            // A writer that is gone failed, and says why when it is joined.
            writer.send(Arc::clone(&decided)).map_err(|_| IngestError::WriterGone)?;
        }
    }
    Ok(())
}

/// Decides the records of one batch for `run`; the room of its claims comes with them, for the next.
pub(super) fn decide_batch(run: &RunId, claimed: ClaimedBatch, progress: &dyn Progress) -> (DecidedBatch, Vec<Claim>) {
    let ClaimedBatch { batch, outcomes, views } = claimed;
    let pairs = batch.claims.iter().zip(outcomes);
    let decided = pairs.map(|(claim, outcome)| decide(run, claim.row, outcome, |owner| views.view(owner))).collect();
    let mut claims = batch.claims;
    claims.clear();
    progress.advance(batch.bytes, batch.blocks.iter().map(|block| block.records).sum());
    (DecidedBatch { blocks: batch.blocks, decided }, claims)
}
