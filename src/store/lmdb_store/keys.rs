//! What claims stand under and what stands there, byte for byte; and the order that the table likes.

use crate::domain::{Claim, PostedDay, SourceHash};

/// Claims fetched out of key order at once: the fetches wait for memory together, not one after another.
const CLAIMS_FETCHED: usize = 256;

/// A posted day in three bytes and a source hash.
const KEY_LEN: usize = 35;

/// What a claim stands under.
pub(super) type Key = [u8; KEY_LEN];

pub(super) fn key_of(claim: &Claim) -> Key {
    key(claim.posted_day, &claim.source_hash)
}

fn key(day: PostedDay, hash: &SourceHash) -> Key {
    let [high, days @ ..] = day.0.to_be_bytes();
    assert_eq!(high, 0, "four digits of year are fewer than 2^24 days");
    let mut key = [0; KEY_LEN];
    key[..3].copy_from_slice(&days);
    key[3..].copy_from_slice(hash.as_bytes());
    key
}

/// A claim's value: the owner's number in four bytes, and the row in as many as it needs.
pub(super) struct Value {
    bytes: [u8; 12],
    start: usize,
}

impl Value {
    pub(super) fn new(number: u32, row: u64) -> Self {
        let unused = (row.leading_zeros() / 8).min(7) as usize;
        let mut bytes = [0; 12];
        bytes[4..].copy_from_slice(&row.to_be_bytes());
        bytes[unused..unused + 4].copy_from_slice(&number.to_be_bytes());
        Self { bytes, start: unused }
    }

    /// A value out of the store's pages; none if it is longer than any of ours.
    pub(super) fn copied(found: &[u8]) -> Option<Self> {
        let start = 12_usize.checked_sub(found.len())?;
        let mut bytes = [0; 12];
        bytes[start..].copy_from_slice(found);
        Some(Self { bytes, start })
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

pub(super) fn decode_value(value: &[u8]) -> Option<(u32, u64)> {
    let (number, row) = value.split_first_chunk::<4>()?;
    if row.is_empty() || row.len() > 8 {
        return None;
    }
    Some((u32::from_be_bytes(*number), row.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))))
}

/// Index, key and row of the claims at the indexes of `order`, in that order.
pub(super) fn fetched_in_order<'a>(
    claims: &'a [Claim],
    order: &'a [u32],
) -> impl Iterator<Item = (u32, Key, u64)> + 'a {
    order.chunks(CLAIMS_FETCHED).flat_map(move |indexes| {
        let fetch = |&index: &u32| {
            let claim = &claims[index as usize];
            (index, key_of(claim), claim.row)
        };
        indexes.iter().map(fetch).collect::<Vec<_>>()
    })
}

/// The indexes of `claims` by key, the first of equal ones first.
pub(super) fn in_key_order(claims: &[Claim]) -> Vec<u32> {
    let leading = |claim: &Claim| {
        let [a, b, c, d, e, ..] = *claim.source_hash.as_bytes();
        u64::from(claim.posted_day.0) << 40 | u64::from_be_bytes([0, 0, 0, a, b, c, d, e])
    };
    let numbered = claims.iter().zip(0_u32..);
    let mut order: Vec<(u64, u32)> = numbered.map(|(claim, index)| (leading(claim), index)).collect();
    // Keys that agree in their first eight bytes may stand in the wrong order, which costs time and nothing else.
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_in_as_few_bytes_as_they_need() {
        for (row, len) in [(1, 5), (255, 5), (256, 6), (2_000_000, 7), (u64::MAX, 12), (0, 5)] {
            let value = Value::new(7, row);
            assert_eq!(decode_value(value.as_bytes()), Some((7, row)));
            assert_eq!(value.as_bytes().len(), len);
        }
        assert_eq!(decode_value(&[0, 0, 0, 1]), None);
        assert_eq!(decode_value(&[0; 13]), None);
    }
}
