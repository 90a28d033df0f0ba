//! What a store keeps of a record's content, to tell whether a payment comes back changed and in which fields.
//!
//! Frozen: stores hold the contents of every record of the past.

use super::{Field, SourceHash};

/// Bytes of the source hash that stand in it: 96 bits decide whether two contents of a payment are one.
const HASH_LEN: usize = 12;

/// The fields that the identity of a payment leaves open, in the order of their checks.
const CHECKED: [Field; 3] = [Field::Amount, Field::Currency, Field::PostedAt];

/// Two bytes for each checked field.
const CHECKS_LEN: usize = 2 * CHECKED.len();

/// A short check of each field that may change while the payment stays the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldChecks([u8; CHECKS_LEN]);

impl FieldChecks {
    /// The checks of canonical text.
    ///
    /// A currency is known exactly. Amounts and dates that differ in up to two neighbouring characters always have
    /// different checks, others in all but one of 65,536 cases.
    pub(super) fn of(amount: &[u8], currency: &[u8; 3], posted_at: &[u8]) -> Self {
        let letters = currency.iter().fold(0_u16, |number, letter| number * 26 + u16::from(letter - b'A'));
        let checks = [crc16(amount), letters, crc16(posted_at)];
        let mut bytes = [0; CHECKS_LEN];
        for (place, check) in bytes.chunks_exact_mut(2).zip(checks) {
            place.copy_from_slice(&check.to_be_bytes());
        }
        Self(bytes)
    }
}

/// A record's content in a few bytes: the start of its source hash, and the checks of its fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Content([u8; Self::LEN]);

impl Content {
    /// Bytes of a content.
    pub const LEN: usize = HASH_LEN + CHECKS_LEN;

    /// What is kept of the record with this source hash and these checks.
    pub fn new(source_hash: &SourceHash, checks: FieldChecks) -> Self {
        let mut bytes = [0; Self::LEN];
        bytes[..HASH_LEN].copy_from_slice(&source_hash.as_bytes()[..HASH_LEN]);
        bytes[HASH_LEN..].copy_from_slice(&checks.0);
        Self(bytes)
    }

    /// A fingerprint out of a store.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes for a store.
    pub fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// The leading bytes of the source hash.
    pub fn hash_start(&self) -> &[u8] {
        &self.0[..HASH_LEN]
    }

    /// The fields in which `other`, a content of the same payment, differs. None at all where contents differ and no
    /// check does: then a check of the changed field is the same by chance.
    pub fn changed_fields<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = Field> + 'a {
        let checks = |print: &'a Self| print.0[HASH_LEN..].chunks_exact(2);
        let pairs = CHECKED.into_iter().zip(checks(self).zip(checks(other)));
        pairs.filter(|(_, (own, other))| own != other).map(|(field, _)| field)
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// CRC-16 with the polynomial of CCITT, beginning with all ones.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0xffff, |crc, byte| (crc << 8) ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)])
}

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn print(amount: &str, currency: &[u8; 3], posted_at: &str) -> Content {
        let all = format!("{amount}{currency:?}{posted_at}");
        let checks = FieldChecks::of(amount.as_bytes(), currency, posted_at.as_bytes());
        Content::new(&SourceHash::of(all.as_bytes()), checks)
    }

    #[test]
    fn the_checks_are_frozen() {
        assert_eq!(crc16(b"123456789"), 0x29b1, "the check value of this CRC in every table of CRCs");
        let checks = FieldChecks::of(b"100.50", b"EUR", b"2026-07-15");
        assert_eq!(checks.0, [0x15, 0xcf, 0x0c, 0xa9, 0xc9, 0x5c]);
    }

    #[test]
    fn changed_fields_are_exactly_those_that_differ() {
        let first = print("100.50", b"EUR", "2026-07-15");
        for (other, expected) in [
            (print("100.50", b"EUR", "2026-07-15"), &[][..]),
            (print("100.51", b"EUR", "2026-07-15"), &[Field::Amount]),
            (print("-100.50", b"EUR", "2026-07-15"), &[Field::Amount]),
            (print("100.50", b"USD", "2026-07-15"), &[Field::Currency]),
            (print("100.50", b"EUR", "2026-07-16"), &[Field::PostedAt]),
            (print("100.50", b"EUR", "2026-07-15T00:00:00+00:00"), &[Field::PostedAt]),
            (print("7.00", b"CHF", "2025-01-01"), &CHECKED),
        ] {
            assert_eq!(first.changed_fields(&other).collect::<Vec<_>>(), expected);
            assert_eq!(other.changed_fields(&first).collect::<Vec<_>>(), expected);
            assert_eq!(first == other, expected.is_empty());
        }
    }

    #[test]
    fn currencies_never_share_a_check() {
        let letters = || b'A'..=b'Z';
        let all = letters().flat_map(|a| letters().flat_map(move |b| letters().map(move |c| [a, b, c])));
        let checks: std::collections::BTreeSet<_> = all.map(|currency| FieldChecks::of(b"", &currency, b"")).collect();
        assert_eq!(checks.len(), 26 * 26 * 26);
    }

    #[test]
    fn amounts_that_differ_in_one_character_or_two_neighbours_never_share_a_check() {
        let amount = b"1234567.89".to_vec();
        for place in 0..amount.len() - 1 {
            for first in b'0'..=b'9' {
                for second in b'0'..=b'9' {
                    let mut other = amount.clone();
                    (other[place], other[place + 1]) = (first, second);
                    assert_eq!(crc16(&other) == crc16(&amount), other == amount, "{other:?}");
                }
            }
        }
    }
}
