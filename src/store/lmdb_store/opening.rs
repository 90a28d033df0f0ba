//! Opening: is it a place that keeps claims, and is it the store that was used before?

use std::collections::HashMap;
use std::path::Path;

use heed::types::Str;
use heed::{Env, EnvFlags, EnvOpenOptions, WithoutTls};

use super::failure::told;
use super::legacy::LegacyClaims;
use super::payment_days::PaymentDays;
use super::writer_lock::{WriteTxn, WriterLock};
use super::{CLAIMS_PER_TRANSACTION, LmdbStore, display};
use crate::domain::CANONICAL_VERSION;
use crate::store::record_wire::{Meta, decode_meta, encode_meta};
use crate::store::{Access, MemoryStore, OpenedStore, StoreConfig, StoreError, random_hex};

/// Address space reserved for the store, which bounds its size; the smaller ones are for machines that limit it.
const MAP_SIZES: [usize; 5] = [1 << 40, 1 << 38, 1 << 36, 1 << 34, 1 << 32];

/// Four tables for each key prefix.
pub(super) const TABLES_MAX: u32 = 1_024;

/// The layout's name in the store's own description.
const LAYOUT: &str = "embedded-2";

/// The first layout, whose claims are still believed.
const LEGACY_LAYOUT: &str = "embedded";

/// Why a store that was used before is not trusted.
const NOTHING_UNDER_PREFIX: &str = "it holds nothing under the prefix that was used before";

/// Magic numbers of file systems over a network, where LMDB's locks and maps do not hold: NFS, SMB, CIFS, SMB2.
const NETWORK_FILE_SYSTEMS: [u64; 4] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42];

pub(in crate::store) fn open(config: &StoreConfig, path: &Path) -> Result<OpenedStore, StoreError> {
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
    let env = open_alone(&address, path, config.access)?;
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

/// The environment, opened while nobody else opens it or writes to it: one that is half set up would look corrupt.
///
/// What is written afterwards, tables and description, takes the lock again.
fn open_alone(address: &str, path: &Path, access: Access) -> Result<Env<WithoutTls>, StoreError> {
    let is_reading = access == Access::Read;
    let _lock = if is_reading { WriterLock::take_existing(path)? } else { Some(WriterLock::take(path)?) };
    let env = open_env(path, is_reading)?;
    refuse_cut_off(address, path, &env)?;
    // Killed processes leave their places in the table of readers, which is small.
    env.clear_stale_readers().map_err(|error| told(path, error))?;
    Ok(env)
}

fn expected_version() -> String {
    format!("version {CANONICAL_VERSION} in layout `{LAYOUT}`")
}

fn other_layout(address: String, layout: &str) -> StoreError {
    let found = format!("version {CANONICAL_VERSION} in layout `{layout}`");
    StoreError::OtherVersion { address, found, expected: expected_version() }
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

pub(super) fn open_env(path: &Path, read_only: bool) -> Result<Env<WithoutTls>, StoreError> {
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

impl LmdbStore {
    /// The store of the prefix in `env`; none if it has none and none may be made.
    pub(super) fn open_tables(
        config: &StoreConfig,
        path: &Path,
        env: Env<WithoutTls>,
    ) -> Result<Option<Self>, StoreError> {
        let address = config.location.address();
        let fail = |error| told(path, error);
        let name = |kind: &str| format!("{kind}:{}", config.prefix);
        let create = config.access == Access::Write { create: true };
        let (claims, days, records) = if create {
            let mut txn = WriteTxn::begin(&env, path)?;
            let claims = env.create_database(&mut txn, Some(&name("payments"))).map_err(fail)?;
            let days = env.create_database(&mut txn, Some(&name("days"))).map_err(fail)?;
            let records = env.create_database(&mut txn, Some(&name("records"))).map_err(fail)?;
            txn.commit().map_err(fail)?;
            (claims, days, records)
        } else {
            let txn = env.read_txn().map_err(fail)?;
            let claims = env.open_database(&txn, Some(&name("payments"))).map_err(fail)?;
            let days = env.open_database(&txn, Some(&name("days"))).map_err(fail)?;
            let records = env.open_database::<Str, Str>(&txn, Some(&name("records"))).map_err(fail)?;
            // Committed, and not dropped, so that the handles outlive the transaction.
            txn.commit().map_err(fail)?;
            match (claims, days, records) {
                (Some(claims), Some(days), Some(records)) => (claims, days, records),
                (None, _, Some(_)) | (_, None, Some(_)) => return Err(other_layout(address, LEGACY_LAYOUT)),
                _ => return Ok(None),
            }
        };
        let txn = env.read_txn().map_err(fail)?;
        let legacy = env.open_database(&txn, Some(&name("claims"))).map_err(fail)?;
        let legacy = legacy.map_or(Ok(None), |table| LegacyClaims::of(table, &txn)).map_err(fail)?;
        txn.commit().map_err(fail)?;
        let claims_per_call = config.batch_size.unwrap_or(CLAIMS_PER_TRANSACTION);
        let path = path.to_owned();
        Ok(Some(Self {
            address,
            path,
            env,
            claims,
            days: PaymentDays { table: days },
            legacy,
            records,
            claims_per_call,
            owners: HashMap::new(),
        }))
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
        let mut meta = decode_meta(&json).map_err(|cause| self.corrupt(cause))?;
        if meta.version != CANONICAL_VERSION {
            return Err(StoreError::OtherVersion {
                address: self.address.clone(),
                found: format!("version {} in layout `{}`", meta.version, meta.layout),
                expected: expected_version(),
            });
        }
        if meta.layout == LEGACY_LAYOUT && config.access != Access::Read {
            // From here on a program that knows the first layout only must not find half of the claims.
            meta.layout = LAYOUT.to_owned();
            self.write(|store, txn| store.records.put(txn, "meta", &encode_meta(&meta)))?;
        }
        if meta.layout != LAYOUT {
            return Err(other_layout(self.address.clone(), &meta.layout));
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
        let ours = encode_meta(&Meta { version: CANONICAL_VERSION, layout, sentinel: random_hex(), buckets: None });
        let standing = self.write(|store, txn| Ok(store.records.get_or_put(txn, "meta", &ours)?.map(str::to_owned)))?;
        Ok(standing.map_or((ours, true), |standing| (standing, false)))
    }

    /// LMDB numbers its transactions.
    pub(super) fn age(&self) -> u64 {
        self.env.info().last_txn_id as u64
    }
}
