//! Run records and feed notes: hashes beside the claims.

use redis::cmd;

use super::Server;
use crate::domain::{Digest, RunId, RunRecord};
use crate::store::record_wire::{decode_feed_note, decode_run, encode_feed_note, encode_run};
use crate::store::{Expected, FeedNote, StoreError};

/// Compare-and-set on state and epoch; true also if the record stands already, which is what a lost answer leaves.
///
/// Sent whole each time: scripts that a server remembers are forgotten by its successor after a failover.
const WRITE_RUN_SCRIPT: &str = "\
    local stored = redis.call('HMGET', KEYS[1], 'state', 'epoch', 'json') \
    if stored[3] == ARGV[5] then return 1 end \
    if ARGV[1] == '' then if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end \
    elseif stored[1] ~= ARGV[1] or stored[2] ~= ARGV[2] then return 0 end \
    redis.call('HSET', KEYS[1], 'state', ARGV[3], 'epoch', ARGV[4], 'json', ARGV[5]) \
    return 1";

pub(super) fn run_record(server: &mut Server, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
    let key = run_key(server, run);
    let json: Option<Vec<u8>> = server.operate(|control| cmd("HGET").arg(&key).arg("json").query(control))?;
    let record = json.map(|json| decode(server, &key, &json, decode_run)).transpose()?;
    match record {
        Some(record) if record.run != *run => Err(corrupt(server, &key, &format!("it is of run `{}`", record.run))),
        record => Ok(record),
    }
}

pub(super) fn write_run(
    server: &mut Server,
    expected: Option<Expected>,
    record: &RunRecord,
) -> Result<bool, StoreError> {
    let key = run_key(server, &record.run);
    let json = encode_run(record);
    assert_eq!(decode_run(&json).as_ref(), Ok(record), "a run record that is written can be read back");
    let (state, epoch) = match expected {
        None => ("", String::new()),
        Some(expected) => (expected.state.name(), expected.epoch.to_string()),
    };
    server.operate(|control| {
        let mut script = cmd("EVAL");
        script.arg(WRITE_RUN_SCRIPT).arg(1).arg(&key);
        script.arg(state).arg(&epoch).arg(record.state.name()).arg(record.epoch).arg(&json);
        script.query(control)
    })
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
