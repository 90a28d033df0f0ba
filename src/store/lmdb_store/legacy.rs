//! Claims of stores in the first layout, which knew records by their source hashes alone: by day, then by hash.
//!
//! They cannot be brought into the present layout, which needs the payment that a record is of. So they stay where they
//! are, suppress what they claim, and grow fewer as runs free them or take them over.

use heed::types::Bytes;
use heed::{Database, RwTxn};

use super::ReadTxn;
use super::keys::day_bytes;
use crate::domain::Claim;

/// Bytes of an owner's number.
const NUMBER_LEN: usize = 4;

/// The table of the first layout.
#[derive(Debug, Clone, Copy)]
pub(super) struct LegacyClaims {
    table: Database<Bytes, Bytes>,
}

/// What stands under a source hash: the owner's number and the row; nothing where it cannot be read.
pub(super) type LegacyMarker = Option<(u32, u64)>;

impl LegacyClaims {
    /// The table, if it holds anything.
    pub(super) fn of(table: Database<Bytes, Bytes>, txn: &ReadTxn<'_>) -> heed::Result<Option<Self>> {
        Ok((!table.is_empty(txn)?).then_some(Self { table }))
    }

    /// What stands under the source hash of `claim`, if anything does.
    pub(super) fn get(self, txn: &ReadTxn<'_>, claim: &Claim) -> heed::Result<Option<LegacyMarker>> {
        Ok(self.table.get(txn, &key_of(claim))?.map(decode))
    }

    /// Deletes what stands under the source hash of `claim`.
    pub(super) fn delete(self, txn: &mut RwTxn<'_>, claim: &Claim) -> heed::Result<bool> {
        self.table.delete(txn, &key_of(claim))
    }

    /// Deletes every claim whose owner's number `is_to_go`; says how many there were.
    pub(super) fn delete_all(self, txn: &mut RwTxn<'_>, is_to_go: impl Fn(u32) -> bool) -> heed::Result<u64> {
        let mut keys = Vec::new();
        for entry in self.table.iter(txn)? {
            let (key, value) = entry?;
            if decode(value).is_some_and(|(number, _)| is_to_go(number)) {
                keys.push(key.to_vec());
            }
        }
        keys.iter().try_for_each(|key| self.table.delete(txn, key).map(|_| ()))?;
        Ok(keys.len() as u64)
    }

    /// The numbers of all owners.
    pub(super) fn numbers(self, txn: &ReadTxn<'_>) -> heed::Result<std::collections::BTreeSet<u32>> {
        let mut numbers = std::collections::BTreeSet::new();
        for entry in self.table.iter(txn)? {
            numbers.extend(decode(entry?.1).map(|(number, _)| number));
        }
        Ok(numbers)
    }
}

fn key_of(claim: &Claim) -> Vec<u8> {
    [day_bytes(claim.posted_day).as_slice(), claim.source_hash.as_bytes()].concat()
}

fn decode(value: &[u8]) -> LegacyMarker {
    let (number, row) = value.split_first_chunk::<NUMBER_LEN>()?;
    if row.is_empty() || row.len() > 8 {
        return None;
    }
    Some((u32::from_be_bytes(*number), row.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))))
}
