//! Making claims: in key order where a payment can stand on one day only, and one by one where it may on several.

use std::collections::HashMap;
use std::sync::Arc;

use heed::{PutFlags, RwTxn};

use super::failure::told;
use super::keys::{Entry, Key, fetched_in_order, in_key_order, key, version_key};
use super::legacy::LegacyMarker;
use super::payment_days::Sight;
use super::writer_lock::WriteTxn;
use super::{LmdbStore, ReadTxn};
use crate::domain::{Bid, Claim, ClaimOutcome, ClaimScope, Marker, Original, PostedDay};
use crate::store::StoreError;

/// Pages of a table from which on claims that are not behind its last hardly meet on one.
const LARGE_TABLE_PAGES: usize = 24 * 1024;

/// Claims whose days are looked up at once in a large table.
const CLAIMS_PER_PIECE: usize = 12 * 1024;

/// Scattered claims dirty a page each in a large table. A transaction that has so many takes no further piece, which
/// bounds its memory to 96 MiB.
const SCATTERED_CLAIMS_MAX: usize = 12 * 1024;

/// What stands of a payment.
pub(super) enum Standing {
    Nothing,
    Unreadable,
    /// What is claimed, under this key.
    Same(Vec<u8>, Entry),
    /// Another content, under this key.
    Differing(Key, Entry),
    /// What is claimed, in the table of the first layout.
    Legacy(LegacyMarker),
}

/// The claims of one call.
pub(super) struct Call<'a> {
    bid: &'a Bid,
    claims: &'a [Claim],
    outcomes: Vec<ClaimOutcome>,
    /// The days on which the call has the payment of a claim, where there are several.
    crossing: HashMap<u32, Vec<PostedDay>>,
}

/// The claims of one transaction.
struct Piece {
    /// Sorted, with the index of each one's claim.
    sights: Vec<(Sight, u32)>,
    /// Whether the day of a sight is known, in their order.
    is_known: Vec<bool>,
    /// Claims whose payment may stand on further days, in the order of rows.
    across: Vec<(u32, Vec<PostedDay>)>,
}

impl<'a> Call<'a> {
    pub(super) fn new(bid: &'a Bid, claims: &'a [Claim]) -> Self {
        Self { bid, claims, outcomes: vec![ClaimOutcome::Novel; claims.len()], crossing: crossing_days(claims) }
    }

    /// Makes every claim, in as many durable transactions as memory demands; the outcomes are in the order of claims.
    pub(super) fn make(mut self, store: &mut LmdbStore) -> Result<Vec<ClaimOutcome>, StoreError> {
        let mut order = in_key_order(self.claims);
        let mut crossing: Vec<u32> = self.crossing.keys().copied().collect();
        crossing.sort_unstable();
        if !crossing.is_empty() {
            order.retain(|index| !self.crossing.contains_key(index));
        }
        let is_large = store.is_large()?;
        let piece_len = if is_large { CLAIMS_PER_PIECE } else { order.len().max(1) };
        // Those that cross first: of two contents of a payment the lower row wins, whatever their days.
        let pieces = crossing.chunks(CLAIMS_PER_PIECE).chain(order.chunks(piece_len));
        let path = store.path.clone();
        let env = store.env.clone();
        let mut pieces = pieces.peekable();
        while pieces.peek().is_some() {
            let mut txn = WriteTxn::begin(&env, &path)?;
            let mut scattered = 0;
            while let Some(order) = pieces.next_if(|_| !is_large || scattered < SCATTERED_CLAIMS_MAX) {
                scattered += self.make_piece(store, &mut txn, order)?;
            }
            txn.commit().map_err(|error| store.told(error))?;
        }
        Ok(self.outcomes)
    }

    /// Makes the claims at the indexes of `order`; says how many of them are new and not behind the table's last.
    fn make_piece(&mut self, store: &mut LmdbStore, txn: &mut RwTxn<'_>, order: &[u32]) -> Result<usize, StoreError> {
        let path = store.path.clone();
        let fail = |error| told(&path, error);
        let number = store.owner_number(txn, self.bid).map_err(fail)?;
        let piece = self.piece(store, txn, order).map_err(fail)?;
        let mut is_put = vec![false; self.claims.len()];
        for (index, days) in &piece.across {
            let claim = &self.claims[*index as usize];
            let standing = store.standing(txn, claim, days.iter().copied()).map_err(fail)?;
            let outcome = self.settle(store, txn, number, claim, standing)?;
            is_put[*index as usize] = outcome == ClaimOutcome::Novel;
            self.outcomes[*index as usize] = outcome;
        }
        let scattered = self.make_in_order(store, txn, number, order, &mut is_put, &piece)?;
        let pairs = piece.sights.iter().zip(&piece.is_known);
        let new = pairs.filter(|((_, index), is_known)| is_put[*index as usize] && !**is_known);
        let new: Vec<Sight> = new.map(|((sight, _), _)| *sight).collect();
        store.days.add(txn, &new).map_err(fail)?;
        Ok(scattered + piece.across.len())
    }

    /// What is known of the days of the payments at the indexes of `order`.
    fn piece(&self, store: &LmdbStore, txn: &ReadTxn<'_>, order: &[u32]) -> heed::Result<Piece> {
        let mut sights: Vec<(Sight, u32)> =
            order.iter().map(|index| (Sight::of(&self.claims[*index as usize]), *index)).collect();
        sights.sort_unstable();
        let mut is_known = vec![false; sights.len()];
        let mut others: HashMap<u32, Vec<PostedDay>> = HashMap::new();
        let only_sights: Vec<Sight> = sights.iter().map(|(sight, _)| *sight).collect();
        store.days.look_up(txn, &only_sights, |place, known| {
            is_known[place] = known.has_own;
            let index = sights[place].1;
            if !known.others.is_empty() && self.claims[index as usize].scope == ClaimScope::Payment {
                others.insert(index, known.others);
            }
        })?;
        for index in order {
            if let Some(days) = self.crossing.get(index) {
                others.entry(*index).or_default().extend(days);
            }
        }
        let mut across: Vec<_> = others.into_iter().collect();
        across.sort_unstable_by_key(|(index, _)| *index);
        Ok(Piece { sights, is_known, across })
    }

    /// Makes those claims whose payment can stand on their own day only; says how many of them are new and not behind
    /// the table's last.
    fn make_in_order(
        &mut self,
        store: &mut LmdbStore,
        txn: &mut RwTxn<'_>,
        number: u32,
        order: &[u32],
        is_put: &mut [bool],
        piece: &Piece,
    ) -> Result<usize, StoreError> {
        let path = store.path.clone();
        let fail = |error| told(&path, error);
        let table = store.claims;
        let is_across = |index: u32| piece.across.binary_search_by_key(&index, |(index, _)| *index).is_ok();
        let mut last = table.last(txn).map_err(fail)?.map(|(key, _)| key.to_vec()).unwrap_or_default();
        let mut scattered = 0;
        for (index, key, claim) in fetched_in_order(self.claims, order) {
            if !piece.across.is_empty() && is_across(index) {
                continue;
            }
            if let Some(marker) = store.legacy_marker(txn, claim).map_err(fail)? {
                self.outcomes[index as usize] = self.settle(store, txn, number, claim, Standing::Legacy(marker))?;
                continue;
            }
            // Behind the last key a page is filled to its end, where it is halved otherwise.
            let is_behind = key.as_slice() > last.as_slice();
            let flags = if is_behind { PutFlags::APPEND } else { PutFlags::empty() };
            let content = claim.content();
            let value = Entry { owner: number.to_be_bytes(), content, row: claim.row }.encode();
            let found = table.get_or_put_with_flags(txn, flags, &key, value.as_slice()).map_err(fail)?;
            match found.map(Entry::decode) {
                None => {
                    is_put[index as usize] = true;
                    if is_behind {
                        last.clear();
                        last.extend_from_slice(&key);
                    } else {
                        scattered += 1;
                    }
                }
                Some(entry) => {
                    let standing = match entry {
                        None => Standing::Unreadable,
                        Some(entry) if entry.content == content => Standing::Same(key.to_vec(), entry),
                        Some(_) => store.standing(txn, claim, []).map_err(fail)?,
                    };
                    self.outcomes[index as usize] = self.settle(store, txn, number, claim, standing)?;
                }
            }
        }
        Ok(scattered)
    }

    /// Makes `claim` if what stands of its payment allows it.
    fn settle(
        &self,
        store: &mut LmdbStore,
        txn: &mut RwTxn<'_>,
        number: u32,
        claim: &Claim,
        standing: Standing,
    ) -> Result<ClaimOutcome, StoreError> {
        let key = match standing {
            Standing::Nothing => key(claim.posted_day, &claim.identity).to_vec(),
            Standing::Differing(key, _) if claim.scope == ClaimScope::Content => version_key(&key, &claim.content()),
            Standing::Unreadable => return Ok(ClaimOutcome::Found(Marker::Unreadable)),
            Standing::Same(_, Entry { owner, row, .. }) if owner == number.to_be_bytes() => {
                return Ok(ClaimOutcome::Found(Marker::Run { owner: Arc::clone(self.bid), row }));
            }
            Standing::Same(_, entry) => return Ok(ClaimOutcome::Found(store.marker(txn, &entry)?)),
            Standing::Legacy(marker) => return Ok(ClaimOutcome::Found(store.marker_of_legacy(txn, marker)?)),
            Standing::Differing(_, entry) => {
                let marker = store.marker(txn, &entry)?;
                return Ok(ClaimOutcome::Differs(Box::new(Original { marker, content: entry.content })));
            }
        };
        let entry = Entry { owner: number.to_be_bytes(), content: claim.content(), row: claim.row };
        store.claims.put(txn, &key, entry.encode().as_slice()).map_err(|error| store.told(error))?;
        Ok(ClaimOutcome::Novel)
    }
}

impl LmdbStore {
    /// Whether the table has so many pages that scattered claims hardly meet on one.
    fn is_large(&self) -> Result<bool, StoreError> {
        let txn = self.env.read_txn().map_err(|error| self.told(error))?;
        let stat = self.claims.stat(&txn).map_err(|error| self.told(error))?;
        Ok(stat.leaf_pages > LARGE_TABLE_PAGES)
    }

    /// What stands of the payment of `claim` on its own day and on `days`.
    pub(super) fn standing(
        &self,
        txn: &ReadTxn<'_>,
        claim: &Claim,
        days: impl IntoIterator<Item = PostedDay>,
    ) -> heed::Result<Standing> {
        let content = claim.content();
        let mut differing = None;
        for day in std::iter::once(claim.posted_day).chain(days) {
            let key = key(day, &claim.identity);
            let Some(value) = self.claims.get(txn, &key)? else { continue };
            let Some(entry) = Entry::decode(value) else { return Ok(Standing::Unreadable) };
            if entry.content == content {
                return Ok(Standing::Same(key.to_vec(), entry));
            }
            let version = version_key(&key, &content);
            if let Some(value) = self.claims.get(txn, &version)? {
                return Ok(Entry::decode(value).map_or(Standing::Unreadable, |entry| Standing::Same(version, entry)));
            }
            differing = differing.or(Some((key, entry)));
        }
        if let Some(marker) = self.legacy_marker(txn, claim)? {
            return Ok(Standing::Legacy(marker));
        }
        Ok(differing.map_or(Standing::Nothing, |(key, entry)| Standing::Differing(key, entry)))
    }

    /// What stands for `claim` in the table of the first layout.
    pub(super) fn legacy_marker(&self, txn: &ReadTxn<'_>, claim: &Claim) -> heed::Result<Option<LegacyMarker>> {
        self.legacy.map_or(Ok(None), |legacy| legacy.get(txn, claim))
    }

    /// The days on which the payment of `claim` may stand, besides its own.
    pub(super) fn other_days(&self, txn: &ReadTxn<'_>, claim: &Claim) -> heed::Result<Vec<PostedDay>> {
        let mut others = Vec::new();
        self.days.look_up(txn, &[Sight::of(claim)], |_, known| others = known.others)?;
        Ok(others)
    }
}

/// The days of each payment that several of `claims` have on different ones, by the index of each of these claims.
fn crossing_days(claims: &[Claim]) -> HashMap<u32, Vec<PostedDay>> {
    let is_checked = |(_, claim): &(u32, &Claim)| claim.scope == ClaimScope::Payment;
    let mut sights: Vec<(Sight, u32)> =
        (0..).zip(claims).filter(is_checked).map(|(index, claim)| (Sight::of(claim), index)).collect();
    sights.sort_unstable();
    let mut crossing = HashMap::new();
    for group in sights.chunk_by(|(a, _), (b, _)| a.is_same_payment(b)) {
        let is_crossing = group.first().map(|(sight, _)| sight) != group.last().map(|(sight, _)| sight);
        if is_crossing {
            let mut days: Vec<PostedDay> = group.iter().map(|(sight, _)| sight.day()).collect();
            days.dedup();
            crossing.extend(group.iter().map(|(_, index)| (*index, days.clone())));
        }
    }
    crossing
}
