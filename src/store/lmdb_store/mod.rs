//! The embedded store. This folder is the only place that knows LMDB.
//!
//! Claims are keyed by the posted date first and by the hash within it. A bank's feed covers a month, so the pages
//! that a run touches are those of its month: inserting stays as fast over twenty million records as over none,
//! where keys in random order read and write all over the file.
//!
//! Default flags only, which make every transaction durable. Several processes may use a store at once; one writes at
//! a time, and `writer_lock` says whose turn it is.

mod failure;
mod keys;
mod opening;
mod records;
mod writer_lock;

use std::collections::HashMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use heed::types::{Bytes, Str};
use heed::{Database, Env, PutFlags, RoTxn, RwTxn, WithoutTls};

pub(super) use opening::open;

use self::failure::told;
use self::keys::{Key, Value, decode_value, fetched_in_order, in_key_order, key_of};
use self::records::owner_key;
use self::writer_lock::WriteTxn;
use super::record_wire::decode_owner;
use super::{Store, StoreError};
use crate::domain::{
    Adoption, Bid, Claim, ClaimOutcome, Digest, Expected, FeedNote, KnownRun, Lineage, Marker, Owner, RunId, RunRecord,
    RunStore,
};

/// Claims in one transaction: the sorted keys of more would not fit the memory promised, those of fewer would write
/// the pages of a month more often.
const CLAIMS_PER_TRANSACTION: usize = 98_304;

/// Claims behind each other in a table that large dirty a page each: so many bound a transaction's memory to 96 MiB.
const SCATTERED_CLAIMS_MAX: usize = 24 * 1024;

/// Claims looked through between two transactions, when a run's own are to be found.
const CLAIMS_LOOKED_THROUGH: usize = 1_000_000;

/// A store in a folder of this machine.
#[derive(Clone)]
struct LmdbStore {
    address: String,
    path: PathBuf,
    env: Env<WithoutTls>,
    claims: Database<Bytes, Bytes>,
    records: Database<Str, Str>,
    claims_per_call: usize,
    /// Owners by their number in claims.
    owners: HashMap<u32, Arc<Owner>>,
}

impl LmdbStore {
    fn told(&self, error: heed::Error) -> StoreError {
        told(&self.path, error)
    }

    fn corrupt(&self, cause: impl Into<String>) -> StoreError {
        StoreError::Corrupt { address: self.address.clone(), cause: cause.into() }
    }

    /// One durable transaction.
    fn write<T>(&self, act: impl FnOnce(&Self, &mut RwTxn<'_>) -> heed::Result<T>) -> Result<T, StoreError> {
        let mut txn = WriteTxn::begin(&self.env, &self.path)?;
        let done = act(self, &mut txn).map_err(|e| self.told(e))?;
        txn.commit().map_err(|e| self.told(e))?;
        Ok(done)
    }

    /// Makes the claims at the leading indexes of `order` in one durable transaction; says how many.
    ///
    /// All of them, unless their pages would take too much memory: what follows touches other pages, so nothing is
    /// written twice.
    fn claim_some(
        &mut self,
        bid: &Bid,
        claims: &[Claim],
        order: &[u32],
        outcomes: &mut [ClaimOutcome],
    ) -> Result<usize, StoreError> {
        let path = self.path.clone();
        let fail = |error| told(&path, error);
        let env = self.env.clone();
        let mut txn = WriteTxn::begin(&env, &path)?;
        let number = self.owner_number(&mut txn, bid).map_err(fail)?;
        let table = self.claims;
        let is_large = table.stat(&txn).map_err(fail)?.leaf_pages > SCATTERED_CLAIMS_MAX;
        let mut last = table.last(&txn).map_err(fail)?.map(|(key, _)| key.to_vec()).unwrap_or_default();
        let (mut made, mut scattered) = (0, 0);
        for (index, key, row) in fetched_in_order(claims, order) {
            // Behind the last key a page is filled to its end, where it is halved otherwise.
            let is_behind = key.as_slice() > last.as_slice();
            let flags = if is_behind { PutFlags::APPEND } else { PutFlags::empty() };
            let value = Value::new(number, row);
            let found = table.get_or_put_with_flags(&mut txn, flags, &key, value.as_bytes()).map_err(fail)?;
            if let Some(found) = found.map(Value::copied) {
                let marker = match found.as_ref().and_then(|found| decode_value(found.as_bytes())) {
                    Some((own, row)) if own == number => Marker::Run { owner: Arc::clone(bid), row },
                    Some((owner, row)) => self.marker(&txn, owner, row)?,
                    None => Marker::Unreadable,
                };
                outcomes[index as usize] = ClaimOutcome::Found(marker);
            } else if is_behind {
                last.clear();
                last.extend_from_slice(&key);
            } else {
                scattered += 1;
            }
            made += 1;
            if is_large && scattered == SCATTERED_CLAIMS_MAX {
                break;
            }
        }
        txn.commit().map_err(fail)?;
        Ok(made)
    }

    /// The marker of `row` by the owner of `number`.
    fn marker(&mut self, txn: &RoTxn<'_, WithoutTls>, number: u32, row: u64) -> Result<Marker, StoreError> {
        if let Some(owner) = self.owners.get(&number) {
            return Ok(Marker::Run { owner: Arc::clone(owner), row });
        }
        let found = self.records.get(txn, &owner_key(number)).map_err(|e| told(&self.path, e))?;
        let Some(json) = found else { return Ok(Marker::Unreadable) };
        let owner = Arc::new(decode_owner(json).map_err(|cause| self.corrupt(cause))?);
        self.owners.insert(number, Arc::clone(&owner));
        Ok(Marker::Run { owner, row })
    }

    /// Keys behind `from` whose claims are of `run`, and where to go on if there is more to look through.
    fn keys_of(&mut self, run: &RunId, from: Option<&Key>) -> Result<(Vec<Key>, Option<Key>), StoreError> {
        let path = self.path.clone();
        let fail = |error| told(&path, error);
        let env = self.env.clone();
        let txn = env.read_txn().map_err(fail)?;
        let start = from.map_or(Bound::Unbounded, |from| Bound::Excluded(from.as_slice()));
        let bounds = (start, Bound::Unbounded);
        let (mut keys, mut last, table) = (Vec::new(), None, self.claims);
        for (looked_at, entry) in table.range(&txn, &bounds).map_err(fail)?.enumerate() {
            let (key, value) = entry.map_err(fail)?;
            let key: Key = key.try_into().map_err(|_| self.corrupt("a claim's key has another length"))?;
            if looked_at == CLAIMS_LOOKED_THROUGH {
                return Ok((keys, last));
            }
            if matches!(self.marker_of(&txn, value)?, Marker::Run { owner, .. } if owner.run == *run) {
                keys.push(key);
            }
            last = Some(key);
        }
        Ok((keys, None))
    }

    /// Deletes in one durable transaction the claims at those of `keys` whose owner `is_to_go`; says how many.
    fn free(&mut self, keys: &[Key], is_to_go: impl Fn(&Owner) -> bool) -> Result<u64, StoreError> {
        let path = self.path.clone();
        let fail = |error| told(&path, error);
        let env = self.env.clone();
        let mut txn = WriteTxn::begin(&env, &path)?;
        let table = self.claims;
        let mut freed = 0;
        for key in keys {
            let Some(value) = table.get(&txn, key).map_err(fail)?.map(<[u8]>::to_vec) else { continue };
            if matches!(self.marker_of(&txn, &value)?, Marker::Run { owner, .. } if is_to_go(&owner)) {
                table.delete(&mut txn, key).map_err(fail)?;
                freed += 1;
            }
        }
        txn.commit().map_err(fail)?;
        Ok(freed)
    }

    /// What `value`, found under a claimed hash, says.
    fn marker_of(&mut self, txn: &RoTxn<'_, WithoutTls>, value: &[u8]) -> Result<Marker, StoreError> {
        match decode_value(value) {
            Some((number, row)) => self.marker(txn, number, row),
            None => Ok(Marker::Unreadable),
        }
    }
}

impl RunStore for LmdbStore {
    type Error = StoreError;

    fn claims_per_call(&self) -> usize {
        self.claims_per_call
    }

    fn claim(&mut self, bid: &Bid, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, StoreError> {
        let mut outcomes = vec![ClaimOutcome::Novel; claims.len()];
        let order = in_key_order(claims);
        let mut left = order.as_slice();
        while !left.is_empty() {
            let made = self.claim_some(bid, claims, left, &mut outcomes)?;
            left = &left[made..];
        }
        Ok(outcomes)
    }

    /// What is asked of this store is done, or not, when the call returns.
    fn answers_lost(&self) -> u64 {
        0
    }

    fn adopt(&mut self, adoptions: &[Adoption]) -> Result<Vec<bool>, StoreError> {
        let path = self.path.clone();
        let fail = |error| told(&path, error);
        let env = self.env.clone();
        let mut txn = WriteTxn::begin(&env, &path)?;
        let table = self.claims;
        let mut adopted = Vec::with_capacity(adoptions.len());
        for Adoption { claim, found: (owner, row), owner: new_owner } in adoptions {
            let key = key_of(claim);
            let old = Value::new(self.owner_number(&mut txn, owner).map_err(fail)?, *row);
            let new = Value::new(self.owner_number(&mut txn, new_owner).map_err(fail)?, claim.row);
            let standing = table.get(&txn, &key).map_err(fail)?;
            let is_old = standing == Some(old.as_bytes());
            adopted.push(is_old || standing == Some(new.as_bytes()));
            if is_old {
                table.put(&mut txn, &key, new.as_bytes()).map_err(fail)?;
            }
        }
        txn.commit().map_err(fail)?;
        Ok(adopted)
    }

    fn look_up(&mut self, claims: &[Claim]) -> Result<Vec<Option<Marker>>, StoreError> {
        let path = self.path.clone();
        let fail = |error| told(&path, error);
        let env = self.env.clone();
        let txn = env.read_txn().map_err(fail)?;
        let table = self.claims;
        let mut markers = vec![None; claims.len()];
        for index in in_key_order(claims) {
            if let Some(value) = table.get(&txn, &key_of(&claims[index as usize])).map_err(fail)? {
                markers[index as usize] = Some(self.marker_of(&txn, value)?);
            }
        }
        Ok(markers)
    }

    fn release(&mut self, run: &RunId, epoch: u32, claims: &[Claim]) -> Result<u64, StoreError> {
        let keys: Vec<_> = in_key_order(claims).into_iter().map(|index| key_of(&claims[index as usize])).collect();
        self.free(&keys, |owner| owner.run == *run && owner.epoch <= epoch)
    }

    fn release_run(&mut self, run: &RunId) -> Result<u64, StoreError> {
        let mut freed = 0;
        let mut from = None;
        loop {
            let (keys, next) = self.keys_of(run, from.as_ref())?;
            // What was found is looked at again: another run may have taken it over since.
            freed += self.free(&keys, |owner| owner.run == *run)?;
            if next.is_none() {
                return Ok(freed);
            }
            from = next;
        }
    }

    /// What a transaction wrote stays written.
    fn check_intact(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// There is one copy of the data, and one history.
    fn lineage(&mut self) -> Result<Lineage, StoreError> {
        Ok(Lineage::default())
    }

    /// Every transaction waited for the disk.
    fn confirm(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn run_record(&mut self, run: &RunId) -> Result<Option<KnownRun>, StoreError> {
        records::run_record(self, run)
    }

    fn write_run(
        &mut self,
        expected: Option<Expected>,
        record: &RunRecord,
        lease: Option<Duration>,
    ) -> Result<bool, StoreError> {
        records::write_run(self, expected, record, lease)
    }

    fn renew_lease(&mut self, run: &RunId, epoch: u32, lease: Duration) -> Result<bool, StoreError> {
        records::renew_lease(self, run, epoch, lease)
    }

    fn each_run(&mut self, act: &mut dyn FnMut(KnownRun)) -> Result<(), StoreError> {
        records::each_run(self, act)
    }

    fn feed_note(&mut self, feed: &Digest, meaning: &Digest) -> Result<Option<FeedNote>, StoreError> {
        records::feed_note(self, feed, meaning)
    }

    fn write_feed_note(&mut self, feed: &Digest, meaning: &Digest, note: &FeedNote) -> Result<(), StoreError> {
        records::write_feed_note(self, feed, meaning, note)
    }
}

impl Store for LmdbStore {
    fn another(&self) -> Box<dyn Store> {
        Box::new(self.clone())
    }

    /// Every transaction makes the store older.
    fn advance_age(&mut self) -> Result<u64, StoreError> {
        Ok(self.age())
    }
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
pub(super) mod tests {
    use super::opening::open_env;
    use super::*;
    use crate::store::StoreConfig;

    /// Hands out handles on one store: an environment may be opened once in a process.
    pub(in crate::store) fn handles(config: &StoreConfig, path: &Path) -> impl Fn() -> Box<dyn Store> + use<> {
        let store = LmdbStore::open_tables(config, path, open_env(path, false).unwrap()).unwrap().unwrap();
        move || Box::new(store.clone())
    }
}
