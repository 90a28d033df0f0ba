//! Whole runs, over real files and every store that needs no server.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::domain::{
    Canonicalizer, ClaimScope, Decision, Expected, Interrupt, InterruptSignal, Owner, RawRecord, RunCounts, RunId,
    RunRecord, RunState,
};
use crate::input::Profile;
use crate::run::{Gates, StartRefusal};
use crate::store::{Access, MemoryStore, Store, StoreConfig, StoreLocation};

/// Asks for an early end when a feed is begun, or when its first batch is decided.
struct Asking {
    interrupt: Interrupt,
    at_start: bool,
}

impl Progress for Asking {
    fn start(&self, _: &str, _: u64) {
        if self.at_start {
            self.interrupt.ask(InterruptSignal::Terminated);
        }
    }

    fn advance(&self, _: u64, _: u64) {
        self.interrupt.ask(InterruptSignal::Terminated);
    }

    fn finish(&self) {}
}

struct Silent;

impl Progress for Silent {
    fn start(&self, _: &str, _: u64) {}
    fn advance(&self, _: u64, _: u64) {}
    fn finish(&self) {}
}

fn request(folder: &Path, feed: &[u8], run: &str, threads: usize) -> IngestRequest {
    request_of_stem(folder, "july", feed, run, threads)
}

/// The same over a file of another name.
fn request_of_stem(folder: &Path, stem: &str, feed: &[u8], run: &str, threads: usize) -> IngestRequest {
    let name = format!("{stem}.csv");
    let path = folder.join(&name);
    std::fs::write(&path, feed).unwrap();
    IngestRequest {
        feed: FeedFile { bytes: FeedBytes::Path(path), shown: name.clone(), name, extension: Some("csv".into()) },
        profile: Profile::default(),
        folder: folder.to_owned(),
        stem: stem.into(),
        run: Some(RunId::parse(run).unwrap()),
        now: Some("2026-07-15T09:03:00Z".into()),
        key_prefix: "p:".into(),
        claim_scope: ClaimScope::Payment,
        threads,
        tags: BTreeMap::new(),
        gates: Gates { reject_limit: 50, rejects_min: 20, conflict_limit: 5, conflicts_min: 20, ..Gates::default() },
        lease: Duration::from_secs(60),
        lock_folder: folder.join("locks"),
        worker: Worker { host: "db1".into(), user: "ops".into(), pid: 7 },
        store_address: "memory".into(),
        interrupt: Interrupt::default(),
    }
}

fn embedded(folder: &Path, batch_size: Option<usize>) -> Box<dyn Store> {
    let config = StoreConfig {
        location: StoreLocation::File(folder.join("store")),
        prefix: "p:".into(),
        expected_records: 1_000,
        claim_ttl: Duration::from_secs(1),
        lock_timeout: Duration::from_millis(50),
        batch_size,
        replicas_min: 0,
        replicas_timeout: Duration::ZERO,
        failures_max: 1,
        username: None,
        password: None,
        remembered: None,
        access: Access::Write { create: true },
        interrupt: Interrupt::default(),
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

/// Takes the folder of the outputs away when all claims are made: the summary has no place to be written to.
struct RemoveFolder<'a>(&'a Path);

impl Progress for RemoveFolder<'_> {
    fn start(&self, _: &str, _: u64) {}
    fn advance(&self, _: u64, _: u64) {
        std::fs::remove_dir_all(self.0).unwrap();
    }
    fn finish(&self) {}
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
    let died = ingest(&dying, &mut *store, &RemoveFolder(&dying.folder));
    assert!(matches!(died, Err(IngestError::Output(_))), "{died:?}");
    // A process that is killed does not give its lease up.
    assert!(store.renew_lease(&RunId::parse("r-1").unwrap(), 1, Duration::from_secs(60)).unwrap());
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

/// Leaves run `r-1` over `feed` as a process does that is killed when all claims are made: open, and its lease runs.
fn leave_killed(folder: &Path, feed: &[u8], store: &mut dyn Store) {
    let mut dying = request_of_stem(folder, "first", feed, "r-1", 1);
    dying.folder = folder.join("out");
    std::fs::create_dir(&dying.folder).unwrap();
    ingest(&dying, store, &RemoveFolder(&dying.folder)).unwrap_err();
    assert!(store.renew_lease(&dying.run.unwrap(), 1, Duration::from_secs(60)).unwrap());
}

/// Makes the lease of `r-1` be over, as if its worker had shown no sign of life for long.
fn end_lease(store: &mut dyn Store) {
    assert!(store.renew_lease(&RunId::parse("r-1").unwrap(), 1, Duration::ZERO).unwrap());
}

#[test]
fn a_run_that_gave_up_or_whose_lease_is_over_leaves_its_records_to_whoever_comes() {
    for is_killed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let feed = feed_of(&[(0, 1), (0, 2)]);
        let mut store = embedded(folder.path(), None);
        if is_killed {
            leave_killed(folder.path(), feed.as_bytes(), &mut *store);
            end_lease(&mut *store);
        } else {
            let mut dying = request(folder.path(), feed.as_bytes(), "r-1", 1);
            dying.folder = folder.path().join("out");
            std::fs::create_dir(&dying.folder).unwrap();
            ingest(&dying, &mut *store, &RemoveFolder(&dying.folder)).unwrap_err();
        }
        let more = format!("{feed}A,9,1,EUR,2026-07-01\n");
        let other = request_of_stem(folder.path(), "other", more.as_bytes(), "r-2", 1);
        let report = ingest(&other, &mut *store, &Silent).unwrap();
        assert_eq!(report.counts, [3, 0, 0, 0, 0, 0]);
        let journal = std::fs::read_to_string(folder.path().join("other.journal.jsonl")).unwrap();
        let taken_over = "\"event\":\"claim.taken_over\",\"run_id\":\"r-2\",";
        let line = journal.lines().find(|line| line.contains(taken_over)).unwrap_or_else(|| panic!("{journal}"));
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["from"], &line["claims"]), (&"r-1".into(), &2.into()));
        let state =
            |store: &mut dyn Store| store.run_record(&RunId::parse("r-1").unwrap()).unwrap().unwrap().record.state;
        assert_eq!(state(&mut *store), RunState::Fenced);
        let report = ingest(&request(folder.path(), feed.as_bytes(), "r-1", 1), &mut *store, &Silent).unwrap();
        assert_eq!((report.counts, report.is_resumed), ([0, 2, 0, 0, 0, 0], true), "the other run has them");
        assert_eq!(state(&mut *store), RunState::Published);
    }
}

/// Where a run is when something else happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// A first part of the feed is decided.
    FirstBatch,
    FirstPassDone,
}

/// Has something else happen once, while a run is at its work.
struct Meanwhile<F> {
    moment: Moment,
    act: Mutex<Option<F>>,
    batches: AtomicU32,
}

impl<F: FnOnce() + Send> Meanwhile<F> {
    fn is(&self, moment: Moment) {
        if moment == self.moment
            && let Some(act) = self.act.lock().unwrap().take()
        {
            act();
        }
    }
}

impl<F: FnOnce() + Send> Progress for Meanwhile<F> {
    fn start(&self, _: &str, _: u64) {}
    fn advance(&self, _: u64, _: u64) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.is(Moment::FirstBatch);
    }
    fn finish(&self) {
        self.is(Moment::FirstPassDone);
    }
}

/// What may become of a run that holds records of others.
#[derive(Debug, Clone, Copy)]
enum End {
    Published,
    LeaseOver,
    Freed,
}

impl End {
    /// Has it come for `r-1` over `feed`.
    fn come(self, folder: &Path, feed: &[u8], store: &mut dyn Store) {
        match self {
            Self::Published => {
                let again = request_of_stem(folder, "first", feed, "r-1", 1);
                assert!(ingest(&again, store, &Silent).unwrap().is_resumed);
            }
            Self::LeaseOver => end_lease(store),
            Self::Freed => {
                end_lease(store);
                let record = store.run_record(&RunId::parse("r-1").unwrap()).unwrap().unwrap().record;
                let expected = Expected { state: RunState::Open, epoch: 1, lease_over: true };
                let fenced = RunRecord { state: RunState::Fenced, ..record };
                assert!(store.write_run(Some(expected), &fenced, None).unwrap());
                assert!(store.release_run(&fenced.run).unwrap() > 0);
            }
        }
    }
}

/// Every published file of the second run, and its counts, where `end` came `while_it_ran`, or before.
fn second_run(
    first: &str,
    second: &str,
    end: End,
    while_it_ran: Option<Moment>,
) -> (RunCounts, BTreeMap<String, Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let mut store = embedded(folder.path(), Some(1_000));
    leave_killed(folder.path(), first.as_bytes(), &mut *store);
    let request = request_of_stem(folder.path(), "second", second.as_bytes(), "r-2", 1);
    let mut for_other = store.another();
    let mut other = || end.come(folder.path(), first.as_bytes(), &mut *for_other);
    let report = match while_it_ran {
        Some(moment) => {
            let meanwhile = Meanwhile { moment, act: Mutex::new(Some(other)), batches: AtomicU32::new(0) };
            let report = ingest(&request, &mut *store, &meanwhile).unwrap();
            assert!(meanwhile.batches.into_inner() >= 4, "there are two passes, and each has more than one batch");
            report
        }
        None => {
            other();
            ingest(&request, &mut *store, &Silent).unwrap()
        }
    };
    let mut files = published(folder.path());
    files.retain(|name, _| name.starts_with("second."));
    assert_eq!(put_together(&files, "second", second.as_bytes()), second.as_bytes());
    (report.counts, files)
}

#[test]
fn held_records_are_decided_before_the_seal_once_their_holder_is() {
    let shared = ["A,1,1,EUR,2026-07-01\n", "A,2,2,EUR,2026-07-01\n"];
    let first = format!("{HEADER}\n{}", shared.concat());
    // Held at the start, in the middle and at the end, where it comes again; and rows between that are long enough for
    // several batches.
    let own = |ids: std::ops::Range<u32>| ids.map(|id| format!("A,{id:0>200},1,EUR,2026-07-02\n")).collect::<String>();
    let second = format!("{HEADER}\n{}{}{}{}{}", shared[0], own(0..1_000), shared[1], own(1_000..2_000), shared[0]);
    for (end, counts) in [
        (End::Published, [2_000, 3, 0, 0, 0, 0]),
        (End::LeaseOver, [2_002, 1, 0, 0, 0, 0]),
        // The last row claims what the first one found held; in the next pass the first one has it.
        (End::Freed, [2_002, 1, 0, 0, 0, 0]),
    ] {
        let (undisturbed_counts, undisturbed) = second_run(&first, &second, end, None);
        assert_eq!(undisturbed_counts, counts, "{end:?}");
        for moment in [Moment::FirstBatch, Moment::FirstPassDone] {
            let (counts_then, files) = second_run(&first, &second, end, Some(moment));
            assert_eq!(counts_then, counts, "{end:?} at {moment:?}");
            let differing = undisturbed.iter().find(|(name, bytes)| files.get(*name) != Some(bytes));
            assert_eq!(differing.map(|(name, _)| name), None, "{end:?} at {moment:?}");
            assert_eq!(files.len(), undisturbed.len());
        }
    }
}

/// Appends a line to the feed when the run begins to read it.
struct Append<'a>(&'a Path, &'a str);

impl Progress for Append<'_> {
    fn start(&self, _: &str, _: u64) {
        use std::io::Write as _;
        let mut feed = std::fs::OpenOptions::new().append(true).open(self.0).unwrap();
        feed.write_all(self.1.as_bytes()).unwrap();
    }
    fn advance(&self, _: u64, _: u64) {}
    fn finish(&self) {}
}

#[test]
fn a_feed_that_changes_while_it_is_read_is_not_published_and_keeps_no_claim() {
    let late = "A,late,1,EUR,2026-07-01\n";
    // Longer than what is read ahead, and as short as can be.
    for rows in [20_000, 1] {
        let folder = tempfile::tempdir().unwrap();
        let mut store = embedded(folder.path(), None);
        let feed = feed_of(&vec![(0, 1); rows]);
        let path = folder.path().join("july.csv");
        let outcome = ingest(&request(folder.path(), feed.as_bytes(), "r-1", 1), &mut *store, &Append(&path, late));
        assert!(matches!(outcome, Err(IngestError::Input(crate::input::InputError::Changed { .. }))), "{outcome:?}");
        assert_eq!(published(folder.path()).keys().collect::<Vec<_>>(), ["july.csv"]);
        // The run goes on over the feed as it was, and the late record is nobody's.
        ingest(&request(folder.path(), feed.as_bytes(), "r-1", 1), &mut *store, &Silent).unwrap();
        let late_feed = format!("{HEADER}\n{late}");
        let report = ingest(&request(folder.path(), late_feed.as_bytes(), "r-2", 1), &mut *store, &Silent).unwrap();
        assert_eq!(report.counts, [1, 0, 0, 0, 0, 0]);
    }
}

/// Ingests `feed` and is interrupted: when it is begun, or else when its first and only batch is decided.
fn interrupted_run(folder: &Path, feed: &str, at_start: bool, store: &mut dyn Store) {
    let request = request(folder, feed.as_bytes(), "r-1", 2);
    let asking = Asking { interrupt: request.interrupt.clone(), at_start };
    let error = ingest(&request, store, &asking).unwrap_err();
    assert!(matches!(error, IngestError::Interrupted { signal: InterruptSignal::Terminated, .. }), "{error:?}");
    let left: Vec<_> = published(folder).into_keys().collect();
    assert_eq!(left, ["july.csv"], "nothing is published or half-written");
    assert_eq!(store.run_record(request.run.as_ref().unwrap()).unwrap().unwrap().record.state, RunState::Open);
}

#[test]
fn an_interrupted_run_is_looked_at_before_each_batch_and_before_the_seal() {
    let feed = feed_of(&[(0, 1), (0, 2)]);
    // Asked for before the first batch, nothing is claimed; behind it, its claims stand and the run is not sealed. Its
    // lease is given up, so that whoever has the same records bars it and takes them over.
    for (at_start, state) in [(true, RunState::Open), (false, RunState::Fenced)] {
        let folder = tempfile::tempdir().unwrap();
        let mut store = embedded(folder.path(), None);
        interrupted_run(folder.path(), &feed, at_start, &mut *store);
        let other = request(folder.path(), format!("{feed}\n").as_bytes(), "r-2", 2);
        assert_eq!(ingest(&other, &mut *store, &Silent).unwrap().counts, [2, 0, 0, 0, 0, 0]);
        assert_eq!(store.run_record(&RunId::parse("r-1").unwrap()).unwrap().unwrap().record.state, state);
        let again = ingest(&request(folder.path(), feed.as_bytes(), "r-1", 2), &mut *store, &Silent).unwrap();
        assert!(again.is_resumed);
    }
}

#[test]
fn a_dry_run_and_a_listing_are_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    // More than a block.
    let feed = feed_of(&[(0, 1)].repeat(100_000));
    let request = request(folder.path(), feed.as_bytes(), "r-1", 2);
    let asking = Asking { interrupt: request.interrupt.clone(), at_start: true };
    let mut store = embedded(folder.path(), None);
    let error = dry_run(&request, &mut WouldBeClaims::default(), &mut *store, &asking).unwrap_err();
    assert!(matches!(error, IngestError::Interrupted { .. }), "{error:?}");
    let (interrupt, mut rows) = (Interrupt::default(), 0);
    let listed = list_hashes(&request.feed, &request.profile, &interrupt, |_| {
        interrupt.ask(InterruptSignal::HungUp);
        rows += 1;
        true
    });
    assert!(matches!(listed, Err(IngestError::Interrupted { signal: InterruptSignal::HungUp, .. })));
    assert!((1..100_000).contains(&rows), "{rows}");
}

#[test]
fn what_a_dead_attempt_claimed_and_the_next_one_did_not_is_taken_over_and_not_suppressed() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = embedded(folder.path(), None);
    let feed = format!("{HEADER}\nA,1,1,EUR,2026-07-01\nA,2,2,EUR,2026-07-01\nA,2,2,EUR,2026-07-01\n");
    // An attempt that read other bytes under the same run: record 2 on row 7, and a record that the feed has not.
    let request_of = |feed: &str, run| request(folder.path(), feed.as_bytes(), run, 1);
    let mut dying = request_of(&feed, "r-1");
    dying.folder = folder.path().join("gone");
    std::fs::create_dir(&dying.folder).unwrap();
    let died = ingest(&dying, &mut *store, &RemoveFolder(&dying.folder));
    assert!(matches!(died, Err(IngestError::Output(_))), "{died:?}");
    let claim = |row: &str, number| {
        let cells: Vec<&str> = row.split(',').collect();
        let [account_id, bank_txn_id, amount, currency, posted_at] = cells[..] else { panic!("five cells") };
        let raw = RawRecord { account_id, bank_txn_id, amount, currency, posted_at };
        Canonicalizer::default().form(&raw).unwrap().claim(ClaimScope::Payment, number)
    };
    let run = RunId::parse("r-1").unwrap();
    let owner = Arc::new(Owner { run: run.clone(), epoch: 1, seen_at: "2026-07-15T09:03:00Z".into() });
    let second = [claim("A,2,2,EUR,2026-07-01", 2)];
    assert_eq!(store.release(&run, 1, &second).unwrap(), 1);
    let foreign = [claim("A,2,2,EUR,2026-07-01", 7), claim("A,9,9,EUR,2026-07-01", 9)];
    store.claim(&owner, &foreign).unwrap();

    let report = ingest(&request_of(&feed, "r-1"), &mut *store, &Silent).unwrap();
    assert_eq!((report.counts, report.is_resumed), ([2, 1, 0, 0, 0, 0], true), "the first row with the hash has it");
    let orphan = format!("{HEADER}\nA,9,9,EUR,2026-07-01\nA,2,2,EUR,2026-07-01\n");
    let report = ingest(&request_of(&orphan, "r-2"), &mut *store, &Silent).unwrap();
    assert_eq!(report.counts, [1, 1, 0, 0, 0, 0], "no output of the published attempt holds record 9");
}

#[test]
fn a_feed_that_becomes_unreadable_keeps_no_claim() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = embedded(folder.path(), Some(7));
    let rows: String = (0..5_000).map(|id| format!("A,{id},1,EUR,2026-07-01\n")).collect();
    let endless = format!("{HEADER}\n{rows}{}", "x".repeat(2 << 20));
    let outcome = ingest(&request(folder.path(), endless.as_bytes(), "r-1", 1), &mut *store, &Silent);
    assert!(matches!(outcome, Err(IngestError::Input(_))), "{outcome:?}");
    let good = format!("{HEADER}\n{rows}");
    let report = ingest(&request(folder.path(), good.as_bytes(), "r-2", 1), &mut *store, &Silent).unwrap();
    assert_eq!(report.counts, [5_000, 0, 0, 0, 0, 0]);
}

#[test]
fn a_named_run_is_refused_under_another_profile() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = embedded(folder.path(), None);
    let feed = feed_of(&[(0, 1)]);
    ingest(&request(folder.path(), feed.as_bytes(), "r-1", 1), &mut *store, &Silent).unwrap();
    let mut other = request(folder.path(), feed.as_bytes(), "r-1", 1);
    other.profile = Profile::from_toml("[constants]\ncurrency = \"USD\"").unwrap();
    let refused = ingest(&other, &mut *store, &Silent);
    assert!(
        matches!(
            refused,
            Err(IngestError::Protocol(crate::run::ProtocolStop::Refused(StartRefusal::OtherProfile { .. })))
        ),
        "{refused:?}"
    );
}

#[test]
fn a_run_that_is_gone_on_with_under_another_name_has_that_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = embedded(folder.path(), None);
    let feed = feed_of(&[(0, 1)]);
    let mut gated = request(folder.path(), feed.as_bytes(), "r-1", 1);
    gated.gates.records = Some(9);
    ingest(&gated, &mut *store, &Silent).unwrap_err();
    let mut renamed = request(folder.path(), feed.as_bytes(), "r-1", 1);
    renamed.stem = "d1".into();
    let report = ingest(&renamed, &mut *store, &Silent).unwrap();
    assert_eq!((report.names.stem.as_str(), report.is_resumed), ("d1", true));
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
