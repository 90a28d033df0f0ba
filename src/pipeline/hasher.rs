//! Brings records into their canonical form and hashes them.

use super::batch::{HashedBlock, HashedContent, HashedLine, HashedRecord, NumberedBlock, RejectedLine};
use crate::domain::{Amount, Canonicalizer, ClaimScope, Currency, Field, RawRecord, RejectReason};
use crate::input::{FeedBlock, LineContent, Profile};

/// How records are read and claimed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hashing<'a> {
    pub(super) profile: &'a Profile,
    pub(super) scope: ClaimScope,
    /// One means the calling thread.
    pub(super) threads: usize,
}

/// Hashes the records of a block; a record without a canonical form is rejected.
pub(super) fn hash_block(
    numbered: NumberedBlock,
    canonicalizer: &mut Canonicalizer,
    hashing: Hashing<'_>,
) -> HashedBlock {
    let NumberedBlock { mut block, first_row } = numbered;
    let mut hashed = HashedBlock {
        raw: Vec::new(),
        offset: block.offset,
        first_row,
        lines: Vec::with_capacity(block.lines.len()),
        ..HashedBlock::default()
    };
    for line in std::mem::take(&mut block.lines) {
        let content = match line.content {
            LineContent::Skipped(rule) => HashedContent::Skipped(rule),
            LineContent::Rejected(reason) => {
                HashedContent::Rejected(Box::new(RejectedLine { reason: *reason, money: None }))
            }
            fields @ LineContent::Fields { .. } => {
                hash_record(&block, &fields, first_row + hashed.records, canonicalizer, hashing)
            }
        };
        hashed.records += u64::from(!matches!(content, HashedContent::Skipped(_)));
        if let Some((currency, amount)) = content.money() {
            hashed.money.add(currency, amount);
        }
        hashed.lines.push(HashedLine { len: line.len, line_number: line.line_number, content });
    }
    hashed.raw = block.raw;
    hashed
}

fn hash_record(
    block: &FeedBlock,
    fields: &LineContent,
    row: u64,
    canonicalizer: &mut Canonicalizer,
    hashing: Hashing<'_>,
) -> HashedContent {
    let raw = block.fields(fields).expect("the line has fields");
    match canonicalizer.form(&raw) {
        Ok(form) => HashedContent::Record(HashedRecord {
            claim: form.claim(hashing.scope, row),
            currency: form.currency,
            amount: form.amount,
        }),
        Err(field) => {
            let reason = reject_of(field, hashing.profile);
            HashedContent::Rejected(Box::new(RejectedLine { reason, money: readable_money(&raw) }))
        }
    }
}

/// Why a record has no canonical form, with the column that the profile reads `field` from.
pub(super) fn reject_of(field: Field, profile: &Profile) -> RejectReason {
    RejectReason::of_field(field, profile.column(field).map(str::to_owned), field.complaint())
}

/// What a record without a canonical form would have moved.
fn readable_money(raw: &RawRecord<'_>) -> Option<(Currency, Amount)> {
    Some((Currency::parse(raw.currency.trim())?, Amount::parse(raw.amount.trim())?))
}
