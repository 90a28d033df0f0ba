//! What claims stand under and what stands there, byte for byte; and the order that the table likes.
//!
//! A payment stands under its posted day and the leading 20 bytes of its identity hash. Further contents of a payment
//! stand right behind it: the same key, and the start of their source hash.

use crate::domain::{Claim, Content, IdentityHash, PostedDay};
use crate::store::packed::PackedEntry;

/// Claims fetched out of key order at once: the fetches wait for memory together, not one after another.
const CLAIMS_FETCHED: usize = 256;

const DAY_LEN: usize = 3;

/// Bytes of the identity hash in a key: 160 bits decide whether two records are of one payment.
const IDENTITY_LEN: usize = 20;

/// A posted day and an identity.
pub(super) const KEY_LEN: usize = DAY_LEN + IDENTITY_LEN;

/// Bytes of an owner's number.
const NUMBER_LEN: usize = 4;

/// What a payment stands under.
pub(super) type Key = [u8; KEY_LEN];

/// The key of the payment of `claim`, if it stands on its own day.
pub(super) fn key_of(claim: &Claim) -> Key {
    key(claim.posted_day, &claim.identity)
}

/// The key of the payment `identity`, standing on `day`.
pub(super) fn key(day: PostedDay, identity: &IdentityHash) -> Key {
    let mut key = [0; KEY_LEN];
    key[..DAY_LEN].copy_from_slice(&day_bytes(day));
    key[DAY_LEN..].copy_from_slice(&identity.as_bytes()[..IDENTITY_LEN]);
    key
}

/// The key of a further content of the payment at `key`.
pub(super) fn version_key(key: &Key, content: &Content) -> Vec<u8> {
    [key.as_slice(), content.hash_start()].concat()
}

pub(super) fn day_bytes(day: PostedDay) -> [u8; DAY_LEN] {
    let [high, days @ ..] = day.0.to_be_bytes();
    assert_eq!(high, 0, "four digits of year are fewer than 2^24 days");
    days
}

/// What stands under a key. The owner is known by its number.
pub(super) type Entry = PackedEntry<NUMBER_LEN>;

/// Index and key of the claims at the indexes of `order`, in that order.
pub(super) fn fetched_in_order<'a>(
    claims: &'a [Claim],
    order: &'a [u32],
) -> impl Iterator<Item = (u32, Key, &'a Claim)> + 'a {
    order.chunks(CLAIMS_FETCHED).flat_map(move |indexes| {
        let fetch = |&index: &u32| {
            let claim = &claims[index as usize];
            (index, key_of(claim), claim)
        };
        indexes.iter().map(fetch).collect::<Vec<_>>()
    })
}

/// The indexes of `claims` by key, the first of equal ones first.
pub(super) fn in_key_order(claims: &[Claim]) -> Vec<u32> {
    let leading = |claim: &Claim| {
        let [a, b, c, d, e, ..] = *claim.identity.as_bytes();
        u64::from(claim.posted_day.0) << 40 | u64::from_be_bytes([0, 0, 0, a, b, c, d, e])
    };
    let numbered = claims.iter().zip(0_u32..);
    let mut order: Vec<(u64, u32)> = numbered.map(|(claim, index)| (leading(claim), index)).collect();
    // Keys that agree in their first eight bytes may stand in the wrong order, which costs time and nothing else.
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
}
