//! Run records and feed notes: hashes beside the claims.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::cmd;

use super::Server;
use crate::domain::{Digest, Expected, FeedNote, KnownRun, Lease, RunId, RunRecord};
use crate::store::StoreError;
use crate::store::record_wire::{decode_feed_note, decode_run, encode_feed_note, encode_run};

/// The key of the set of all run ids: run records are found without looking through the claims.
const INDEX_KEY: &str = "runs";

/// Run ids, and then their records, asked for at once.
const RUNS_PER_CALL: usize = 200;

/// Keys that one step of a search through the store looks at.
const KEYS_PER_SCAN: usize = 1_000;

/// Compare-and-set on state, epoch and, with `ARGV[6]`, a lease that is over by the server's clock; true also if the
/// record stands already, which is what a lost answer leaves. `ARGV[7]` is the lease from now on, if it is to change.
///
/// Sent whole each time: scripts that a server remembers are forgotten by its successor after a failover.
const WRITE_RUN_SCRIPT: &str = "\
    local stored = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'json', 'lease') \
    local time = redis.call('TIME') \
    local now = time[1] * 1000 + math.floor(time[2] / 1000) \
    if stored[3] ~= ARGV[5] then \
        if ARGV[1] == '' then if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end \
        elseif stored[1] ~= ARGV[1] or stored[2] ~= ARGV[2] then return 0 \
        elseif ARGV[6] == '1' and not (stored[4] and tonumber(stored[4]) <= now) then return 0 end \
        redis.call('HSET', KEYS[1], 'state', ARGV[3], 'epoch', ARGV[4], 'json', ARGV[5]) \
    end \
    if ARGV[7] ~= '' then redis.call('HSET', KEYS[1], 'lease', string.format('%.0f', now + ARGV[7])) end \
    return 1";

/// Makes the lease last `ARGV[2]` milliseconds from now on, unless the run has gone to another epoch or was barred.
const RENEW_SCRIPT: &str = "\
    local stored = redis.call('HMGET', KEYS[1], 'state', 'epoch') \
    if stored[2] ~= ARGV[1] or stored[1] == 'FENCED' or stored[1] == 'REVERTED' then return 0 end \
    local time = redis.call('TIME') \
    local now = time[1] * 1000 + math.floor(time[2] / 1000) \
    redis.call('HSET', KEYS[1], 'lease', string.format('%.0f', now + ARGV[2])) \
    return 1";

/// A run's JSON and the end of its lease, as they come from the server.
type Fields = (Option<Vec<u8>>, Option<String>);

/// The server's clock: seconds and microseconds.
type Time = (u64, u64);

pub(super) fn run_record(server: &mut Server, run: &RunId) -> Result<Option<KnownRun>, StoreError> {
    let key = run_key(server, run);
    let (fields, time): (Fields, Time) = server.operate(|control| {
        let mut pipe = redis::pipe();
        pipe.cmd("HMGET").arg(&key).arg("json").arg("lease").cmd("TIME");
        pipe.query(control)
    })?;
    known_run(server, run, fields, time)
}

fn known_run(server: &Server, run: &RunId, (json, lease): Fields, time: Time) -> Result<Option<KnownRun>, StoreError> {
    let key = run_key(server, run);
    let Some(json) = json else { return Ok(None) };
    let record = decode(server, &key, &json, decode_run)?;
    if record.run != *run {
        return Err(corrupt(server, &key, &format!("it is of run `{}`", record.run)));
    }
    let now = Duration::from_secs(time.0) + Duration::from_micros(time.1);
    let end = lease.and_then(|millis| millis.parse().ok()).map(Duration::from_millis);
    let lease = Lease::ending_at(end, now);
    Ok(Some(KnownRun { record, lease }))
}

pub(super) fn write_run(
    server: &mut Server,
    expected: Option<Expected>,
    record: &RunRecord,
    lease: Option<Duration>,
) -> Result<bool, StoreError> {
    let key = run_key(server, &record.run);
    let json = encode_run(record);
    assert_eq!(decode_run(&json).as_ref(), Ok(record), "a run record that is written can be read back");
    let (state, epoch, lease_over) = match expected {
        None => ("", String::new(), false),
        Some(Expected { state, epoch, lease_over }) => (state.name(), epoch.to_string(), lease_over),
    };
    if expected.is_none() {
        // Before the record: a name without one is passed over, a record without a name would not be found.
        let index = server.place.key(INDEX_KEY);
        server.operate(|control| cmd("SADD").arg(&index).arg(record.run.as_str()).query::<()>(control))?;
    }
    let lease = lease.map_or_else(String::new, |lease| lease.as_millis().to_string());
    server.operate(|control| {
        let mut script = cmd("EVAL");
        script.arg(WRITE_RUN_SCRIPT).arg(1).arg(&key);
        script.arg(state).arg(&epoch).arg(record.state.name()).arg(record.epoch).arg(&json);
        script.arg(u8::from(lease_over)).arg(&lease);
        script.query(control)
    })
}

pub(super) fn renew_lease(server: &mut Server, run: &RunId, epoch: u32, lease: Duration) -> Result<bool, StoreError> {
    let key = run_key(server, run);
    let millis = lease.as_millis().to_string();
    server.operate(|control| cmd("EVAL").arg(RENEW_SCRIPT).arg(1).arg(&key).arg(epoch).arg(&millis).query(control))
}

pub(super) fn each_run(server: &mut Server, act: &mut dyn FnMut(KnownRun)) -> Result<(), StoreError> {
    let ids: Vec<RunId> = run_ids(server)?.into_iter().collect();
    for ids in ids.chunks(RUNS_PER_CALL) {
        let keys: Vec<_> = ids.iter().map(|run| run_key(server, run)).collect();
        let (all_fields, time): (Vec<Fields>, Time) = server.operate(|control| {
            let mut pipe = redis::pipe();
            keys.iter().for_each(|key| {
                pipe.cmd("HMGET").arg(key).arg("json").arg("lease");
            });
            let all_fields = pipe.query(control)?;
            Ok((all_fields, cmd("TIME").query(control)?))
        })?;
        for (run, fields) in ids.iter().zip(all_fields) {
            if let Some(known) = known_run(server, run, fields, time)? {
                act(known);
            }
        }
    }
    Ok(())
}

fn run_ids(server: &mut Server) -> Result<BTreeSet<RunId>, StoreError> {
    let key = server.place.key(INDEX_KEY);
    let mut ids = BTreeSet::new();
    let mut cursor = 0_u64;
    loop {
        let (next, names): (u64, Vec<String>) = server
            .operate(|control| cmd("SSCAN").arg(&key).arg(cursor).arg("COUNT").arg(RUNS_PER_CALL).query(control))?;
        for name in names {
            ids.insert(RunId::parse(&name).map_err(|_| corrupt(server, &key, &format!("`{name}` is no run id")))?);
        }
        if next == 0 {
            return Ok(ids);
        }
        cursor = next;
    }
}

pub(super) fn feed_note(server: &mut Server, feed: &Digest, meaning: &Digest) -> Result<Option<FeedNote>, StoreError> {
    let (key, field) = (feed_key(server, feed), meaning.to_string());
    let json: Option<Vec<u8>> = server.operate(|control| cmd("HGET").arg(&key).arg(&field).query(control))?;
    json.map(|json| decode(server, &key, &json, decode_feed_note)).transpose()
}

pub(super) fn write_feed_note(
    server: &mut Server,
    feed: &Digest,
    meaning: &Digest,
    note: &FeedNote,
) -> Result<(), StoreError> {
    let (key, field, json) = (feed_key(server, feed), meaning.to_string(), encode_feed_note(note));
    server.operate(|control| cmd("HSET").arg(&key).arg(&field).arg(&json).query(control))
}

fn run_key(server: &Server, run: &RunId) -> String {
    server.place.key(&format!("run:{run}"))
}

fn feed_key(server: &Server, feed: &Digest) -> String {
    server.place.key(&format!("feed:{feed}"))
}

fn decode<T>(
    server: &Server,
    key: &str,
    json: &[u8],
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<T, StoreError> {
    let text = std::str::from_utf8(json).map_err(|error| corrupt(server, key, &error.to_string()))?;
    read(text).map_err(|cause| corrupt(server, key, &cause))
}

fn corrupt(server: &Server, key: &str, cause: &str) -> StoreError {
    StoreError::Corrupt { address: server.place.address.clone(), cause: format!("key `{key}`: {cause}") }
}

/// Keys of this store from `cursor` on, in no order, and where to go on; 0 is the start and the end.
///
/// A key that stands during the whole search is found; one may be found twice.
pub(super) fn scan_keys(server: &mut Server, cursor: u64) -> Result<(u64, Vec<Vec<u8>>), StoreError> {
    let pattern = format!("{}*", escape_pattern(&server.place.prefix));
    server.operate(|control| {
        cmd("SCAN").arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(KEYS_PER_SCAN).query(control)
    })
}

/// Those of `keys` that hold a text, and the text.
pub(super) fn markers_at(
    server: &mut Server,
    keys: Vec<Vec<u8>>,
) -> Result<impl IntoIterator<Item = (Vec<u8>, Vec<u8>)> + use<>, StoreError> {
    let markers: Vec<Option<Vec<u8>>> = match keys.is_empty() {
        true => Vec::new(),
        false => server.operate(|control| cmd("MGET").arg(&keys).query(control))?,
    };
    Ok(keys.into_iter().zip(markers).filter_map(|(key, marker)| Some((key, marker?))))
}

/// A field of a hash: its key, its name, its value.
pub(super) type HashField = (Vec<u8>, Vec<u8>, Vec<u8>);

/// Every field of the hashes `keys`.
pub(super) fn entries_in(server: &mut Server, keys: &[Vec<u8>]) -> Result<Vec<HashField>, StoreError> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let hashes: Vec<Vec<(Vec<u8>, Vec<u8>)>> = server.operate(|control| {
        let mut pipe = redis::pipe();
        keys.iter().for_each(|key| {
            pipe.cmd("HGETALL").arg(key);
        });
        pipe.query(control)
    })?;
    let pairs = keys.iter().zip(hashes);
    Ok(pairs.flat_map(|(key, hash)| hash.into_iter().map(|(field, value)| (key.clone(), field, value))).collect())
}

/// `text` as a pattern that only it fits.
fn escape_pattern(text: &str) -> String {
    let escape = |c: char| if matches!(c, '*' | '?' | '[' | ']' | '^' | '\\') { vec!['\\', c] } else { vec![c] };
    text.chars().flat_map(escape).collect()
}
