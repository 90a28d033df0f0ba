//! The stages behind the decisions: files of records, the audit log, and the thread that pushes them to the disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};

use super::batch::{DecidedBatch, HashedContent, HashedRecord};
use crate::domain::{Basis, Decided, Decision, Money, OutputRecord, RejectReason, RunCounts};
use crate::output::{AuditLog, CheckedRecord, Conflict, DecisionFiles, OutputError};

/// A rejected line, as the operator is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectNote {
    pub line_number: u64,
    pub column: Option<String>,
    pub reason: String,
}

/// A record whose payment stands with another content, as the operator is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictNote {
    pub row: u64,
    pub line_number: u64,
    pub conflict: Conflict,
    /// Where the payment stands.
    pub basis: Basis,
}

/// Most rejected lines that are told of one by one.
const REJECT_NOTES_MAX: usize = 20;

/// Most conflicts that are told of one by one: a feed with more is not of this bank any more.
const CONFLICT_NOTES_MAX: usize = 1_000;

/// What the files of records hold.
#[derive(Debug, Default)]
pub(super) struct RecordTotals {
    pub(super) counts: RunCounts,
    pub(super) money: [Money; 6],
    pub(super) rejects: Vec<RejectNote>,
    pub(super) conflicts: Vec<ConflictNote>,
    pub(super) outputs: Vec<OutputRecord>,
}

/// One line of a decided batch.
struct DecidedLine<'a> {
    row: u64,
    offset: u64,
    line_number: u64,
    bytes: &'a [u8],
    content: &'a HashedContent,
    decided: &'a Decided,
}

/// Calls `act` for every line of `batch`, in the feed's order; skipped lines come with a decision that says nothing.
fn for_each_line<E>(batch: &DecidedBatch, mut act: impl FnMut(DecidedLine<'_>) -> Result<(), E>) -> Result<(), E> {
    let rejected = Decided::on_nothing(Decision::Rejected);
    let mut decided = batch.decided.iter();
    for block in &batch.blocks {
        let (mut start, mut row) = (0, block.first_row);
        for line in &block.lines {
            let end = start + line.len as usize;
            let decided = match &line.content {
                HashedContent::Record(_) => decided.next().expect("every claim is decided"),
                HashedContent::Rejected(_) | HashedContent::Skipped(_) => &rejected,
            };
            act(DecidedLine {
                row,
                offset: block.offset + start as u64,
                line_number: line.line_number,
                bytes: &block.raw[start..end],
                content: &line.content,
                decided,
            })?;
            row += u64::from(!matches!(line.content, HashedContent::Skipped(_)));
            start = end;
        }
    }
    Ok(())
}

/// Counts every record of `batch` and its money under its decision.
pub(super) fn count_batch(batch: &DecidedBatch, totals: &mut RecordTotals) {
    let counted: Result<(), std::convert::Infallible> = for_each_line(batch, |line| {
        count_line(&line, totals);
        Ok(())
    });
    counted.unwrap_or_else(|never| match never {});
}

fn count_line(line: &DecidedLine<'_>, totals: &mut RecordTotals) {
    let reason = match line.content {
        HashedContent::Skipped(_) => return,
        HashedContent::Rejected(rejected) => Some(&rejected.reason),
        HashedContent::Record(record) => {
            note_conflict(line, record, totals);
            None
        }
    };
    let place = line.decided.decision.index();
    totals.counts[place] += 1;
    if let Some((currency, amount)) = line.content.money() {
        totals.money[place].add(currency, amount);
    }
    if let Some(RejectReason { column, reason, .. }) = reason
        && totals.rejects.len() < REJECT_NOTES_MAX
    {
        let note = RejectNote { line_number: line.line_number, column: column.clone(), reason: reason.clone() };
        totals.rejects.push(note);
    }
}

fn note_conflict(line: &DecidedLine<'_>, record: &HashedRecord, totals: &mut RecordTotals) {
    if totals.conflicts.len() == CONFLICT_NOTES_MAX {
        return;
    }
    let Some(conflict) = Conflict::of(line.decided, &record.claim) else { return };
    let basis = line.decided.basis.clone().expect("a conflict rests on an earlier sight");
    totals.conflicts.push(ConflictNote { row: line.row, line_number: line.line_number, conflict, basis });
}

/// Writes records to the files of their decisions.
pub(super) struct RecordWriter {
    files: DecisionFiles,
    totals: RecordTotals,
}

impl RecordWriter {
    pub(super) fn new(files: DecisionFiles) -> Self {
        Self { files, totals: RecordTotals::default() }
    }

    /// Writes the records of one batch.
    pub(super) fn write(&mut self, batch: &DecidedBatch) -> Result<(), OutputError> {
        for_each_line(batch, |line| {
            count_line(&line, &mut self.totals);
            match line.content {
                HashedContent::Skipped(_) => Ok(()),
                HashedContent::Record(_) | HashedContent::Rejected(_) => {
                    self.files.write(line.decided.decision, line.bytes)
                }
            }
        })
    }

    /// Finishes the files; says what they hold.
    pub(super) fn finish(mut self) -> Result<RecordTotals, OutputError> {
        self.totals.outputs = self.files.finish()?;
        Ok(self.totals)
    }
}

/// Writes the records of every batch.
pub(super) fn write_records(
    batches: &Receiver<Arc<DecidedBatch>>,
    mut writer: RecordWriter,
    flusher: &SyncSender<Arc<File>>,
) -> Result<RecordTotals, OutputError> {
    for batch in batches {
        writer.write(&batch)?;
        writer.files.open_files().for_each(|file| push_to_disk(flusher, file.handle()));
    }
    writer.finish()
}

/// Writes the audit log's lines of records.
pub(super) struct AuditWriter {
    pub(super) audit: AuditLog,
    /// How many lines each rule skipped.
    pub(super) skipped: BTreeMap<&'static str, u64>,
}

impl AuditWriter {
    pub(super) fn new(audit: AuditLog) -> Self {
        Self { audit, skipped: BTreeMap::new() }
    }

    /// Writes the lines of one batch.
    pub(super) fn write(&mut self, batch: &DecidedBatch) -> Result<(), OutputError> {
        for_each_line(batch, |line| {
            let (claim, reject_reason) = match line.content {
                HashedContent::Record(record) => (Some(&record.claim), None),
                HashedContent::Rejected(rejected) => (None, Some(&rejected.reason)),
                HashedContent::Skipped(rule) => {
                    *self.skipped.entry(rule.name()).or_default() += 1;
                    return self.audit.skipped(line.line_number, line.offset, line.bytes.len() as u64, rule.name());
                }
            };
            let DecidedLine { row, line_number, decided, .. } = line;
            self.audit.checked(&CheckedRecord { row, line_number, claim, decided, reject_reason })
        })
    }
}

/// Writes the audit log's lines of every batch.
pub(super) fn write_audit(
    batches: &Receiver<Arc<DecidedBatch>>,
    mut writer: AuditWriter,
    flusher: &SyncSender<Arc<File>>,
) -> Result<AuditWriter, OutputError> {
    for batch in batches {
        writer.write(&batch)?;
        push_to_disk(flusher, writer.audit.file().handle());
    }
    Ok(writer)
}

/// Asks the flusher to sync what was written; while it is busy the next batch will ask again.
fn push_to_disk(flusher: &SyncSender<Arc<File>>, file: Arc<File>) {
    match flusher.try_send(file) {
        Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
    }
}

/// Syncs files while they are being written, so that the disk works during the run and not only at its end.
pub(super) fn flush_files(files: &Receiver<Arc<File>>) -> io::Result<()> {
    files.iter().try_for_each(|file| file.sync_data())
}
