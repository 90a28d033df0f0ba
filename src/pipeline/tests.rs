//! Whole runs, over real files and every store that needs no server.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::domain::{Decision, RunId};
use crate::input::Profile;
use crate::run::Gates;
use crate::store::{Access, MemoryStore, Store, StoreConfig, StoreLocation};

struct Silent;

impl Progress for Silent {
    fn start(&self, _: &str, _: u64) {}
    fn advance(&self, _: u64, _: u64) {}
    fn finish(&self) {}
}

fn request(folder: &Path, feed: &[u8], run: &str, threads: usize) -> IngestRequest {
    let path = folder.join("july.csv");
    std::fs::write(&path, feed).unwrap();
    IngestRequest {
        feed: FeedFile { path, shown: "july.csv".into(), name: "july.csv".into(), extension: Some("csv".into()) },
        profile: Profile::default(),
        folder: folder.to_owned(),
        stem: "july".into(),
        run: Some(RunId::parse(run).unwrap()),
        now: Some("2026-07-15T09:03:00Z".into()),
        key_prefix: "p:".into(),
        threads,
        tags: BTreeMap::new(),
        gates: Gates { reject_limit: 50, rejects_min: 20, ..Gates::default() },
        lock_folder: folder.join("locks"),
        worker: Worker { host: "db1".into(), user: "ops".into(), pid: 7 },
        store_address: "memory".into(),
    }
}

fn embedded(folder: &Path, batch_size: Option<usize>) -> Box<dyn Store> {
    let config = StoreConfig {
        location: StoreLocation::File(folder.join("store")),
        prefix: "p:".into(),
        claim_ttl: Duration::from_secs(1),
        lock_timeout: Duration::from_millis(50),
        batch_size,
        failures_max: 1,
        username: None,
        password: None,
        remembered: None,
        access: Access::Write { create: true },
    };
    crate::store::open(&config).unwrap().store
}

/// Every published file of a folder, by name; the journal is never compared.
fn published(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    files
        .map(|path| (name(&path), std::fs::read(&path).unwrap()))
        .filter(|(name, _)| !name.contains("journal"))
        .collect()
}

/// The feed's records, put together again from the files of records in the order of the audit log.
fn put_together(files: &BTreeMap<String, Vec<u8>>, stem: &str, feed: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let audit = String::from_utf8(files[&format!("{stem}.audit.jsonl")].clone()).unwrap();
    let lines: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let header = |line: &Value| line["event"] == "row.skipped" && line["rule"] != "blank";
    let prologue: u64 = lines.iter().filter(|line| header(line)).map(|line| line["length"].as_u64().unwrap()).sum();
    let mut offset = usize::try_from(prologue).unwrap();
    whole.extend_from_slice(&feed[..offset]);
    for line in lines.iter().filter(|line| !header(line)) {
        if line["event"] == "row.skipped" {
            let length = usize::try_from(line["length"].as_u64().unwrap()).unwrap();
            whole.extend_from_slice(&feed[offset..offset + length]);
            offset += length;
        } else if line["event"] == "dedup.checked" {
            let wire = line["match_decision"].as_str().unwrap();
            let decision = Decision::ALL.into_iter().find(|decision| decision.wire_name() == wire).unwrap();
            let name = format!("{stem}.{}.csv", decision.file_kind());
            let from = taken.entry(name.clone()).or_insert(usize::try_from(prologue).unwrap());
            // How long a record is stands nowhere: it is as long as it agrees with the feed, checked at the end.
            let rest = &files[&name][*from..];
            let length = record_len(&feed[offset..]);
            whole.extend_from_slice(&rest[..length]);
            *from += length;
            offset += length;
        }
    }
    for (name, from) in taken {
        assert_eq!(files[&name].len(), from, "nothing else stands in {name}");
    }
    whole
}

/// The length of the record at the start of `feed`, told by quotes and line ends alone.
fn record_len(feed: &[u8]) -> usize {
    let mut is_quoted = false;
    for (at, byte) in feed.iter().enumerate() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\n' if !is_quoted => return at + 1,
            b'\r' if !is_quoted && feed[at + 1..].starts_with(b"\r\n") => return at + 3,
            b'\r' if !is_quoted && feed.get(at + 1) != Some(&b'\n') => return at + 1,
            _ => {}
        }
    }
    feed.len()
}

const HEADER: &str = "account_id,bank_txn_id,amount,currency,posted_at";

fn feed_of(rows: &[(u8, u8)]) -> String {
    let mut feed = format!("\u{feff}{HEADER}\r\n");
    for (kind, id) in rows {
        let row = match kind % 6 {
            0 => format!("A,{id},-1.50,EUR,2026-07-{:02}\n", id % 28 + 1),
            1 => format!("A,\"{id}\",2,USD,2026-06-{:02}\r\n", id % 28 + 1),
            2 => format!("A,{id},x,EUR,2026-07-01\n"),
            3 => "\r\n".to_owned(),
            4 => format!("A,\"{id}\n{id}\",3,EUR,2026-07-01\r"),
            _ => format!("A,{id},1,EUR\n"),
        };
        feed.push_str(&row);
    }
    feed
}

#[test]
fn the_second_pass_suppresses_every_record_beside_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let feed = feed_of(&[(0, 1), (1, 2), (0, 1), (4, 3)]);
    let mut store = embedded(folder.path(), None);
    let first = ingest(&request(folder.path(), feed.as_bytes(), "r-1", 2), &mut *store, &Silent).unwrap();
    assert_eq!((first.counts, first.pass), ([3, 1, 0, 0, 0, 0], 1));
    let second = ingest(&request(folder.path(), feed.as_bytes(), "r-1", 2), &mut *store, &Silent).unwrap();
    assert_eq!((second.counts, second.pass, second.run.as_str()), ([0, 4, 0, 0, 0, 0], 2, "r-1.2"));
    let files = published(folder.path());
    let whole = |name: &str| String::from_utf8(files[name].clone()).unwrap();
    assert_eq!(whole("july.2.suppressed.csv"), feed);
    assert_eq!(whole("july.2.accepted.csv"), format!("\u{feff}{HEADER}\r\n"));
    let audit = whole("july.2.audit.jsonl");
    assert!(audit.contains(
        "\"first_trace_id\":\"r-1:1\",\"first_seen_at\":\"2026-07-15T09:03:00Z\",\"first_file\":\"july.csv\""
    ));
}

#[test]
fn a_gate_that_does_not_hold_frees_the_claims() {
    let folder = tempfile::tempdir().unwrap();
    let feed = feed_of(&[(0, 1), (1, 2)]);
    let mut store = embedded(folder.path(), None);
    let mut gated = request(folder.path(), feed.as_bytes(), "r-1", 1);
    gated.gates.records = Some(3);
    assert!(matches!(ingest(&gated, &mut *store, &Silent), Err(IngestError::Gate(_))));
    assert_eq!(published(folder.path()).keys().collect::<Vec<_>>(), ["july.csv"], "nothing is left half-written");
    let mut other = request(folder.path(), feed.as_bytes(), "r-2", 1);
    std::fs::write(folder.path().join("july.csv"), format!("{feed}\n")).unwrap();
    other.stem = "again".into();
    let report = ingest(&other, &mut *store, &Silent).unwrap();
    assert_eq!(report.counts, [2, 0, 0, 0, 0, 0], "another run accepts what the first one gave back");
    let report = ingest(&request(folder.path(), feed.as_bytes(), "r-1", 1), &mut *store, &Silent).unwrap();
    assert_eq!((report.counts, report.is_resumed), ([0, 2, 0, 0, 0, 0], true));
}

#[test]
fn a_run_that_died_is_gone_on_with_and_others_wait_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let feed = feed_of(&[(0, 1), (0, 2)]);
    let mut store = embedded(folder.path(), None);
    // The folder of the outputs is taken away between the claims and the seal.
    let mut dying = request(folder.path(), feed.as_bytes(), "r-1", 1);
    dying.folder = folder.path().join("out");
    std::fs::create_dir(&dying.folder).unwrap();
    // The reader sees the end of the feed, and the summary has no folder to be written to.
    struct RemoveBeforeSummary<'a>(&'a Path);
    impl Progress for RemoveBeforeSummary<'_> {
        fn start(&self, _: &str, _: u64) {}
        fn advance(&self, _: u64, _: u64) {
            std::fs::remove_dir_all(self.0).unwrap();
        }
        fn finish(&self) {}
    }
    let died = ingest(&dying, &mut *store, &RemoveBeforeSummary(&dying.folder));
    assert!(matches!(died, Err(IngestError::Output(_))), "{died:?}");
    let mut other = request(folder.path(), format!("{feed}A,9,1,EUR,2026-07-01\n").as_bytes(), "r-2", 1);
    other.stem = "other".into();
    let report = ingest(&other, &mut *store, &Silent).unwrap();
    assert_eq!(report.counts, [1, 0, 0, 2, 0, 0], "what an open run claimed is held");
    let mut again = request(folder.path(), feed.as_bytes(), "r-1", 1);
    again.stem = "again".into();
    let report = ingest(&again, &mut *store, &Silent).unwrap();
    assert_eq!((report.counts, report.is_resumed), ([2, 0, 0, 0, 0, 0], true));
    let mut other = request(folder.path(), format!("{feed}A,9,1,EUR,2026-07-01\n").as_bytes(), "r-2", 1);
    other.stem = "other".into();
    let report = ingest(&other, &mut *store, &Silent).unwrap();
    assert_eq!((report.counts, report.pass), ([0, 3, 0, 0, 0, 0], 2), "the next pass decides what was held");
}

#[test]
fn a_feed_that_changes_while_it_is_read_is_not_published() {
    struct Append<'a>(&'a Path);
    impl Progress for Append<'_> {
        fn start(&self, _: &str, _: u64) {
            use std::io::Write as _;
            let mut feed = std::fs::OpenOptions::new().append(true).open(self.0).unwrap();
            feed.write_all(b"A,9,1,EUR,2026-07-01\n").unwrap();
        }
        fn advance(&self, _: u64, _: u64) {}
        fn finish(&self) {}
    }
    let folder = tempfile::tempdir().unwrap();
    // Longer than what is read ahead.
    let request = request(folder.path(), feed_of(&[(0, 1); 20_000]).as_bytes(), "r-1", 1);
    let outcome = ingest(&request, &mut *embedded(folder.path(), None), &Append(&folder.path().join("july.csv")));
    assert!(matches!(outcome, Err(IngestError::Input(crate::input::InputError::Changed { .. }))), "{outcome:?}");
    assert_eq!(published(folder.path()).keys().collect::<Vec<_>>(), ["july.csv"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever the batch, the threads and the store: the same bytes, and they put the feed together again.
    #[test]
    fn outputs_do_not_depend_on_how_the_work_is_cut(rows in prop::collection::vec((0_u8..6, 0_u8..12), 0..40)) {
        let feed = feed_of(&rows);
        let mut all = Vec::new();
        for (threads, batch_size, is_embedded) in
            [(1, Some(1), true), (3, Some(7), true), (2, Some(1_000), true), (1, None, false), (4, None, true)]
        {
            let folder = tempfile::tempdir().unwrap();
            let mut store: Box<dyn Store> =
                if is_embedded { embedded(folder.path(), batch_size) } else { Box::new(MemoryStore::default()) };
            let mut request = request(folder.path(), feed.as_bytes(), "r-1", threads);
            request.gates.reject_limit = 100;
            ingest(&request, &mut *store, &Silent).unwrap();
            all.push(published(folder.path()));
        }
        for other in &all[1..] {
            prop_assert_eq!(other, &all[0]);
        }
        prop_assert_eq!(put_together(&all[0], "july", feed.as_bytes()), feed.as_bytes());
    }
}
