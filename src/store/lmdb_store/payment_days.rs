//! On which days a payment stands: what keeps a payment from being booked twice when its posting date is changed.
//!
//! The table of claims is keyed by the posted day first, so it cannot say whether a payment stands on another day. This
//! one can, without an access out of order for every record: it is sorted by identity, and the claims of a transaction
//! are sorted likewise before they ask. For each of 256 chunks of all identities there are some sorted lists, each
//! about eight times as long as the one before; what is new goes into the first, and a list that grows too long is
//! merged into the next. So every identity is written a few times, always together with its neighbours.
//!
//! An identity is known here by 48 of its bits, and may stand where no claim does any more. The table of claims decides.

use heed::types::Bytes;
use heed::{Database, RoTxn, RwTxn, WithoutTls};

use crate::domain::{Claim, PostedDay};

/// Identities in the first list of a chunk, at least.
const FIRST_LIST_LEN: usize = 1_024;

/// How much longer each list may be than the one before, as a power of two.
const GROWTH: u32 = 3;

/// Lists of a chunk; the last may grow for ever.
const LISTS_MAX: u8 = 8;

/// Bytes of an entry in a list.
const ENTRY_LEN: usize = 8;

/// Bits of an entry that are the day.
const DAY_BITS: u32 = 24;

const DAY_MASK: u64 = (1 << DAY_BITS) - 1;

/// An identity and its day: the chunk, and the entry in its lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sight {
    chunk: u8,
    /// Five more bytes of the identity, and the day.
    entry: u64,
}

impl Sight {
    pub(super) fn of(claim: &Claim) -> Self {
        let [chunk, a, b, c, d, e, ..] = *claim.identity.as_bytes();
        let identity = u64::from_be_bytes([0, 0, 0, a, b, c, d, e]);
        Self { chunk, entry: identity << DAY_BITS | u64::from(claim.posted_day.0) }
    }

    /// Whether both may be of one payment.
    pub(super) fn is_same_payment(&self, other: &Self) -> bool {
        self.chunk == other.chunk && is_same_identity(self.entry, other.entry)
    }

    pub(super) fn day(&self) -> PostedDay {
        day_of(self.entry)
    }
}

fn is_same_identity(entry: u64, other: u64) -> bool {
    (entry ^ other) <= DAY_MASK
}

fn day_of(entry: u64) -> PostedDay {
    PostedDay(u32::try_from(entry & DAY_MASK).expect("a day has 24 bits"))
}

/// The table.
#[derive(Debug, Clone, Copy)]
pub(super) struct PaymentDays {
    pub(super) table: Database<Bytes, Bytes>,
}

/// What is known of a sight.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KnownDays {
    /// Whether its own day is one of them.
    pub(super) has_own: bool,
    pub(super) others: Vec<PostedDay>,
}

impl PaymentDays {
    /// Calls `act` with the place of each of `sights`, which are sorted, of which anything is known.
    pub(super) fn look_up(
        &self,
        txn: &RoTxn<'_, WithoutTls>,
        sights: &[Sight],
        mut act: impl FnMut(usize, KnownDays),
    ) -> heed::Result<()> {
        let mut start = 0;
        for group in sights.chunk_by(|a, b| a.chunk == b.chunk) {
            let lists: Vec<List<'_>> = (0..LISTS_MAX)
                .filter_map(|list| self.list(txn, list, group[0].chunk).transpose())
                .collect::<Result<_, _>>()?;
            let first_places: Vec<Vec<usize>> = lists.iter().map(|list| list.first_places(group)).collect();
            for (index, sight) in group.iter().enumerate() {
                let mut known = KnownDays::default();
                for (list, first_places) in lists.iter().zip(&first_places) {
                    list.add_days(first_places[index], sight.entry, &mut known);
                }
                if known.has_own || !known.others.is_empty() {
                    act(start + index, known);
                }
            }
            start += group.len();
        }
        Ok(())
    }

    /// Adds `sights`, which are sorted.
    pub(super) fn add(&self, txn: &mut RwTxn<'_>, sights: &[Sight]) -> heed::Result<()> {
        for group in sights.chunk_by(|a, b| a.chunk == b.chunk) {
            let chunk = group[0].chunk;
            let mut entries: Vec<u64> = group.iter().map(|sight| sight.entry).collect();
            entries.dedup();
            for list in 0..LISTS_MAX {
                let standing = self.list(txn, list, chunk)?.unwrap_or(List(&[]));
                let len = standing.len() + entries.len();
                entries = merged(standing, &entries);
                if len <= len_max(list, chunk) {
                    let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_be_bytes()).collect();
                    self.table.put(txn, &[list, chunk], &bytes)?;
                    break;
                }
                self.table.delete(txn, &[list, chunk])?;
            }
        }
        Ok(())
    }

    fn list<'t>(&self, txn: &'t RoTxn<'_, WithoutTls>, list: u8, chunk: u8) -> heed::Result<Option<List<'t>>> {
        Ok(self.table.get(txn, &[list, chunk])?.map(List))
    }
}

/// How many of `len` entries that are spread evenly stand in a distance.
fn places(distance: u64, len: usize) -> usize {
    usize::try_from((u128::from(distance) * len as u128) >> 64).expect("they are fewer than all")
}

/// How many entries a list may have. It differs from chunk to chunk, so that they are not all merged at once.
fn len_max(list: u8, chunk: u8) -> usize {
    if list + 1 == LISTS_MAX {
        return usize::MAX;
    }
    let first = FIRST_LIST_LEN + FIRST_LIST_LEN * usize::from(chunk) / 256;
    first << (GROWTH * u32::from(list))
}

/// Both lists as one, sorted, each entry once.
fn merged(standing: List<'_>, new: &[u64]) -> Vec<u64> {
    let mut all = Vec::with_capacity(standing.len() + new.len());
    let mut new = new.iter().copied().peekable();
    for place in 0..standing.len() {
        let entry = standing.at(place);
        while let Some(before) = new.next_if(|new| *new < entry) {
            all.push(before);
        }
        new.next_if_eq(&entry);
        all.push(entry);
    }
    all.extend(new);
    all
}

/// A sorted list as it stands in the store.
#[derive(Clone, Copy)]
struct List<'a>(&'a [u8]);

impl List<'_> {
    fn len(&self) -> usize {
        self.0.len() / ENTRY_LEN
    }

    fn at(&self, place: usize) -> u64 {
        let bytes = &self.0[place * ENTRY_LEN..][..ENTRY_LEN];
        u64::from_be_bytes(bytes.try_into().expect("an entry has eight bytes"))
    }

    /// For each of `sights` the first place that may be of its identity.
    ///
    /// Hashes are spread evenly, so a place is about known, and better known once the entry there is seen. Each step is
    /// taken for all sights before the next: so they wait for memory together, not one after another.
    fn first_places(&self, sights: &[Sight]) -> Vec<usize> {
        let len = self.len();
        let wanted = |sight: &Sight| sight.entry & !DAY_MASK;
        let guesses: Vec<usize> =
            sights.iter().map(|sight| self.guess(places(wanted(sight), len), wanted(sight))).collect();
        let touched = guesses.iter().fold(0, |sum, guess| sum ^ self.at((*guess).min(len - 1)));
        std::hint::black_box(touched);
        sights.iter().zip(guesses).map(|(sight, guess)| self.first_from(guess, wanted(sight))).collect()
    }

    /// A better guess of where `entry` stands than `guess` is.
    fn guess(&self, guess: usize, entry: u64) -> usize {
        let (found, len) = (self.at(guess), self.len());
        match found < entry {
            true => (guess + places(entry - found, len)).min(len),
            false => guess.saturating_sub(places(found - entry, len)),
        }
    }

    /// The first place whose entry is not below `entry`, which stands near `guess`.
    fn first_from(&self, guess: usize, entry: u64) -> usize {
        let len = self.len();
        let (mut low, mut high, mut step) = (guess, guess, 1);
        while low > 0 && self.at(low - 1) >= entry {
            high = low - 1;
            low = low.saturating_sub(step);
            step *= 2;
        }
        step = 1;
        while high < len && self.at(high) < entry {
            low = high + 1;
            high = (high + step).min(len);
            step *= 2;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match self.at(middle) < entry {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// Adds the days of the identity in `entry`, which begin at the place `first`, to `known`.
    fn add_days(&self, first: usize, entry: u64, known: &mut KnownDays) {
        let same = (first..self.len()).map(|place| self.at(place)).take_while(|found| is_same_identity(*found, entry));
        for found in same {
            match found == entry {
                true => known.has_own = true,
                false => known.others.push(day_of(found)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_are_found_wherever_they_are(
            entries in proptest::collection::btree_set(any::<u64>(), 0..200),
            crowded in proptest::collection::btree_set(0_u64..300, 0..100),
            wanted in any::<u64>(),
        ) {
            // Evenly spread, as hashes are, and crowded at one end, as they never are.
            for entries in [entries.clone(), crowded.clone(), &entries | &crowded] {
                let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_be_bytes()).collect();
                for wanted in entries.iter().copied().chain([wanted, wanted % 300, 0, u64::MAX]) {
                    let expected = entries.iter().filter(|entry| **entry < wanted).count();
                    for guess in [0, entries.len() / 2, entries.len()] {
                        prop_assert_eq!(List(&bytes).first_from(guess, wanted), expected);
                    }
                    if !entries.is_empty() {
                        let sights = [Sight { chunk: 0, entry: wanted }];
                        let expected = entries.iter().filter(|entry| **entry < wanted & !DAY_MASK).count();
                        prop_assert_eq!(List(&bytes).first_places(&sights), [expected]);
                    }
                }
            }
        }

        #[test]
        fn lists_are_merged_as_sets_are(
            standing in proptest::collection::btree_set(0_u64..60, 0..40),
            new in proptest::collection::btree_set(0_u64..60, 0..40),
        ) {
            let bytes: Vec<u8> = standing.iter().flat_map(|entry| entry.to_be_bytes()).collect();
            let new_entries: Vec<u64> = new.iter().copied().collect();
            let union: BTreeSet<u64> = &standing | &new;
            prop_assert_eq!(merged(List(&bytes), &new_entries), union.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn each_list_is_longer_than_the_one_before_in_every_chunk() {
        for chunk in 0..=u8::MAX {
            for list in 1..LISTS_MAX - 1 {
                assert_eq!(len_max(list, chunk), 8 * len_max(list - 1, chunk));
            }
        }
        assert!(len_max(0, 255) > len_max(0, 0));
    }
}
