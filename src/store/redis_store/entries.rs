//! Entries of payments: many in one hash, which the server keeps in a compact list as long as it is short.
//!
//! A payment stands in the hash `<prefix>i:<bucket>`: the bucket is the leading bits of the identity hash, the field
//! 20 bytes of it from where whole bytes of the bucket end. So a hash can be split without writing a field anew.

use std::ops::RangeInclusive;

use super::references::Reference;
use super::wire::{write_command, write_word_len};
use crate::domain::{Claim, IdentityHash};
use crate::store::packed::{PackedBytes, PackedEntry};
use crate::store::record_wire::BucketsWire;

/// Bytes of the identity hash in a field: with those of the bucket at least 160 bits decide.
const FIELD_LEN: usize = 20;

/// Bits of a bucket's number, at least and at most.
const BUCKET_BITS: RangeInclusive<u8> = 8..=28;

/// Entries in a hash when the store has as many as were expected, at most: the server keeps hashes of up to four times
/// as many in a compact list.
const FILL: u64 = 32;

/// What stands for a payment.
pub(super) type Entry = PackedEntry<{ Reference::LEN }>;

/// How payments are spread over hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Buckets {
    bits: u8,
    /// Bytes of the identity hash in front of the field; fixed when the store is made.
    skip: u8,
}

impl Buckets {
    /// Buckets for so many records.
    pub(super) fn for_records(expected: u64) -> Self {
        let buckets = expected.div_ceil(FILL).max(1);
        let bits = u8::try_from(buckets.next_power_of_two().trailing_zeros()).expect("a number has 64 bits");
        let bits = bits.clamp(*BUCKET_BITS.start(), *BUCKET_BITS.end());
        Self { bits, skip: bits / 8 }
    }

    /// The buckets that a store says it has, if it can have them.
    pub(super) fn of_wire(wire: BucketsWire) -> Option<Self> {
        let BucketsWire { bits, skip } = wire;
        // Every bit of the identity stands in the bucket or in the field.
        (BUCKET_BITS.contains(&bits) && skip <= bits / 8).then_some(Self { bits, skip })
    }

    pub(super) fn wire(self) -> BucketsWire {
        BucketsWire { bits: self.bits, skip: self.skip }
    }

    /// Appends the digits of the bucket of `identity`.
    fn write_bucket(self, identity: &IdentityHash, out: &mut Vec<u8>) {
        let leading = identity.as_bytes().first_chunk().expect("a hash is longer than its start");
        let bucket = u32::from_be_bytes(*leading) >> (u32::BITS - u32::from(self.bits));
        let digits = self.digits();
        out.extend((0..digits).rev().map(|place| b"0123456789abcdef"[(bucket >> (4 * place)) as usize & 15]));
    }

    fn digits(self) -> usize {
        usize::from(self.bits).div_ceil(4)
    }

    /// The field of `identity` in its bucket.
    pub(super) fn field(self, identity: &IdentityHash) -> &[u8] {
        &identity.as_bytes()[usize::from(self.skip)..][..FIELD_LEN]
    }
}

/// The hashes of one store.
#[derive(Debug, Clone)]
pub(super) struct EntryCommands {
    buckets: Buckets,
    key_start: Vec<u8>,
    /// `HSETNX` and `HGET` up to the bucket's number.
    before_put: Vec<u8>,
    before_get: Vec<u8>,
}

/// Replaces the value `ARGV[2]`, or nothing where that is empty, by `ARGV[3]`, or by nothing where that is empty; true
/// also if it was replaced before.
const REPLACE_SCRIPT: &str = "local value = redis.call('HGET', KEYS[1], ARGV[1]) or '' \
    if value == ARGV[3] then return 1 end if value ~= ARGV[2] then return 0 end \
    if ARGV[3] == '' then redis.call('HDEL', KEYS[1], ARGV[1]) \
    else redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) end return 1";

impl EntryCommands {
    pub(super) fn new(prefix: &str, buckets: Buckets) -> Self {
        let key_start = format!("{prefix}i:").into_bytes();
        let before = |words: usize, name: &str| {
            let mut start = format!("*{words}\r\n${}\r\n{name}\r\n", name.len()).into_bytes();
            write_word_len(key_start.len() + buckets.digits(), &mut start);
            start.extend_from_slice(&key_start);
            start
        };
        Self { buckets, before_put: before(4, "HSETNX"), before_get: before(3, "HGET"), key_start }
    }

    fn write_place(&self, identity: &IdentityHash, out: &mut Vec<u8>) {
        self.buckets.write_bucket(identity, out);
        out.extend_from_slice(b"\r\n$20\r\n");
        out.extend_from_slice(self.buckets.field(identity));
        out.extend_from_slice(b"\r\n");
    }

    /// Appends `HSETNX` of what `claim` says, owned by `owner`.
    pub(super) fn write_put(&self, claim: &Claim, owner: Reference, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.before_put);
        self.write_place(&claim.identity, out);
        let value = Entry { owner: owner.bytes(), content: claim.content(), row: claim.row }.encode();
        write_word_len(value.as_slice().len(), out);
        out.extend_from_slice(value.as_slice());
        out.extend_from_slice(b"\r\n");
    }

    /// Appends `HGET` of the payment `identity`.
    pub(super) fn write_get(&self, identity: &IdentityHash, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.before_get);
        self.write_place(identity, out);
    }

    /// Appends what replaces the entry `old` of the payment `identity` by `new`, none meaning that there is none.
    pub(super) fn write_replace(
        &self,
        identity: &IdentityHash,
        old: Option<&Entry>,
        new: Option<&Entry>,
        out: &mut Vec<u8>,
    ) {
        let mut key = self.key_start.clone();
        self.buckets.write_bucket(identity, &mut key);
        let (old, new) = (old.map(Entry::encode), new.map(Entry::encode));
        let bytes =
            |value: &'_ Option<PackedBytes>| value.as_ref().map_or_else(Vec::new, |value| value.as_slice().to_vec());
        let (script, field) = (REPLACE_SCRIPT.as_bytes(), self.buckets.field(identity));
        write_command(&[b"EVAL", script, b"1", &key, field, &bytes(&old), &bytes(&new)], out);
    }

    /// Whether `key` is one of the hashes.
    pub(super) fn is_bucket(&self, key: &[u8]) -> bool {
        key.strip_prefix(self.key_start.as_slice()).is_some_and(|digits| {
            digits.len() == self.buckets.digits()
                && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        })
    }
}

/// Appends what deletes `field` of the hash `key` if it still holds `value`.
pub(super) fn write_delete(key: &[u8], field: &[u8], value: &[u8], out: &mut Vec<u8>) {
    write_command(&[b"EVAL", REPLACE_SCRIPT.as_bytes(), b"1", key, field, value, b""], out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(bits: u8) -> Buckets {
        Buckets { bits, skip: bits / 8 }
    }

    #[test]
    fn buckets_are_the_leading_bits_and_fields_begin_behind_their_whole_bytes() {
        let mut bytes = [0; 32];
        (0..32).zip(&mut bytes).for_each(|(number, byte): (u8, &mut u8)| *byte = number * 8 + 1);
        let identity = IdentityHash::from_bytes(bytes);
        let check = |bits, expected: &str| {
            let mut digits = Vec::new();
            buckets(bits).write_bucket(&identity, &mut digits);
            assert_eq!(String::from_utf8(digits).unwrap(), expected, "{bits} bits");
        };
        // The hash begins with 01 09 11 19.
        check(8, "01");
        check(15, "0084");
        check(16, "0109");
        check(17, "00212");
        check(28, "0109111");
        assert_eq!(buckets(17).field(&identity), &bytes[2..22]);
        assert_eq!(buckets(8).field(&identity), &bytes[1..21]);
    }

    #[test]
    fn there_are_as_many_buckets_as_the_records_need() {
        for (expected, bits) in
            [(0, 8), (1, 8), (8_192, 8), (8_193, 9), (1_000_000, 15), (100_000_000, 22), (1_000_000_000, 25)]
        {
            assert_eq!(Buckets::for_records(expected), buckets(bits), "{expected}");
        }
        assert_eq!(Buckets::for_records(u64::MAX), buckets(28));
    }

    #[test]
    fn buckets_that_lose_bits_of_the_identity_are_refused() {
        let read = |bits, skip| Buckets::of_wire(BucketsWire { bits, skip });
        assert_eq!(read(17, 2), Some(buckets(17)));
        assert!(read(19, 1).is_some(), "after growing");
        for (bits, skip) in [(7, 0), (29, 3), (15, 2)] {
            assert_eq!(read(bits, skip), None);
        }
    }
}
