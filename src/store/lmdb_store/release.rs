//! Freeing claims: those that a caller names, or all of a run.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use heed::RwTxn;

use super::claims::Standing;
use super::failure::told;
use super::keys::{Entry, in_key_order};
use super::writer_lock::WriteTxn;
use super::{LmdbStore, ReadTxn};
use crate::domain::{Claim, Marker, Owner, RunId};
use crate::store::StoreError;

/// Claims looked through between two transactions, when a run's own are to be found.
const CLAIMS_LOOKED_THROUGH: usize = 1_000_000;

/// Keys of claims of a run.
struct FoundKeys {
    keys: Vec<Vec<u8>>,
    /// Where to go on, if there is more to look through.
    go_on_behind: Option<Vec<u8>>,
}

pub(super) fn release(store: &mut LmdbStore, run: &RunId, epoch: u32, claims: &[Claim]) -> Result<u64, StoreError> {
    let path = store.path.clone();
    let fail = |error| told(&path, error);
    let env = store.env.clone();
    let mut txn = WriteTxn::begin(&env, &path)?;
    let mut freed = 0;
    for index in in_key_order(claims) {
        let claim = &claims[index as usize];
        let days = store.other_days(&txn, claim).map_err(fail)?;
        let is_to_go = |owner: &Owner| owner.run == *run && owner.epoch <= epoch;
        match store.standing(&txn, claim, days).map_err(fail)? {
            Standing::Same(key, _) => freed += store.free(&mut txn, &key, &is_to_go)?,
            Standing::Legacy(marker) => {
                let marker = store.marker_of_legacy(&txn, marker)?;
                let is_to_go = matches!(marker, Marker::Run { owner, .. } if is_to_go(&owner));
                if let Some(legacy) = store.legacy.filter(|_| is_to_go) {
                    freed += u64::from(legacy.delete(&mut txn, claim).map_err(fail)?);
                }
            }
            Standing::Nothing | Standing::Unreadable | Standing::Differing(..) => {}
        }
    }
    txn.commit().map_err(fail)?;
    Ok(freed)
}

pub(super) fn release_run(store: &mut LmdbStore, run: &RunId) -> Result<u64, StoreError> {
    let path = store.path.clone();
    let env = store.env.clone();
    let mut freed = store.free_legacy(run)?;
    let mut from: Option<Vec<u8>> = None;
    loop {
        let FoundKeys { keys, go_on_behind } = store.keys_of(run, from.as_deref())?;
        let mut txn = WriteTxn::begin(&env, &path)?;
        // What was found is looked at again: another run may have taken it over since.
        for key in &keys {
            freed += store.free(&mut txn, key, &|owner| owner.run == *run)?;
        }
        txn.commit().map_err(|error| told(&path, error))?;
        if go_on_behind.is_none() {
            return Ok(freed);
        }
        from = go_on_behind;
    }
}

impl LmdbStore {
    /// Keys behind `from` whose claims are of `run`.
    fn keys_of(&mut self, run: &RunId, from: Option<&[u8]>) -> Result<FoundKeys, StoreError> {
        let path = self.path.clone();
        let fail = |error| told(&path, error);
        let env = self.env.clone();
        let txn = env.read_txn().map_err(fail)?;
        let start = from.map_or(Bound::Unbounded, Bound::Excluded);
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) = (start, Bound::Unbounded);
        let (mut keys, mut last, table) = (Vec::new(), None, self.claims);
        for (looked_at, entry) in table.range(&txn, &bounds).map_err(fail)?.enumerate() {
            let (key, value) = entry.map_err(fail)?;
            if looked_at == CLAIMS_LOOKED_THROUGH {
                return Ok(FoundKeys { keys, go_on_behind: last.map(<[u8]>::to_vec) });
            }
            if self.owner_of(&txn, value)?.is_some_and(|owner| owner.run == *run) {
                keys.push(key.to_vec());
            }
            last = Some(key);
        }
        Ok(FoundKeys { keys, go_on_behind: None })
    }

    /// Who owns the claim with this value, if it can be read.
    fn owner_of(&mut self, txn: &ReadTxn<'_>, value: &[u8]) -> Result<Option<Arc<Owner>>, StoreError> {
        let Some(entry) = Entry::decode(value) else { return Ok(None) };
        match self.marker(txn, &entry)? {
            Marker::Run { owner, .. } => Ok(Some(owner)),
            Marker::OtherWriter(_) | Marker::Unreadable => Ok(None),
        }
    }

    /// Deletes the claim at `key` if its owner `is_to_go`; says how many were deleted.
    ///
    /// Where it was the first content of a payment, the next one takes its place: a payment is looked up under its own
    /// key.
    fn free(&mut self, txn: &mut RwTxn<'_>, key: &[u8], is_to_go: &impl Fn(&Owner) -> bool) -> Result<u64, StoreError> {
        let (path, table) = (self.path.clone(), self.claims);
        let fail = |error| told(&path, error);
        let mut freed = 0;
        while let Some(value) = table.get(txn, key).map_err(fail)?.map(<[u8]>::to_vec)
            && self.owner_of(txn, &value)?.is_some_and(|owner| is_to_go(&owner))
        {
            table.delete(txn, key).map_err(fail)?;
            freed += 1;
            let next = table.get_greater_than(txn, key).map_err(fail)?;
            let version = next.filter(|(version, _)| version.starts_with(key));
            if let Some((version, value)) = version.map(|(version, value)| (version.to_vec(), value.to_vec())) {
                table.delete(txn, &version).map_err(fail)?;
                table.put(txn, key, &value).map_err(fail)?;
            }
        }
        Ok(freed)
    }

    /// Deletes the claims of `run` in the table of the first layout; says how many there were.
    fn free_legacy(&mut self, run: &RunId) -> Result<u64, StoreError> {
        let Some(legacy) = self.legacy else { return Ok(0) };
        let path = self.path.clone();
        let fail = |error| told(&path, error);
        let env = self.env.clone();
        let mut txn = WriteTxn::begin(&env, &path)?;
        let mut own = BTreeSet::new();
        for number in legacy.numbers(&txn).map_err(fail)? {
            if matches!(self.marker_of(&txn, number, 1)?, Marker::Run { owner, .. } if owner.run == *run) {
                own.insert(number);
            }
        }
        let freed = legacy.delete_all(&mut txn, |number| own.contains(&number)).map_err(fail)?;
        txn.commit().map_err(fail)?;
        Ok(freed)
    }
}
