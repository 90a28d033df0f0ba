//! A stretch of a feed: its bytes, and the lines that tile them.

use crate::domain::{Field, RawRecord, RejectReason};

/// How long a line usually is, in bytes; only memory is laid out by it.
const LINE_BYTES_USUAL: usize = 64;

/// Why a line is no record and needs no decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipRule {
    ByteOrderMark,
    Header,
    Blank,
}

impl SkipRule {
    /// The rule's name in the audit log.
    pub fn name(self) -> &'static str {
        match self {
            Self::ByteOrderMark => "byte_order_mark",
            Self::Header => "header",
            Self::Blank => "blank",
        }
    }
}

/// What stands on a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineContent {
    /// Five fields: where each ends in the block's text, the first beginning at `start`.
    Fields { start: u32, ends: [u32; 5] },
    /// Not a record.
    Rejected(Box<RejectReason>),
    /// Nothing to decide.
    Skipped(SkipRule),
}

/// A line of a feed, over more than one physical line where a quoted text is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedLine {
    /// Length in bytes, line end included.
    pub len: u32,
    /// The physical line that it starts on, from 1.
    pub line_number: u64,
    pub content: LineContent,
}

/// A stretch of a feed: whole lines, in order, without a gap.
#[derive(Debug, Clone, Default)]
pub struct FeedBlock {
    /// The bytes as they came.
    pub raw: Vec<u8>,
    /// Where `raw` starts in the feed.
    pub offset: u64,
    /// The lines that tile `raw`.
    pub lines: Vec<FeedLine>,
    text: String,
}

impl FeedBlock {
    /// Empties the block for a stretch that starts at `offset`, with room for `bytes` and for short lines of them.
    pub(super) fn restart(&mut self, offset: u64, bytes: usize) {
        self.raw.clear();
        self.raw.reserve(bytes);
        self.lines.clear();
        self.lines.reserve(bytes / LINE_BYTES_USUAL);
        self.text.clear();
        self.text.reserve(bytes);
        self.offset = offset;
    }

    /// Adds the line of `fields`, in the order of `Field::ALL`.
    pub(super) fn push_record<'a>(&mut self, len: usize, line_number: u64, fields: impl Iterator<Item = &'a str>) {
        let start = self.text_len();
        let mut ends = [start; 5];
        for (end, field) in ends.iter_mut().zip(fields) {
            self.text.push_str(field);
            *end = u32::try_from(self.text.len()).expect("the text of a block is not longer than a feed's block");
        }
        self.push(len, line_number, LineContent::Fields { start, ends });
    }

    pub(super) fn push_rejected(&mut self, len: usize, line_number: u64, reason: RejectReason) {
        self.push(len, line_number, LineContent::Rejected(Box::new(reason)));
    }

    pub(super) fn push_skipped(&mut self, len: usize, line_number: u64, rule: SkipRule) {
        self.push(len, line_number, LineContent::Skipped(rule));
    }

    fn push(&mut self, len: usize, line_number: u64, content: LineContent) {
        let len = u32::try_from(len).expect("a line is not longer than RECORD_BYTES_MAX");
        self.lines.push(FeedLine { len, line_number, content });
    }

    fn text_len(&self) -> u32 {
        u32::try_from(self.text.len()).expect("the text of a block is not longer than a feed's block")
    }

    /// The fields of a line of this block, where it has them.
    pub fn fields(&self, content: &LineContent) -> Option<RawRecord<'_>> {
        let LineContent::Fields { start, ends } = content else { return None };
        let mut from = *start as usize;
        let mut next = |field: Field| {
            let to = ends[field as usize] as usize;
            let text = &self.text[from..to];
            from = to;
            text
        };
        Some(RawRecord {
            account_id: next(Field::AccountId),
            bank_txn_id: next(Field::BankTxnId),
            amount: next(Field::Amount),
            currency: next(Field::Currency),
            posted_at: next(Field::PostedAt),
        })
    }
}
