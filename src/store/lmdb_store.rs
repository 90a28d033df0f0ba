//! The embedded store. The only file that knows LMDB.
//!
//! Claims are keyed by the posted date first and by the hash within it. A bank's feed covers a month, so the pages
//! that a run touches are those of its month: inserting stays as fast over twenty million records as over none,
//! where keys in random order read and write all over the file.
//!
//! Default flags only, which make every transaction durable. Several processes may use a store at once; LMDB lets
//! one write at a time.

use std::collections::HashMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use heed::types::{Bytes, Str};
use heed::{Database, Env, EnvFlags, EnvOpenOptions, PutFlags, RoTxn, RwTxn, WithoutTls};

use super::record_wire::{
    Meta, decode_feed_note, decode_meta, decode_owner, decode_run, encode_feed_note, encode_meta, encode_owner,
    encode_run,
};
use super::{Access, MemoryStore, OpenedStore, Store, StoreConfig, StoreError};
use crate::domain::{
    Adoption, Bid, CANONICAL_VERSION, Claim, ClaimOutcome, Digest, Expected, FeedNote, KnownRun, Lease, Lineage,
    Marker, Owner, PostedDay, RunId, RunRecord, RunState, RunStore, SourceHash,
};

/// Claims in one transaction: the sorted keys of more would not fit the memory promised, those of fewer would write
/// the pages of a month more often.
const CLAIMS_PER_TRANSACTION: usize = 98_304;

/// Claims behind each other in a table that large dirty a page each: so many bound a transaction's memory to 96 MiB.
const SCATTERED_CLAIMS_MAX: usize = 24 * 1024;

/// Address space reserved for the store, which bounds its size; the smaller ones are for machines that limit it.
const MAP_SIZES: [usize; 5] = [1 << 40, 1 << 38, 1 << 36, 1 << 34, 1 << 32];

/// Two tables for each key prefix.
const TABLES_MAX: u32 = 512;

/// Claims fetched out of key order at once: the fetches wait for memory together, not one after another.
const CLAIMS_FETCHED: usize = 256;

/// Claims looked through between two transactions, when a run's own are to be found.
const CLAIMS_LOOKED_THROUGH: usize = 1_000_000;

/// The layout's name in the store's own description.
const LAYOUT: &str = "embedded";

/// A posted day in three bytes and a source hash.
const KEY_LEN: usize = 35;

/// What a claim stands under.
type Key = [u8; KEY_LEN];

/// A disk with less room than this, in bytes, is full: the pages of a small transaction do not fit.
const ROOM_MIN: u64 = 64 * 1024;

/// Why a store that was used before is not trusted.
const NOTHING_UNDER_PREFIX: &str = "it holds nothing under the prefix that was used before";

/// Magic numbers of file systems over a network, where LMDB's locks and maps do not hold: NFS, SMB, CIFS, SMB2.
const NETWORK_FILE_SYSTEMS: [u64; 4] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42];

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

pub(super) fn open(config: &StoreConfig, path: &Path) -> Result<OpenedStore, StoreError> {
    let address = config.location.address();
    let exists = path.join("data.mdb").exists();
    match (exists, config.access, &config.remembered) {
        (false, _, Some(_)) => {
            return Err(StoreError::Forgotten { address, cause: "its folder is empty or gone".to_owned() });
        }
        (false, Access::Read, None) => {
            return Ok(nothing_to_read());
        }
        (false, Access::Write { create: false }, None) => return Err(StoreError::Missing { address }),
        (false, Access::Write { create: true }, None) => {
            std::fs::create_dir_all(path).map_err(|source| StoreError::Io { path: display(path), source })?;
        }
        (true, Access::Read | Access::Write { .. }, _) => {}
    }
    refuse_network_file_system(&address, path)?;
    let env = open_env(path, config.access == Access::Read)?;
    refuse_cut_off(&address, path, &env)?;
    // Killed processes leave their places in the table of readers, which is small.
    env.clear_stale_readers().map_err(|error| told(path, error))?;
    let Some(store) = LmdbStore::open_tables(config, path, env)? else {
        return match (&config.remembered, config.access) {
            (Some(_), _) => Err(StoreError::Forgotten { address, cause: NOTHING_UNDER_PREFIX.to_owned() }),
            (None, Access::Write { .. }) => Err(StoreError::Missing { address }),
            (None, Access::Read) => Ok(nothing_to_read()),
        };
    };
    let (sentinel, is_new) = store.check_meta(config)?;
    let age = store.age();
    Ok(OpenedStore { store: Box::new(store), sentinel, age, is_new })
}

/// A store that does not exist, as one that holds nothing.
fn nothing_to_read() -> OpenedStore {
    OpenedStore { store: Box::new(MemoryStore::default()), sentinel: None, age: 0, is_new: false }
}

/// LMDB maps the file and believes its own length: a file that was cut off would end the process, not the call.
fn refuse_cut_off(address: &str, path: &Path, env: &Env<WithoutTls>) -> Result<(), StoreError> {
    let fail = |error| told(path, error);
    let page_size = u64::from(env.stat().page_size);
    let needed = (env.info().last_page_number as u64 + 1) * page_size;
    let found = env.real_disk_size().map_err(fail)?;
    if found >= needed {
        return Ok(());
    }
    let cause = format!("`data.mdb` was cut off: it has {found} bytes and needs {needed}");
    Err(StoreError::Corrupt { address: address.to_owned(), cause })
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

fn refuse_network_file_system(address: &str, path: &Path) -> Result<(), StoreError> {
    let about =
        rustix::fs::statfs(path).map_err(|errno| StoreError::Io { path: display(path), source: errno.into() })?;
    let kind = u64::from_ne_bytes(about.f_type.to_ne_bytes()) & 0xffff_ffff;
    if !NETWORK_FILE_SYSTEMS.contains(&kind) {
        return Ok(());
    }
    Err(StoreError::Unfit {
        address: address.to_owned(),
        cause: "its folder is on a network file system, where two hosts would not see each other's locks".to_owned(),
        hint: "give a folder on a disk of this machine, or share a Redis server".to_owned(),
    })
}

fn open_env(path: &Path, read_only: bool) -> Result<Env<WithoutTls>, StoreError> {
    let mut last = None;
    for map_size in MAP_SIZES {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(map_size).max_dbs(TABLES_MAX);
        if read_only {
            #[expect(unsafe_code, reason = "a read-only environment takes no more from the caller than any other")]
            unsafe {
                options.flags(EnvFlags::READ_ONLY);
            }
        }
        #[expect(unsafe_code, reason = "LMDB maps the file: nobody else may write to it, which the manual demands")]
        let opened = unsafe { options.open(path) };
        match opened {
            Ok(env) => return Ok(env),
            // No address space for a map of this size: the next is smaller.
            Err(heed::Error::Io(error)) if error.kind() == std::io::ErrorKind::OutOfMemory => last = Some(error),
            Err(error) => return Err(told(path, error)),
        }
    }
    let source = last.unwrap_or_else(|| std::io::ErrorKind::OutOfMemory.into());
    Err(StoreError::Io { path: display(path), source })
}

/// The number of the system's input/output error.
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

/// Whether the disk under the store has less room than a transaction needs at the least.
fn is_disk_full(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|about| about.f_bavail.saturating_mul(about.f_frsize) < ROOM_MIN)
}

/// An error of the library in the words of stores.
fn told(path: &Path, error: heed::Error) -> StoreError {
    let address = format!("file:{}", path.display());
    match error {
        // LMDB calls a write that was cut short an input/output error.
        heed::Error::Io(source) if source.raw_os_error() == Some(EIO) && is_disk_full(path) => {
            StoreError::Io { path: display(path), source: std::io::ErrorKind::StorageFull.into() }
        }
        heed::Error::Io(source) => StoreError::Io { path: display(path), source },
        heed::Error::Mdb(heed::MdbError::MapFull) => {
            StoreError::Io { path: display(path), source: std::io::ErrorKind::StorageFull.into() }
        }
        heed::Error::Mdb(heed::MdbError::ReadersFull) => {
            StoreError::Busy { address, cause: "too many processes are reading it".to_owned() }
        }
        heed::Error::Mdb(heed::MdbError::DbsFull) => StoreError::Unfit {
            address,
            cause: format!("it holds {} key prefixes, which is its limit", TABLES_MAX / 2),
            hint: "give the further prefixes a store of their own".to_owned(),
        },
        heed::Error::Mdb(heed::MdbError::MapResized) => StoreError::Unfit {
            address,
            cause: "it has outgrown the address space that this process may reserve".to_owned(),
            hint: "raise the limit of virtual memory (`ulimit -v`)".to_owned(),
        },
        other @ (heed::Error::Mdb(_)
        | heed::Error::Encoding(_)
        | heed::Error::Decoding(_)
        | heed::Error::EnvAlreadyOpened) => StoreError::Corrupt { address, cause: other.to_string() },
    }
}

impl LmdbStore {
    /// The store of the prefix in `env`; none if it has none and none may be made.
    fn open_tables(config: &StoreConfig, path: &Path, env: Env<WithoutTls>) -> Result<Option<Self>, StoreError> {
        let address = config.location.address();
        let fail = |error| told(path, error);
        let (claims_name, records_name) = (format!("claims:{}", config.prefix), format!("records:{}", config.prefix));
        let create = config.access == Access::Write { create: true };
        let (claims, records) = if create {
            let mut txn = env.write_txn().map_err(fail)?;
            let claims = env.create_database(&mut txn, Some(&claims_name)).map_err(fail)?;
            let records = env.create_database(&mut txn, Some(&records_name)).map_err(fail)?;
            txn.commit().map_err(fail)?;
            (claims, records)
        } else {
            let txn = env.read_txn().map_err(fail)?;
            let claims = env.open_database(&txn, Some(&claims_name)).map_err(fail)?;
            let records = env.open_database(&txn, Some(&records_name)).map_err(fail)?;
            // Committed, and not dropped, so that the handles outlive the transaction.
            txn.commit().map_err(fail)?;
            match (claims, records) {
                (Some(claims), Some(records)) => (claims, records),
                _ => return Ok(None),
            }
        };
        let claims_per_call = config.batch_size.unwrap_or(CLAIMS_PER_TRANSACTION);
        let path = path.to_owned();
        Ok(Some(Self { address, path, env, claims, records, claims_per_call, owners: HashMap::new() }))
    }

    /// Compares the store's description with what is expected, or writes one; returns its sentinel.
    fn check_meta(&self, config: &StoreConfig) -> Result<(Option<String>, bool), StoreError> {
        let is_first_use = config.remembered.is_none() && config.access == Access::Write { create: true };
        let (json, is_new) = match self.record("meta")? {
            Some(json) => (json, false),
            None if is_first_use => self.create_meta()?,
            None if config.remembered.is_some() => {
                return Err(StoreError::Forgotten {
                    address: self.address.clone(),
                    cause: NOTHING_UNDER_PREFIX.to_owned(),
                });
            }
            None if config.access == Access::Read => return Ok((None, false)),
            None => return Err(StoreError::Missing { address: self.address.clone() }),
        };
        let meta = decode_meta(&json).map_err(|cause| self.corrupt(cause))?;
        if meta.version != CANONICAL_VERSION || meta.layout != LAYOUT {
            return Err(StoreError::OtherVersion {
                address: self.address.clone(),
                found: format!("version {} in layout `{}`", meta.version, meta.layout),
                expected: format!("version {CANONICAL_VERSION} in layout `{LAYOUT}`"),
            });
        }
        if config.remembered.as_ref().is_some_and(|remembered| *remembered != meta.sentinel) {
            let cause = "it is another store than the one that was used before".to_owned();
            return Err(StoreError::Forgotten { address: self.address.clone(), cause });
        }
        Ok((Some(meta.sentinel), is_new))
    }

    /// Writes a description unless another process was faster; returns the one that stands, and whether it is ours.
    fn create_meta(&self) -> Result<(String, bool), StoreError> {
        let layout = LAYOUT.to_owned();
        let ours = encode_meta(&Meta { version: CANONICAL_VERSION, layout, sentinel: super::random_hex() });
        let standing = self.write(|store, txn| Ok(store.records.get_or_put(txn, "meta", &ours)?.map(str::to_owned)))?;
        Ok(standing.map_or((ours, true), |standing| (standing, false)))
    }

    /// LMDB numbers its transactions.
    fn age(&self) -> u64 {
        self.env.info().last_txn_id as u64
    }

    fn told(&self, error: heed::Error) -> StoreError {
        told(&self.path, error)
    }

    fn corrupt(&self, cause: impl Into<String>) -> StoreError {
        StoreError::Corrupt { address: self.address.clone(), cause: cause.into() }
    }

    /// One durable transaction.
    fn write<T>(&self, act: impl FnOnce(&Self, &mut RwTxn<'_>) -> heed::Result<T>) -> Result<T, StoreError> {
        let mut txn = self.env.write_txn().map_err(|e| self.told(e))?;
        let done = act(self, &mut txn).map_err(|e| self.told(e))?;
        txn.commit().map_err(|e| self.told(e))?;
        Ok(done)
    }

    fn record(&self, key: &str) -> Result<Option<String>, StoreError> {
        let txn = self.env.read_txn().map_err(|e| self.told(e))?;
        Ok(self.records.get(&txn, key).map_err(|e| self.told(e))?.map(str::to_owned))
    }

    /// The number that stands for `bid` in claims, given now if it has none.
    fn owner_number(&self, txn: &mut RwTxn<'_>, bid: &Bid) -> heed::Result<u32> {
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
        let mut txn = env.write_txn().map_err(fail)?;
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

    /// The record of `run` and how its lease stands.
    fn known_run(&self, txn: &RoTxn<'_, WithoutTls>, run: &RunId) -> Result<Option<KnownRun>, StoreError> {
        let json = self.records.get(txn, &run_key(run)).map_err(|e| self.told(e))?;
        let Some(json) = json else { return Ok(None) };
        let record = decode_run(json).map_err(|cause| self.corrupt(cause))?;
        Ok(Some(KnownRun { record, lease: self.lease(txn, run)? }))
    }

    fn lease(&self, txn: &RoTxn<'_, WithoutTls>, run: &RunId) -> Result<Lease, StoreError> {
        let end = self.records.get(txn, &lease_key(run)).map_err(|e| self.told(e))?;
        // An end that cannot be read is unknown, and never over.
        let Some(end) = end.and_then(|millis| millis.parse().ok()).map(Duration::from_millis) else {
            return Ok(Lease::Unknown);
        };
        let left = end.saturating_sub(since_epoch());
        Ok(if left.is_zero() { Lease::Over } else { Lease::Running { left } })
    }

    fn put_lease(&self, txn: &mut RwTxn<'_>, run: &RunId, lease: Duration) -> Result<(), StoreError> {
        let end = (since_epoch() + lease).as_millis().to_string();
        self.records.put(txn, &lease_key(run), &end).map_err(|e| self.told(e))
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
        let mut txn = env.write_txn().map_err(fail)?;
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

/// What the keys of run records begin with.
const RUN_KEY_START: &str = "run:";

fn run_key(run: &RunId) -> String {
    format!("{RUN_KEY_START}{run}")
}

fn lease_key(run: &RunId) -> String {
    format!("lease:{run}")
}

/// Whether a run stands as `expected`.
fn is_as(known: Option<&KnownRun>, expected: Option<Expected>) -> bool {
    match (known, expected) {
        (None, None) => true,
        (Some(KnownRun { record, lease }), Some(Expected { state, epoch, lease_over })) => {
            record.state == state && record.epoch == epoch && (!lease_over || *lease == Lease::Over)
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// This machine's clock, which all users of the store share. Leases alone go by it.
fn since_epoch() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

fn owner_key(number: u32) -> String {
    format!("owner:{number}")
}

fn key_of(claim: &Claim) -> [u8; KEY_LEN] {
    key(claim.posted_day, &claim.source_hash)
}

fn key(day: PostedDay, hash: &SourceHash) -> [u8; KEY_LEN] {
    let [high, days @ ..] = day.0.to_be_bytes();
    assert_eq!(high, 0, "four digits of year are fewer than 2^24 days");
    let mut key = [0; KEY_LEN];
    key[..3].copy_from_slice(&days);
    key[3..].copy_from_slice(hash.as_bytes());
    key
}

/// A claim's value: the owner's number in four bytes, and the row in as many as it needs.
struct Value {
    bytes: [u8; 12],
    start: usize,
}

impl Value {
    fn new(number: u32, row: u64) -> Self {
        let unused = (row.leading_zeros() / 8).min(7) as usize;
        let mut bytes = [0; 12];
        bytes[4..].copy_from_slice(&row.to_be_bytes());
        bytes[unused..unused + 4].copy_from_slice(&number.to_be_bytes());
        Self { bytes, start: unused }
    }

    /// A value out of the store's pages; none if it is longer than any of ours.
    fn copied(found: &[u8]) -> Option<Self> {
        let start = 12_usize.checked_sub(found.len())?;
        let mut bytes = [0; 12];
        bytes[start..].copy_from_slice(found);
        Some(Self { bytes, start })
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

fn decode_value(value: &[u8]) -> Option<(u32, u64)> {
    let (number, row) = value.split_first_chunk::<4>()?;
    if row.is_empty() || row.len() > 8 {
        return None;
    }
    Some((u32::from_be_bytes(*number), row.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))))
}

/// Index, key and row of the claims at the indexes of `order`, in that order.
fn fetched_in_order<'a>(claims: &'a [Claim], order: &'a [u32]) -> impl Iterator<Item = (u32, [u8; KEY_LEN], u64)> + 'a {
    order.chunks(CLAIMS_FETCHED).flat_map(move |indexes| {
        let fetch = |&index: &u32| {
            let claim = &claims[index as usize];
            (index, key_of(claim), claim.row)
        };
        indexes.iter().map(fetch).collect::<Vec<_>>()
    })
}

/// The indexes of `claims` by key, the first of equal ones first.
fn in_key_order(claims: &[Claim]) -> Vec<u32> {
    let leading = |claim: &Claim| {
        let [a, b, c, d, e, ..] = *claim.source_hash.as_bytes();
        u64::from(claim.posted_day.0) << 40 | u64::from_be_bytes([0, 0, 0, a, b, c, d, e])
    };
    let numbered = claims.iter().zip(0_u32..);
    let mut order: Vec<(u64, u32)> = numbered.map(|(claim, index)| (leading(claim), index)).collect();
    // Keys that agree in their first eight bytes may stand in the wrong order, which costs time and nothing else.
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
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

    fn adopt(&mut self, adoptions: &[Adoption]) -> Result<Vec<bool>, StoreError> {
        let path = self.path.clone();
        let fail = |error| told(&path, error);
        let env = self.env.clone();
        let mut txn = env.write_txn().map_err(fail)?;
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
        let txn = self.env.read_txn().map_err(|e| self.told(e))?;
        self.known_run(&txn, run)
    }

    fn write_run(
        &mut self,
        expected: Option<Expected>,
        record: &RunRecord,
        lease: Option<Duration>,
    ) -> Result<bool, StoreError> {
        let mut txn = self.env.write_txn().map_err(|e| self.told(e))?;
        let known = self.known_run(&txn, &record.run)?;
        if known.as_ref().is_none_or(|known| known.record != *record) {
            if !is_as(known.as_ref(), expected) {
                return Ok(false);
            }
            let json = encode_run(record);
            self.records.put(&mut txn, &run_key(&record.run), &json).map_err(|e| self.told(e))?;
        }
        if let Some(lease) = lease {
            self.put_lease(&mut txn, &record.run, lease)?;
        }
        txn.commit().map_err(|e| self.told(e))?;
        Ok(true)
    }

    fn renew_lease(&mut self, run: &RunId, epoch: u32, lease: Duration) -> Result<bool, StoreError> {
        let mut txn = self.env.write_txn().map_err(|e| self.told(e))?;
        let is_ours = |known: KnownRun| {
            known.record.epoch == epoch && !matches!(known.record.state, RunState::Fenced | RunState::Reverted)
        };
        if !self.known_run(&txn, run)?.is_some_and(is_ours) {
            return Ok(false);
        }
        self.put_lease(&mut txn, run, lease)?;
        txn.commit().map_err(|e| self.told(e))?;
        Ok(true)
    }

    fn each_run(&mut self, act: &mut dyn FnMut(KnownRun)) -> Result<(), StoreError> {
        let txn = self.env.read_txn().map_err(|e| self.told(e))?;
        for entry in self.records.prefix_iter(&txn, RUN_KEY_START).map_err(|e| self.told(e))? {
            let (_, json) = entry.map_err(|e| self.told(e))?;
            let record = decode_run(json).map_err(|cause| self.corrupt(cause))?;
            let lease = self.lease(&txn, &record.run)?;
            act(KnownRun { record, lease });
        }
        Ok(())
    }

    fn feed_note(&mut self, feed: &Digest, meaning: &Digest) -> Result<Option<FeedNote>, StoreError> {
        let json = self.record(&format!("feed:{feed}:{meaning}"))?;
        json.map(|json| decode_feed_note(&json).map_err(|cause| self.corrupt(cause))).transpose()
    }

    fn write_feed_note(&mut self, feed: &Digest, meaning: &Digest, note: &FeedNote) -> Result<(), StoreError> {
        let key = format!("feed:{feed}:{meaning}");
        self.write(|store, txn| store.records.put(txn, &key, &encode_feed_note(note)))
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Hands out handles on one store: an environment may be opened once in a process.
    pub(in crate::store) fn handles(config: &StoreConfig, path: &Path) -> impl Fn() -> Box<dyn Store> + use<> {
        let store = LmdbStore::open_tables(config, path, open_env(path, false).unwrap()).unwrap().unwrap();
        move || Box::new(store.clone())
    }

    #[test]
    fn values_come_back_in_as_few_bytes_as_they_need() {
        for (row, len) in [(1, 5), (255, 5), (256, 6), (2_000_000, 7), (u64::MAX, 12), (0, 5)] {
            let value = Value::new(7, row);
            assert_eq!(decode_value(value.as_bytes()), Some((7, row)));
            assert_eq!(value.as_bytes().len(), len);
        }
        assert_eq!(decode_value(&[0, 0, 0, 1]), None);
        assert_eq!(decode_value(&[0; 13]), None);
    }
}
