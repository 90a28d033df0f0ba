//! Run records, leases, feed notes and the numbers of owners: texts in a table of their own.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use heed::{RoTxn, RwTxn, WithoutTls};

use super::LmdbStore;
use super::writer_lock::WriteTxn;
use crate::domain::{Bid, Digest, Expected, FeedNote, KnownRun, Lease, RunId, RunRecord};
use crate::store::StoreError;
use crate::store::record_wire::{decode_feed_note, decode_run, encode_feed_note, encode_owner, encode_run};

/// What the keys of run records begin with.
const RUN_KEY_START: &str = "run:";

pub(super) fn run_record(store: &LmdbStore, run: &RunId) -> Result<Option<KnownRun>, StoreError> {
    let txn = store.env.read_txn().map_err(|e| store.told(e))?;
    store.known_run(&txn, run)
}

pub(super) fn write_run(
    store: &LmdbStore,
    expected: Option<Expected>,
    record: &RunRecord,
    lease: Option<Duration>,
) -> Result<bool, StoreError> {
    let mut txn = WriteTxn::begin(&store.env, &store.path)?;
    let known = store.known_run(&txn, &record.run)?;
    if known.as_ref().is_none_or(|known| known.record != *record) {
        if !Expected::is_met(expected, known.as_ref()) {
            return Ok(false);
        }
        let json = encode_run(record);
        store.records.put(&mut txn, &run_key(&record.run), &json).map_err(|e| store.told(e))?;
    }
    if let Some(lease) = lease {
        store.put_lease(&mut txn, &record.run, lease)?;
    }
    txn.commit().map_err(|e| store.told(e))?;
    Ok(true)
}

pub(super) fn renew_lease(store: &LmdbStore, run: &RunId, epoch: u32, lease: Duration) -> Result<bool, StoreError> {
    let mut txn = WriteTxn::begin(&store.env, &store.path)?;
    if !store.known_run(&txn, run)?.is_some_and(|known| known.record.is_alive_in(epoch)) {
        return Ok(false);
    }
    store.put_lease(&mut txn, run, lease)?;
    txn.commit().map_err(|e| store.told(e))?;
    Ok(true)
}

pub(super) fn each_run(store: &LmdbStore, act: &mut dyn FnMut(KnownRun)) -> Result<(), StoreError> {
    let txn = store.env.read_txn().map_err(|e| store.told(e))?;
    for entry in store.records.prefix_iter(&txn, RUN_KEY_START).map_err(|e| store.told(e))? {
        let (_, json) = entry.map_err(|e| store.told(e))?;
        let record = decode_run(json).map_err(|cause| store.corrupt(cause))?;
        let lease = store.lease(&txn, &record.run)?;
        act(KnownRun { record, lease });
    }
    Ok(())
}

pub(super) fn feed_note(store: &LmdbStore, feed: &Digest, meaning: &Digest) -> Result<Option<FeedNote>, StoreError> {
    let json = store.record(&format!("feed:{feed}:{meaning}"))?;
    json.map(|json| decode_feed_note(&json).map_err(|cause| store.corrupt(cause))).transpose()
}

pub(super) fn write_feed_note(
    store: &LmdbStore,
    feed: &Digest,
    meaning: &Digest,
    note: &FeedNote,
) -> Result<(), StoreError> {
    let key = format!("feed:{feed}:{meaning}");
    store.write(|store, txn| store.records.put(txn, &key, &encode_feed_note(note)))
}

impl LmdbStore {
    pub(super) fn record(&self, key: &str) -> Result<Option<String>, StoreError> {
        let txn = self.env.read_txn().map_err(|e| self.told(e))?;
        Ok(self.records.get(&txn, key).map_err(|e| self.told(e))?.map(str::to_owned))
    }

    /// The number that stands for `bid` in claims, given now if it has none.
    pub(super) fn owner_number(&self, txn: &mut RwTxn<'_>, bid: &Bid) -> heed::Result<u32> {
        let key = format!("number:{}:{}:{}", bid.run, bid.epoch, bid.seen_at);
        if let Some(number) = self.records.get(txn, &key)?.and_then(|text| text.parse().ok()) {
            return Ok(number);
        }
        let last: u32 = self.records.get(txn, "owners")?.and_then(|text| text.parse().ok()).unwrap_or(0);
        let number = last + 1;
        self.records.put(txn, "owners", &number.to_string())?;
        self.records.put(txn, &key, &number.to_string())?;
        self.records.put(txn, &owner_key(number), &encode_owner(bid))?;
        Ok(number)
    }

    /// The record of `run` and how its lease stands.
    fn known_run(&self, txn: &RoTxn<'_, WithoutTls>, run: &RunId) -> Result<Option<KnownRun>, StoreError> {
        let json = self.records.get(txn, &run_key(run)).map_err(|e| self.told(e))?;
        let Some(json) = json else { return Ok(None) };
        let record = decode_run(json).map_err(|cause| self.corrupt(cause))?;
        Ok(Some(KnownRun { record, lease: self.lease(txn, run)? }))
    }

    fn lease(&self, txn: &RoTxn<'_, WithoutTls>, run: &RunId) -> Result<Lease, StoreError> {
        let end = self.records.get(txn, &lease_key(run)).map_err(|e| self.told(e))?;
        let end = end.and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
        Ok(Lease::ending_at(end, since_epoch()))
    }

    fn put_lease(&self, txn: &mut RwTxn<'_>, run: &RunId, lease: Duration) -> Result<(), StoreError> {
        let end = (since_epoch() + lease).as_millis().to_string();
        self.records.put(txn, &lease_key(run), &end).map_err(|e| self.told(e))
    }
}

fn run_key(run: &RunId) -> String {
    format!("{RUN_KEY_START}{run}")
}

fn lease_key(run: &RunId) -> String {
    format!("lease:{run}")
}

/// This machine's clock, which all users of the store share. Leases alone go by it.
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

pub(super) fn owner_key(number: u32) -> String {
    format!("owner:{number}")
}
