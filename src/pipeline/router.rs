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
    for ClaimedBatch { batch, outcomes, views } in batches {
        let pairs = batch.claims.iter().zip(outcomes);
        let decided =
            pairs.map(|(claim, outcome)| decide(run, claim.row, outcome, |owner| views.view(owner))).collect();
        let mut claims = batch.claims;
        claims.clear();
        // Nobody may want it: then it is freed.
        let _ = room.try_send(claims);
        progress.advance(batch.bytes, batch.blocks.iter().map(|block| block.records).sum());
        let decided = Arc::new(DecidedBatch { blocks: batch.blocks, decided });
        for writer in writers {
            // A writer that is gone failed, and says why when it is joined.
            writer.send(Arc::clone(&decided)).map_err(|_| IngestError::WriterGone)?;
        }
    }
    Ok(())
}
