//! The embedded store. This folder is the only place that knows LMDB.
//!
//! Claims are keyed by the posted date first and by the payment within it. A bank's feed covers a month, so the pages
//! that a run touches are those of its month: inserting stays as fast over twenty million records as over none,
//! where keys in random order read and write all over the file. Whether a payment stands on another day is answered by
//! `payment_days`.
//!
//! Default flags only, which make every transaction durable. Several processes may use a store at once; one writes at
//! a time, and `writer_lock` says whose turn it is.

mod claims;
mod failure;
mod keys;
mod legacy;
mod opening;
mod payment_days;
mod records;
mod release;
mod writer_lock;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use heed::types::{Bytes, Str};
use heed::{Database, Env, RoTxn, RwTxn, WithoutTls};

pub(super) use opening::open;

use self::claims::{Call, Standing};
use self::failure::told;
use self::keys::{Entry, in_key_order, key, version_key};
use self::legacy::{LegacyClaims, LegacyMarker};
use self::payment_days::{PaymentDays, Sight};
use self::records::owner_key;
use self::writer_lock::WriteTxn;
use super::record_wire::decode_owner;
use super::{Store, StoreError};
use crate::domain::{
    Adoption, Bid, Claim, ClaimOutcome, ClaimScope, Digest, Expected, FeedNote, KnownRun, Lineage, Marker, Original,
    Owner, RunId, RunRecord, RunStore,
};

/// Claims in one transaction: the sorted keys of more would not fit the memory promised, those of fewer would write
/// the pages of a month more often.
const CLAIMS_PER_TRANSACTION: usize = 98_304;

/// A transaction that reads, or one that writes as well.
type ReadTxn<'a> = RoTxn<'a, WithoutTls>;

/// A store in a folder of this machine.
#[derive(Clone)]
struct LmdbStore {
    address: String,
    path: PathBuf,
    env: Env<WithoutTls>,
    claims: Database<Bytes, Bytes>,
    days: PaymentDays,
    legacy: Option<LegacyClaims>,
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

    /// The marker that `entry` is.
    fn marker(&mut self, txn: &ReadTxn<'_>, entry: &Entry) -> Result<Marker, StoreError> {
        self.marker_of(txn, u32::from_be_bytes(entry.owner), entry.row)
    }

    fn marker_of_legacy(&mut self, txn: &ReadTxn<'_>, marker: LegacyMarker) -> Result<Marker, StoreError> {
        marker.map_or(Ok(Marker::Unreadable), |(number, row)| self.marker_of(txn, number, row))
    }

    /// The marker of `row` by the owner of `number`.
    fn marker_of(&mut self, txn: &ReadTxn<'_>, number: u32, row: u64) -> Result<Marker, StoreError> {
        if let Some(owner) = self.owners.get(&number) {
            return Ok(Marker::Run { owner: Arc::clone(owner), row });
        }
        let found = self.records.get(txn, &owner_key(number)).map_err(|e| told(&self.path, e))?;
        let Some(json) = found else { return Ok(Marker::Unreadable) };
        let owner = Arc::new(decode_owner(json).map_err(|cause| self.corrupt(cause))?);
        self.owners.insert(number, Arc::clone(&owner));
        Ok(Marker::Run { owner, row })
    }

    /// Replaces what `adoption` found by what it makes of it, if it stands there still or was replaced already.
    fn adopt_one(&self, txn: &mut RwTxn<'_>, adoption: &Adoption) -> heed::Result<bool> {
        let Adoption { claim, found: (owner, row), differing, owner: heir } = adoption;
        let content = claim.content();
        let (number, heir) = (self.owner_number(txn, owner)?, self.owner_number(txn, heir)?);
        let old = Entry { owner: number.to_be_bytes(), content: differing.unwrap_or(content), row: *row };
        let new = Entry { owner: heir.to_be_bytes(), content, row: claim.row };
        let (old, new) = (old.encode(), new.encode());
        if differing.is_none()
            && let Some(legacy) = self.legacy
            && legacy.get(txn, claim)? == Some(Some((number, *row)))
        {
            // It comes over into the present layout.
            legacy.delete(txn, claim)?;
            self.days.add(txn, &[Sight::of(claim)])?;
            let own = key(claim.posted_day, &claim.identity);
            let key = if self.claims.get(txn, &own)?.is_some() { version_key(&own, &content) } else { own.to_vec() };
            self.claims.put(txn, &key, new.as_slice())?;
            return Ok(true);
        }
        let days = std::iter::once(claim.posted_day).chain(self.other_days(txn, claim)?);
        for key in days.map(|day| key(day, &claim.identity)) {
            // What differs stands under the payment itself.
            let version = differing.is_none().then(|| version_key(&key, &content));
            for key in [Some(key.to_vec()), version].into_iter().flatten() {
                let standing = self.claims.get(txn, &key)?;
                if standing == Some(new.as_slice()) {
                    return Ok(true);
                }
                if standing == Some(old.as_slice()) {
                    self.claims.put(txn, &key, new.as_slice())?;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

impl RunStore for LmdbStore {
    type Error = StoreError;

    fn claims_per_call(&self) -> usize {
        self.claims_per_call
    }

    fn claim(&mut self, bid: &Bid, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, StoreError> {
        Call::new(bid, claims).make(self)
    }

    /// What is asked of this store is done, or not, when the call returns.
    fn answers_lost(&self) -> u64 {
        0
    }

    fn adopt(&mut self, adoptions: &[Adoption]) -> Result<Vec<bool>, StoreError> {
        self.write(|store, txn| adoptions.iter().map(|adoption| store.adopt_one(txn, adoption)).collect())
    }

    fn look_up(&mut self, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, StoreError> {
        let path = self.path.clone();
        let fail = |error| told(&path, error);
        let env = self.env.clone();
        let txn = env.read_txn().map_err(fail)?;
        let mut outcomes = vec![ClaimOutcome::Novel; claims.len()];
        for index in in_key_order(claims) {
            let claim = &claims[index as usize];
            let days = self.other_days(&txn, claim).map_err(fail)?;
            outcomes[index as usize] = match self.standing(&txn, claim, days).map_err(fail)? {
                Standing::Nothing => ClaimOutcome::Novel,
                Standing::Differing(..) if claim.scope == ClaimScope::Content => ClaimOutcome::Novel,
                Standing::Unreadable => ClaimOutcome::Found(Marker::Unreadable),
                Standing::Same(_, entry) => ClaimOutcome::Found(self.marker(&txn, &entry)?),
                Standing::Legacy(marker) => ClaimOutcome::Found(self.marker_of_legacy(&txn, marker)?),
                Standing::Differing(_, entry) => {
                    let marker = self.marker(&txn, &entry)?;
                    ClaimOutcome::Differs(Box::new(Original { marker, content: entry.content }))
                }
            };
        }
        Ok(outcomes)
    }

    fn release(&mut self, run: &RunId, epoch: u32, claims: &[Claim]) -> Result<u64, StoreError> {
        release::release(self, run, epoch, claims)
    }

    fn release_run(&mut self, run: &RunId) -> Result<u64, StoreError> {
        release::release_run(self, run)
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
