//! What stands for a payment, in as few bytes as will do: whose it is, what it says, and in which row it was.

use crate::domain::Content;

/// Longest entry without its owner: a content and a row of eight bytes.
const REST_LEN_MAX: usize = Content::LEN + 8;

/// Longest owner.
const OWNER_LEN_MAX: usize = 8;

/// An entry whose owner is known by `N` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PackedEntry<const N: usize> {
    pub(super) owner: [u8; N],
    pub(super) content: Content,
    pub(super) row: u64,
}

/// The bytes of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct PackedBytes {
    bytes: [u8; OWNER_LEN_MAX + REST_LEN_MAX],
    len: usize,
}

impl PackedBytes {
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<const N: usize> PackedEntry<N> {
    /// Owner, content, and the row in as many bytes as it needs.
    pub(super) fn encode(&self) -> PackedBytes {
        let mut bytes = [0; OWNER_LEN_MAX + REST_LEN_MAX];
        let (owner, rest) = bytes.split_at_mut(N);
        let (content, row) = rest.split_at_mut(Content::LEN);
        owner.copy_from_slice(&self.owner);
        content.copy_from_slice(self.content.as_bytes());
        let unused = (self.row.leading_zeros() / 8).min(7) as usize;
        let digits = &self.row.to_be_bytes()[unused..];
        row[..digits.len()].copy_from_slice(digits);
        PackedBytes { bytes, len: N + Content::LEN + digits.len() }
    }

    /// Reads an entry; none if it is not one of ours.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (owner, rest) = bytes.split_first_chunk::<N>()?;
        let (content, row) = rest.split_first_chunk::<{ Content::LEN }>()?;
        if row.is_empty() || row.len() > 8 {
            return None;
        }
        let row = row.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        Some(Self { owner: *owner, content: Content::from_bytes(*content), row })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_in_as_few_bytes_as_they_need() {
        for (row, len) in [(1, 1), (255, 1), (256, 2), (2_000_000, 3), (u64::MAX, 8), (0, 1)] {
            let entry = PackedEntry { owner: [7; 4], content: Content::from_bytes([9; Content::LEN]), row };
            let bytes = entry.encode();
            assert_eq!(PackedEntry::decode(bytes.as_slice()), Some(entry));
            assert_eq!(bytes.as_slice().len(), 4 + Content::LEN + len);
        }
        assert_eq!(PackedEntry::<4>::decode(&[0; 4 + Content::LEN]), None);
        assert_eq!(PackedEntry::<8>::decode(&[0; OWNER_LEN_MAX + REST_LEN_MAX + 1]), None);
    }
}
