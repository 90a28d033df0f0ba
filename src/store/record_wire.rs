//! Run records, feed notes and the store's own description, as JSON that every kind of store keeps.
//!
//! A promise to later versions: fields may be added, and readers pass over what they do not know. Only a change that
//! an older reader would get wrong raises the version.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::domain::{Decision, Digest, FeedNote, Lineage, OutputRecord, Owner, RunCounts, RunId, RunRecord, RunState};

/// Version of run records and feed notes.
const RECORD_VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct RunWire {
    version: u32,
    run: String,
    state: String,
    epoch: u32,
    pass: u32,
    feed_digest: String,
    feed_name: String,
    meaning: String,
    opened_at: String,
    host: String,
    pid: u32,
    #[serde(default)]
    lock: String,
    #[serde(default)]
    lineage: String,
    folder: String,
    stem: String,
    #[serde(default)]
    suppressed_against: Vec<String>,
    /// By the decision's spelling, so that a further decision is an addition.
    counts: BTreeMap<String, u64>,
    outputs: Vec<OutputWire>,
    audit_chain: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct OutputWire {
    name: String,
    bytes: u64,
    sha256: String,
}

#[derive(Serialize, Deserialize)]
struct FeedNoteWire {
    version: u32,
    run: String,
    pass: u32,
}

/// What a store says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meta {
    /// The version of the canonical form behind all source hashes of the store.
    pub(super) version: u32,
    #[serde(default)]
    pub(super) layout: String,
    /// A random value: a store with another one is another store.
    #[serde(default)]
    pub(super) sentinel: String,
    /// How entries of payments are spread, where the layout spreads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) buckets: Option<BucketsWire>,
}

/// How entries of payments are spread over keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BucketsWire {
    /// Leading bits of the identity hash that choose the key.
    pub(super) bits: u8,
    /// Bytes of the identity hash in front of those in the field.
    pub(super) skip: u8,
}

/// The JSON of `record`; equal records have equal JSON.
pub(super) fn encode_run(record: &RunRecord) -> String {
    let counts = Decision::ALL.iter().zip(record.counts);
    let outputs = record.outputs.iter().map(|output| OutputWire {
        name: output.name.clone(),
        bytes: output.bytes,
        sha256: output.sha256.to_string(),
    });
    to_json(&RunWire {
        version: RECORD_VERSION,
        run: record.run.to_string(),
        state: record.state.name().to_owned(),
        epoch: record.epoch,
        pass: record.pass,
        feed_digest: record.feed_digest.to_string(),
        feed_name: record.feed_name.clone(),
        meaning: record.meaning.to_string(),
        opened_at: record.opened_at.clone(),
        host: record.host.clone(),
        pid: record.pid,
        lock: record.lock.clone(),
        lineage: record.lineage.0.clone(),
        folder: record.folder.clone(),
        stem: record.stem.clone(),
        suppressed_against: record.suppressed_against.iter().map(ToString::to_string).collect(),
        counts: counts.map(|(decision, count)| (decision.wire_name().to_owned(), count)).collect(),
        outputs: outputs.collect(),
        audit_chain: record.audit_chain.map(|chain| chain.to_string()),
    })
}

/// Reads the JSON of a run record, or says what is wrong with it.
pub(super) fn decode_run(json: &str) -> Result<RunRecord, String> {
    let wire: RunWire = from_json(json)?;
    check_version(wire.version)?;
    let output = |output: OutputWire| {
        Ok::<_, String>(OutputRecord { name: output.name, bytes: output.bytes, sha256: digest(&output.sha256)? })
    };
    Ok(RunRecord {
        run: run_id(&wire.run)?,
        state: RunState::from_name(&wire.state).ok_or_else(|| format!("`{}` is no state of a run", wire.state))?,
        epoch: wire.epoch,
        pass: wire.pass,
        feed_digest: digest(&wire.feed_digest)?,
        feed_name: wire.feed_name,
        meaning: digest(&wire.meaning)?,
        opened_at: wire.opened_at,
        host: wire.host,
        pid: wire.pid,
        lock: wire.lock,
        lineage: Lineage(wire.lineage),
        folder: wire.folder,
        stem: wire.stem,
        suppressed_against: wire.suppressed_against.iter().map(|run| run_id(run)).collect::<Result<_, _>>()?,
        counts: counts(&wire.counts)?,
        outputs: wire.outputs.into_iter().map(output).collect::<Result<_, _>>()?,
        audit_chain: wire.audit_chain.as_deref().map(digest).transpose()?,
    })
}

/// The JSON of `note`.
pub(super) fn encode_feed_note(note: &FeedNote) -> String {
    to_json(&FeedNoteWire { version: RECORD_VERSION, run: note.run.to_string(), pass: note.pass })
}

/// Reads the JSON of a feed note, or says what is wrong with it.
pub(super) fn decode_feed_note(json: &str) -> Result<FeedNote, String> {
    let wire: FeedNoteWire = from_json(json)?;
    check_version(wire.version)?;
    Ok(FeedNote { run: run_id(&wire.run)?, pass: wire.pass })
}

/// The JSON of `meta`.
pub(super) fn encode_meta(meta: &Meta) -> String {
    to_json(meta)
}

/// Reads what a store says of itself; of another version at least the version is read.
pub(super) fn decode_meta(json: &str) -> Result<Meta, String> {
    from_json(json)
}

#[derive(Serialize, Deserialize)]
struct OwnerWire {
    version: u32,
    run: String,
    epoch: u32,
    seen_at: String,
}

/// The JSON of `owner`.
pub(super) fn encode_owner(owner: &Owner) -> String {
    let Owner { run, epoch, seen_at } = owner;
    to_json(&OwnerWire { version: RECORD_VERSION, run: run.to_string(), epoch: *epoch, seen_at: seen_at.clone() })
}

/// Reads the JSON of an owner, or says what is wrong with it.
pub(super) fn decode_owner(json: &str) -> Result<Owner, String> {
    let wire: OwnerWire = from_json(json)?;
    check_version(wire.version)?;
    Ok(Owner { run: run_id(&wire.run)?, epoch: wire.epoch, seen_at: wire.seen_at })
}

fn to_json(wire: &impl Serialize) -> String {
    serde_json::to_string(wire).expect("wire types hold only texts, numbers, lists and maps by text")
}

fn from_json<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

fn check_version(version: u32) -> Result<(), String> {
    if version == RECORD_VERSION {
        return Ok(());
    }
    Err(format!("it is of version {version}, and this program reads version {RECORD_VERSION}"))
}

fn run_id(text: &str) -> Result<RunId, String> {
    RunId::parse(text).map_err(|_| format!("`{text}` is no run id"))
}

fn digest(text: &str) -> Result<Digest, String> {
    Digest::from_hex(text).ok_or_else(|| format!("`{text}` is no SHA-256 in hexadecimal"))
}

fn counts(by_name: &BTreeMap<String, u64>) -> Result<RunCounts, String> {
    let mut counts = RunCounts::default();
    for (name, count) in by_name {
        let place = Decision::ALL.iter().position(|decision| decision.wire_name() == name);
        counts[place.ok_or_else(|| format!("`{name}` is no decision"))?] = *count;
    }
    Ok(counts)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A sealed run with something in every field.
    pub(in crate::store) fn sealed_run(run: &str) -> RunRecord {
        RunRecord {
            run: RunId::parse(run).unwrap(),
            state: RunState::Sealed,
            epoch: 2,
            pass: 1,
            feed_digest: Digest::of(b"feed"),
            feed_name: "july \"é\".csv".to_owned(),
            meaning: Digest::of(b"meaning"),
            opened_at: "2026-07-15T09:03:00Z".to_owned(),
            host: "db1".to_owned(),
            pid: 4711,
            lock: "64769:1042".to_owned(),
            lineage: Lineage("run/replication/0".to_owned()),
            folder: "/srv/out".to_owned(),
            stem: "july.2".to_owned(),
            suppressed_against: vec![RunId::parse("r-0").unwrap()],
            counts: [1, 2, 3, 4, 5, u64::MAX],
            outputs: vec![OutputRecord { name: "july.csv".to_owned(), bytes: 9, sha256: Digest::of(b"out") }],
            audit_chain: Some(Digest::of(b"chain")),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let record = sealed_run("r-1");
        assert_eq!(decode_run(&encode_run(&record)), Ok(record));
        let note = FeedNote { run: RunId::parse("r-1").unwrap(), pass: 3 };
        assert_eq!(decode_feed_note(&encode_feed_note(&note)), Ok(note));
        let meta = Meta {
            version: 1,
            layout: "shared".to_owned(),
            sentinel: "00ff".to_owned(),
            buckets: Some(BucketsWire { bits: 17, skip: 2 }),
        };
        assert_eq!(
            encode_meta(&meta),
            r#"{"version":1,"layout":"shared","sentinel":"00ff","buckets":{"bits":17,"skip":2}}"#
        );
        assert_eq!(decode_meta(&encode_meta(&meta)), Ok(meta));
    }

    #[test]
    fn fields_of_later_versions_are_passed_over_and_their_versions_are_not() {
        let json = encode_feed_note(&FeedNote { run: RunId::parse("r-1").unwrap(), pass: 3 });
        assert!(decode_feed_note(&json.replace("\"pass\"", "\"colour\":[1],\"pass\"")).is_ok());
        let error = decode_feed_note(&json.replace("\"version\":1", "\"version\":2")).unwrap_err();
        assert_eq!(error, "it is of version 2, and this program reads version 1");
        assert_eq!(decode_meta(r#"{"version":2,"shards":15}"#).unwrap().version, 2);
    }

    #[test]
    fn what_is_no_record_is_said() {
        let json = encode_run(&sealed_run("r-1"));
        assert!(decode_run("{").is_err());
        assert_eq!(decode_run(&json.replace("SEALED", "STALE")).unwrap_err(), "`STALE` is no state of a run");
        assert_eq!(decode_run(&json.replace("\"r-1\"", "\"r 1\"")).unwrap_err(), "`r 1` is no run id");
        assert_eq!(decode_run(&json.replace("\"HELD\"", "\"HOLD\"")).unwrap_err(), "`HOLD` is no decision");
    }
}
