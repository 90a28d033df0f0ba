//! Opening: is it a server that keeps claims, and is it the store that was used before?

use redis::{Connection, ErrorKind, RedisResult, ServerErrorKind, cmd};

use super::connection::Place;
use super::entries::{Buckets, EntryCommands};
use super::references::References;
use super::replication::Replicas;
use super::{RedisStore, Server};
use crate::domain::CANONICAL_VERSION;
use crate::store::marker::Owners;
use crate::store::record_wire::{Meta, decode_meta, encode_meta};
use crate::store::{Access, OpenedStore, StoreConfig, StoreError, random_hex};

/// The layout of keys that other writers can share.
const LAYOUT: &str = "shared";

/// Records that a store is made for where nothing is said.
const EXPECTED_RECORDS: u64 = 4_000_000;

/// The key that counts published runs.
const AGE_KEY: &str = "age";

/// The one policy under which a full server refuses claims; every other one drops old claims without a word.
const SAFE_POLICY: &str = "noeviction";

/// Attempts while opening: a person may be waiting, and nothing is lost yet.
const OPEN_ATTEMPTS_MAX: u32 = 3;

/// How long the key of the probe lives if it could not be deleted.
const PROBE_TTL_SECONDS: u64 = 60;

/// Opens the store that `config` names.
pub(in crate::store) fn open(config: &StoreConfig) -> Result<OpenedStore, StoreError> {
    let (mut store, is_new) = open_store(config)?;
    let sentinel = store.server.place.meta.as_ref().map(|meta| meta.sentinel.clone());
    let age = age(&mut store.server)?;
    Ok(OpenedStore { store: Box::new(store), sentinel, age, is_new })
}

/// The store, and whether it was created just now.
pub(super) fn open_store(config: &StoreConfig) -> Result<(RedisStore, bool), StoreError> {
    let mut server = Server::new(Place::new(config)?, config);
    server.failures_max = config.failures_max.min(OPEN_ATTEMPTS_MAX);
    // Our own connection first: its login tells a refused one from a server that cannot take one now.
    server.connect()?;
    check_policy(&mut server)?;
    let mut found = read_meta(&mut server)?;
    let mut is_new = false;
    match config.access {
        Access::Write { create } => {
            // A store that may not be created is not touched.
            if found.is_none() && config.remembered.is_none() && !create {
                return Err(StoreError::Missing { address: server.place.address });
            }
            probe_claims(&mut server)?;
            if found.is_none() && config.remembered.is_none() {
                (found, is_new) = create_meta(&mut server, config.expected_records)?;
            }
        }
        Access::Read => {}
    }
    server.place.meta = check_meta(&server.place, config.remembered.as_deref(), found)?;
    server.failures_max = config.failures_max;
    let evicted_keys = evicted_keys(&mut server)?;
    let (claim_ttl, access, replicas) = (config.claim_ttl, config.access, Replicas::new(config));
    let buckets = buckets_of(&server.place)?;
    let entries = EntryCommands::new(&server.place.prefix, buckets);
    let (owners, references) = (Owners::default(), References::default());
    Ok((RedisStore { server, owners, references, entries, claim_ttl, access, evicted_keys, replicas }, is_new))
}

/// How the store spreads the entries of payments. One that was made before there were any begins with the default.
fn buckets_of(place: &Place) -> Result<Buckets, StoreError> {
    let wire = place.meta.as_ref().and_then(|meta| meta.buckets);
    let Some(wire) = wire else { return Ok(Buckets::for_records(EXPECTED_RECORDS)) };
    Buckets::of_wire(wire).ok_or_else(|| StoreError::Corrupt {
        address: place.address.clone(),
        cause: format!("key `{}`: buckets of {} bits cannot be", place.key("meta"), wire.bits),
    })
}

/// That the server is the one that was opened, was not emptied, and has dropped no key since.
pub(super) fn check_intact(server: &mut Server, evicted_at_open: u64) -> Result<(), StoreError> {
    let found = read_meta(server)?;
    let remembered = server.place.meta.as_ref().map(|meta| meta.sentinel.clone());
    check_meta(&server.place, remembered.as_deref(), found)?;
    // A server that was started anew counts from zero: fewer than before is no proof that none were dropped.
    let evicted = evicted_keys(server)?;
    if evicted <= evicted_at_open {
        return Ok(());
    }
    let cause = format!("it dropped {} keys for lack of room during the run", evicted - evicted_at_open);
    Err(StoreError::Forgotten { address: server.place.address.clone(), cause })
}

/// How many runs the store has seen published; a copy that is restored has seen fewer.
fn age(server: &mut Server) -> Result<u64, StoreError> {
    let key = server.place.key(AGE_KEY);
    let age: Option<u64> = server.operate(|control| cmd("GET").arg(&key).query(control))?;
    Ok(age.unwrap_or(0))
}

/// Counts a published run; counting it twice, after an answer that was lost, does no harm.
pub(super) fn advance_age(server: &mut Server) -> Result<u64, StoreError> {
    let key = server.place.key(AGE_KEY);
    server.operate(|control| cmd("INCR").arg(&key).query(control))
}

fn evicted_keys(server: &mut Server) -> Result<u64, StoreError> {
    let info: String = server.operate(|control| cmd("INFO").arg("stats").query(control))?;
    let count = info.lines().find_map(|line| line.strip_prefix("evicted_keys:"));
    // A server that does not say counts none; its policy was checked.
    Ok(count.and_then(|count| count.trim_end().parse().ok()).unwrap_or(0))
}

fn check_policy(server: &mut Server) -> Result<(), StoreError> {
    let info: String = server.operate(|control| cmd("INFO").arg("memory").query(control))?;
    let policy = info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:")).map(str::trim_end);
    let cause = match policy {
        Some(SAFE_POLICY) => return Ok(()),
        Some(other) => format!("its `maxmemory-policy` is `{other}`, under which it drops claims"),
        None => "it does not say what its `maxmemory-policy` is".to_owned(),
    };
    let hint = format!("set `maxmemory-policy {SAFE_POLICY}` on the server, in its configuration file too");
    Err(StoreError::Unfit { address: server.place.address.clone(), cause, hint })
}

/// Tries on a key of its own whether a claim does what it must; the version a server states is no proof.
fn probe_claims(server: &mut Server) -> Result<(), StoreError> {
    let key_start = server.place.key("probe:");
    // A new key each attempt: one whose answer was lost may have left its own behind.
    if server.operate(|control| try_claims(control, &format!("{key_start}{}", random_hex())))? {
        return Ok(());
    }
    Err(StoreError::Unfit {
        address: server.place.address.clone(),
        cause: "it does not carry out `SET … NX GET EX` as Redis does".to_owned(),
        hint: "Redis 7.0, Valkey 7.2 or a later version of either is needed".to_owned(),
    })
}

fn try_claims(control: &mut Connection, key: &str) -> RedisResult<bool> {
    let mut claim = |marker: &str| -> RedisResult<Option<String>> {
        let mut set = cmd("SET");
        set.arg(key).arg(marker).arg("NX").arg("GET").arg("EX").arg(PROBE_TTL_SECONDS);
        set.query(control)
    };
    let answers = claim("first").and_then(|first| Ok((first, claim("second")?)));
    let works = match answers {
        Ok((None, Some(found))) => found == "first" && cmd("PTTL").arg(key).query::<i64>(control)? > 0,
        Ok((None, None) | (Some(_), _)) => false,
        // How a server before 7.0 answers: it does not let the two words stand together.
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::ResponseError) => false,
        Err(error) => return Err(error),
    };
    cmd("DEL").arg(key).query::<()>(control)?;
    Ok(works)
}

fn read_meta(server: &mut Server) -> Result<Option<Meta>, StoreError> {
    let key = server.place.key("meta");
    let json: Option<String> = server.operate(|control| cmd("GET").arg(&key).query(control))?;
    let corrupt =
        |cause| StoreError::Corrupt { address: server.place.address.clone(), cause: format!("key `{key}`: {cause}") };
    json.map(|json| decode_meta(&json).map_err(corrupt)).transpose()
}

/// Creates the store's description unless somebody else is faster; returns the one that stands, and whether it is ours.
fn create_meta(server: &mut Server, expected_records: u64) -> Result<(Option<Meta>, bool), StoreError> {
    let key = server.place.key("meta");
    let buckets = Some(Buckets::for_records(expected_records).wire());
    let ours = Meta { version: CANONICAL_VERSION, layout: LAYOUT.to_owned(), sentinel: random_hex(), buckets };
    let json = encode_meta(&ours);
    server.operate(|control| cmd("SET").arg(&key).arg(&json).arg("NX").query::<Option<String>>(control))?;
    // Read back instead of believing the answer, which may be that of a second attempt.
    let standing = read_meta(server)?;
    let is_ours = standing.as_ref() == Some(&ours);
    Ok((standing, is_ours))
}

/// What the store says of itself, if it is one that this program may go on with.
fn check_meta(place: &Place, remembered: Option<&str>, found: Option<Meta>) -> Result<Option<Meta>, StoreError> {
    let address = || place.address.clone();
    let forgotten = |cause: &str| StoreError::Forgotten { address: address(), cause: cause.to_owned() };
    let Some(meta) = found else {
        return match remembered {
            Some(_) => Err(forgotten("it was used before and is empty now, or has another prefix")),
            None => Ok(None),
        };
    };
    if meta.version != CANONICAL_VERSION || meta.layout != LAYOUT {
        return Err(StoreError::OtherVersion {
            address: address(),
            found: describe(meta.version, &meta.layout),
            expected: describe(CANONICAL_VERSION, LAYOUT),
        });
    }
    match remembered {
        Some(remembered) if remembered != meta.sentinel => {
            Err(forgotten("it is another store than the one used before"))
        }
        _ => Ok(Some(meta)),
    }
}

fn describe(version: u32, layout: &str) -> String {
    format!("version {version}, layout `{layout}`")
}
