//! What every store must do, tried on each of them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::record_wire::tests::sealed_run;
use super::test_server::TestServer;
use super::{Access, MemoryLayout, MemoryStore, Store, StoreConfig, StoreLocation};
use crate::domain::{
    Adoption, Bid, Canonicalizer, Claim, ClaimOutcome, ClaimScope, Digest, Expected, FeedNote, Interrupt, KnownRun,
    Lease, Marker, Original, Owner, RawRecord, RunId, RunRecord, RunState,
};

/// The data of one store, for as many handles as a test wants.
trait StoreData {
    fn open(&self) -> Box<dyn Store>;
}

/// Makes an empty store.
type MakeData = fn() -> Box<dyn StoreData>;

/// Every kind of store, and how to get an empty one.
const STORES: [(&str, MakeData); 6] = [
    ("memory, shared", || Box::new(MemoryStore::default())),
    ("memory, packed", || Box::new(MemoryStore::of_layout(MemoryLayout::Packed))),
    ("embedded", || Box::new(LmdbData::new(None))),
    ("embedded, in small transactions", || Box::new(LmdbData::new(Some(7)))),
    ("redis", || Box::new(RedisData { server: TestServer::start(&[]), by_unix_socket: false })),
    ("redis over a Unix socket", || Box::new(RedisData { server: TestServer::start(&[]), by_unix_socket: true })),
];

/// Runs `test` on an empty store of every kind.
fn on_every_store(test: impl Fn(&dyn StoreData)) {
    for (name, make) in STORES {
        // Shown only if the test fails.
        eprint_store(name);
        test(&*make());
    }
}

#[expect(clippy::print_stderr, reason = "names the store that a test failed on")]
fn eprint_store(name: &str) {
    eprintln!("store: {name}");
}

struct LmdbData {
    handles: Box<dyn Fn() -> Box<dyn Store>>,
    _folder: tempfile::TempDir,
}

impl LmdbData {
    fn new(batch_size: Option<usize>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig { batch_size, ..config_for(&format!("file:{}", folder.path().display())) };
        Self { handles: Box::new(super::lmdb_store::tests::handles(&config, folder.path())), _folder: folder }
    }
}

impl StoreData for LmdbData {
    fn open(&self) -> Box<dyn Store> {
        (self.handles)()
    }
}

struct RedisData {
    server: TestServer,
    by_unix_socket: bool,
}

impl StoreData for RedisData {
    fn open(&self) -> Box<dyn Store> {
        let url = if self.by_unix_socket { self.server.unix_url() } else { self.server.url() };
        super::open(&config_for(&url)).unwrap().store
    }
}

/// Settings for a test's server; its deadline bears a machine that is busy with other tests.
pub(super) fn config_for(url: &str) -> StoreConfig {
    StoreConfig {
        location: StoreLocation::parse(url).unwrap(),
        prefix: "dedup:bankfeed:".to_owned(),
        expected_records: 1_000_000,
        claim_ttl: Duration::from_secs(220_924_800),
        lock_timeout: Duration::from_secs(5),
        batch_size: None,
        replicas_min: 0,
        replicas_timeout: Duration::ZERO,
        failures_max: 3,
        username: None,
        password: None,
        remembered: None,
        access: Access::Write { create: true },
        interrupt: Interrupt::default(),
    }
}

impl StoreData for MemoryStore {
    fn open(&self) -> Box<dyn Store> {
        self.another()
    }
}

/// A claim of the record that `record` stands for, the one of its payment.
pub(super) fn claim(record: u64, row: u64) -> Claim {
    version(record, 0, row)
}

/// A claim of a version of the payment `payment`: each has another amount, and every third another day.
pub(super) fn version(payment: u64, version: u64, row: u64) -> Claim {
    // Few days for many records, as in a statement.
    let posted_at = format!("2026-07-{:02}", 1 + (payment + version / 3 * 7) % 31);
    let raw = RawRecord {
        account_id: "A",
        bank_txn_id: &payment.to_string(),
        amount: &(version + 1).to_string(),
        currency: "EUR",
        posted_at: &posted_at,
    };
    Canonicalizer::default().form(&raw).unwrap().claim(ClaimScope::Payment, row)
}

/// The same claim, of the content alone.
fn of_content(claim: Claim) -> Claim {
    Claim { scope: ClaimScope::Content, ..claim }
}

/// The answer to a claim whose payment stands with the content of `original`.
fn differs(bid: &Bid, original: Claim) -> ClaimOutcome {
    ClaimOutcome::Differs(Box::new(Original { marker: marker(bid, original.row), content: original.content() }))
}

pub(super) fn bid(run: &str, epoch: u32) -> Bid {
    Arc::new(Owner { run: run_id(run), epoch, seen_at: format!("2026-07-15T09:03:{epoch:02}Z") })
}

pub(super) fn run_id(run: &str) -> RunId {
    RunId::parse(run).unwrap()
}

pub(super) fn found(bid: &Bid, row: u64) -> ClaimOutcome {
    ClaimOutcome::Found(marker(bid, row))
}

pub(super) fn marker(bid: &Bid, row: u64) -> Marker {
    Marker::Run { owner: bid.clone(), row }
}

#[test]
fn a_claim_is_novel_once_and_its_own_from_then_on() {
    on_every_store(|data| {
        let (mut store, bid) = (data.open(), bid("r-1", 1));
        assert_eq!(store.claim(&bid, &[claim(1, 1)]).unwrap(), [ClaimOutcome::Novel]);
        assert_eq!(store.claim(&bid, &[claim(1, 1)]).unwrap(), [found(&bid, 1)]);
        assert_eq!(store.claim(&bid, &[claim(1, 1)]).unwrap(), [found(&bid, 1)]);
    });
}

#[test]
fn another_run_and_another_epoch_find_the_marker_of_the_first_with_its_time_and_epoch() {
    on_every_store(|data| {
        let (mut store, first) = (data.open(), bid("r-1", 3));
        assert_eq!(store.claim(&first, &[claim(1, 17)]).unwrap(), [ClaimOutcome::Novel]);
        assert_eq!(store.claim(&bid("r-2", 1), &[claim(1, 1)]).unwrap(), [found(&first, 17)]);
        assert_eq!(store.claim(&bid("r-1", 4), &[claim(1, 17)]).unwrap(), [found(&first, 17)]);
    });
}

#[test]
fn of_equal_hashes_in_one_call_the_first_row_wins() {
    on_every_store(|data| {
        let (mut store, bid) = (data.open(), bid("r-1", 1));
        let claims: Vec<Claim> = (1..=3_000).map(|row| claim(row % 1_000, row)).collect();
        let outcomes = store.claim(&bid, &claims).unwrap();
        for (claim, outcome) in claims.iter().zip(outcomes) {
            let first_row = (claim.row - 1) % 1_000 + 1;
            let expected = if claim.row == first_row { ClaimOutcome::Novel } else { found(&bid, first_row) };
            assert_eq!(outcome, expected, "row {}", claim.row);
        }
    });
}

#[test]
fn outcomes_come_back_in_the_order_of_the_claims_whatever_their_number() {
    on_every_store(|data| {
        let (mut store, first, second) = (data.open(), bid("r-1", 1), bid("r-2", 1));
        assert_eq!(store.claim(&first, &[]).unwrap(), []);
        let claims: Vec<Claim> = (1..=5_000).map(|row| claim(row * 7_919 % 5_003, row)).collect();
        let every_third: Vec<Claim> = claims.iter().copied().filter(|claim| claim.row % 3 == 0).collect();
        store.claim(&first, &every_third).unwrap();
        let outcomes = store.claim(&second, &claims).unwrap();
        assert_eq!(outcomes.len(), claims.len());
        for (claim, outcome) in claims.iter().zip(outcomes) {
            let expected = if claim.row % 3 == 0 { found(&first, claim.row) } else { ClaimOutcome::Novel };
            assert_eq!(outcome, expected, "row {}", claim.row);
        }
    });
}

#[test]
fn two_handles_see_each_others_claims_and_records() {
    on_every_store(|data| {
        let (mut one, mut other) = (data.open(), data.open());
        let (first, second) = (bid("r-1", 1), bid("r-2", 1));
        assert_eq!(one.claim(&first, &[claim(1, 1)]).unwrap(), [ClaimOutcome::Novel]);
        assert_eq!(other.claim(&second, &[claim(1, 1), claim(2, 2)]).unwrap(), [found(&first, 1), ClaimOutcome::Novel]);
        assert_eq!(one.look_up(&[claim(2, 9)]).unwrap(), [found(&second, 2)]);
        assert!(one.write_run(None, &sealed_run("r-1"), None).unwrap());
        assert_eq!(other.run_record(&run_id("r-1")).unwrap(), Some(known(sealed_run("r-1"))));
    });
}

#[test]
fn a_store_never_grows_younger() {
    on_every_store(|data| {
        let mut last = 0;
        for seed in 1..4 {
            let mut store = data.open();
            store.claim(&bid("r-1", 1), &[claim(seed, 1)]).unwrap();
            let age = store.advance_age().unwrap();
            assert!(age > last, "{age} after {last}");
            last = age;
        }
    });
}

#[test]
fn a_claim_passes_to_a_later_epoch_only_from_the_marker_that_was_found() {
    on_every_store(|data| {
        let mut store = data.open();
        let (old, new) = (bid("r-1", 1), bid("r-1", 2));
        store.claim(&old, &[claim(1, 7), claim(2, 8)]).unwrap();
        let heir = Arc::new(Owner { seen_at: old.seen_at.clone(), ..(*new).clone() });
        let adoption = |hash, found_row, row| Adoption {
            claim: claim(hash, row),
            found: (Arc::clone(&old), found_row),
            differing: None,
            owner: Arc::clone(&heir),
        };
        let adoptions = [adoption(1, 7, 3), adoption(2, 9, 4), adoption(3, 1, 5)];
        assert_eq!(store.adopt(&adoptions).unwrap(), [true, false, false]);
        assert_eq!(store.adopt(&adoptions).unwrap(), [true, false, false], "an answer that was lost");
        let found = store.look_up(&[claim(1, 0), claim(2, 0), claim(3, 0)]).unwrap();
        assert_eq!(found, [self::found(&heir, 3), self::found(&old, 8), ClaimOutcome::Novel]);
        assert_eq!(store.adopt(&[]).unwrap(), [] as [bool; 0]);
    });
}

#[test]
fn looking_up_finds_markers_and_writes_nothing() {
    on_every_store(|data| {
        let (mut store, first) = (data.open(), bid("r-1", 2));
        assert_eq!(store.look_up(&[]).unwrap(), []);
        store.claim(&first, &[claim(2, 5)]).unwrap();
        let looked_up = store.look_up(&[claim(1, 1), claim(2, 2), claim(1, 3)]).unwrap();
        assert_eq!(looked_up, [ClaimOutcome::Novel, found(&first, 5), ClaimOutcome::Novel]);
        assert_eq!(store.claim(&bid("r-2", 1), &[claim(1, 1)]).unwrap(), [ClaimOutcome::Novel]);
    });
}

#[test]
fn a_release_frees_what_is_of_the_run_and_of_no_later_epoch_and_nothing_else() {
    on_every_store(|data| {
        let (mut store, first, later) = (data.open(), bid("r-1", 1), bid("r-1", 2));
        let longer_name = bid("r-11", 1);
        store.claim(&first, &[claim(1, 1), claim(2, 2)]).unwrap();
        store.claim(&later, &[claim(3, 3)]).unwrap();
        store.claim(&longer_name, &[claim(4, 4)]).unwrap();
        let claims = [claim(1, 1), claim(2, 9), claim(3, 3), claim(4, 4), claim(6, 6)];
        assert_eq!(store.release(&run_id("r-1"), 1, &claims).unwrap(), 2, "whatever the row");
        assert_eq!(store.release(&run_id("r-1"), 1, &claims).unwrap(), 0);
        assert_eq!(store.release(&run_id("r-1"), 1, &[]).unwrap(), 0);
        let left = store.look_up(&claims).unwrap();
        use ClaimOutcome::Novel;
        assert_eq!(left, [Novel, Novel, found(&later, 3), found(&longer_name, 4), Novel]);
        assert_eq!(store.release(&run_id("r-1"), 2, &claims).unwrap(), 1);
        assert_eq!(store.claim(&bid("r-2", 1), &[claim(1, 8)]).unwrap(), [ClaimOutcome::Novel]);
    });
}

#[test]
fn a_run_is_freed_of_all_its_claims_without_naming_them() {
    on_every_store(|data| {
        let (mut store, first, later, other) = (data.open(), bid("r-1", 1), bid("r-1", 2), bid("r-11", 1));
        let claims =
            |records: std::ops::Range<u64>| records.map(|record| claim(record, record + 1)).collect::<Vec<_>>();
        store.claim(&first, &claims(0..1_500)).unwrap();
        store.claim(&later, &claims(1_500..2_500)).unwrap();
        store.claim(&other, &claims(2_500..3_000)).unwrap();
        assert_eq!(store.release_run(&run_id("r-1")).unwrap(), 2_500);
        assert_eq!(store.release_run(&run_id("r-1")).unwrap(), 0);
        let left = store.look_up(&claims(0..3_000)).unwrap();
        let is_novel = |outcome: &ClaimOutcome| *outcome == ClaimOutcome::Novel;
        assert!(left[..2_500].iter().all(is_novel) && !left[2_500..].iter().any(is_novel));
    });
}

/// `record` of a run that never had a lease.
fn known(record: RunRecord) -> KnownRun {
    KnownRun { record, lease: Lease::Unknown }
}

#[test]
fn a_run_record_changes_only_from_the_state_and_epoch_that_were_expected() {
    on_every_store(|data| {
        let mut store = data.open();
        let expect = |state, epoch| Some(Expected { state, epoch, lease_over: false });
        let sealed = sealed_run("r-1");
        let opened = RunRecord { state: RunState::Open, outputs: vec![], audit_chain: None, ..sealed.clone() };
        assert_eq!(store.run_record(&opened.run).unwrap(), None);
        assert!(!store.write_run(expect(RunState::Open, 2), &sealed, None).unwrap(), "there is none yet");
        assert!(store.write_run(None, &opened, None).unwrap());
        assert!(store.write_run(None, &opened, None).unwrap(), "an answer that was lost");
        assert!(!store.write_run(None, &sealed, None).unwrap(), "there is one already");
        assert!(!store.write_run(expect(RunState::Fenced, 2), &sealed, None).unwrap(), "another state");
        assert!(!store.write_run(expect(RunState::Open, 1), &sealed, None).unwrap(), "another epoch");
        assert_eq!(store.run_record(&opened.run).unwrap(), Some(known(opened.clone())));
        assert!(store.write_run(expect(RunState::Open, 2), &sealed, None).unwrap());
        assert!(store.write_run(expect(RunState::Open, 2), &sealed, None).unwrap(), "an answer that was lost");
        assert!(!store.write_run(expect(RunState::Open, 2), &opened, None).unwrap(), "the state has moved on");
        assert_eq!(store.run_record(&sealed.run).unwrap(), Some(known(sealed)));
        assert_eq!(store.run_record(&run_id("r-11")).unwrap(), None);
    });
}

#[test]
fn a_lease_is_renewed_by_its_own_attempt_and_over_when_it_is_given_up() {
    on_every_store(|data| {
        let mut store = data.open();
        let hour = Duration::from_secs(3_600);
        let opened = RunRecord { state: RunState::Open, ..sealed_run("r-1") };
        let lease = |store: &mut Box<dyn Store>| store.run_record(&run_id("r-1")).unwrap().unwrap().lease;
        assert!(!store.renew_lease(&opened.run, 2, hour).unwrap(), "there is no such run");
        assert!(store.write_run(None, &opened, Some(hour)).unwrap());
        assert!(matches!(lease(&mut store), Lease::Running { left } if left <= hour && left > hour / 2));
        let if_over = Some(Expected { state: RunState::Open, epoch: 2, lease_over: true });
        let fenced = RunRecord { state: RunState::Fenced, ..opened.clone() };
        assert!(!store.write_run(if_over, &fenced, None).unwrap(), "its worker lives");
        assert!(!store.renew_lease(&opened.run, 1, Duration::ZERO).unwrap(), "another attempt");
        assert!(store.renew_lease(&opened.run, 2, Duration::ZERO).unwrap());
        assert_eq!(lease(&mut store), Lease::Over);
        assert!(store.renew_lease(&opened.run, 2, hour).unwrap(), "it was not barred, so it may go on");
        assert!(store.renew_lease(&opened.run, 2, Duration::ZERO).unwrap());
        assert!(store.write_run(if_over, &fenced, None).unwrap());
        assert!(!store.renew_lease(&opened.run, 2, hour).unwrap(), "it is barred");
    });
}

#[test]
fn a_run_without_a_lease_is_never_taken_for_one_whose_lease_is_over() {
    on_every_store(|data| {
        let mut store = data.open();
        let opened = RunRecord { state: RunState::Open, ..sealed_run("r-1") };
        assert!(store.write_run(None, &opened, None).unwrap());
        let if_over = Some(Expected { state: RunState::Open, epoch: 2, lease_over: true });
        assert!(!store.write_run(if_over, &RunRecord { state: RunState::Fenced, ..opened }, None).unwrap());
    });
}

#[test]
fn every_run_is_found_in_the_order_of_ids() {
    on_every_store(|data| {
        let mut store = data.open();
        let ids: Vec<String> = (0..450).map(|number| format!("r-{number:03}")).collect();
        for id in ids.iter().rev() {
            assert!(store.write_run(None, &sealed_run(id), None).unwrap());
        }
        store.claim(&bid("r-000", 1), &[claim(1, 1)]).unwrap();
        let mut found = Vec::new();
        store.each_run(&mut |known| found.push(known.record.run.to_string())).unwrap();
        assert_eq!(found, ids);
    });
}

#[test]
fn a_feed_remembers_its_latest_run_for_each_meaning() {
    on_every_store(|data| {
        let mut store = data.open();
        let (feed, one, other) = (Digest::of(b"feed"), Digest::of(b"one"), Digest::of(b"other"));
        let note = |run: &str, pass| FeedNote { run: run_id(run), pass };
        assert_eq!(store.feed_note(&feed, &one).unwrap(), None);
        store.write_feed_note(&feed, &one, &note("r-1", 1)).unwrap();
        store.write_feed_note(&feed, &other, &note("r-2", 1)).unwrap();
        store.write_feed_note(&feed, &one, &note("r-3", 2)).unwrap();
        assert_eq!(store.feed_note(&feed, &one).unwrap(), Some(note("r-3", 2)));
        assert_eq!(store.feed_note(&feed, &other).unwrap(), Some(note("r-2", 1)));
        assert_eq!(store.feed_note(&Digest::of(b"another feed"), &one).unwrap(), None);
    });
}

#[test]
fn another_content_of_a_payment_is_told_from_the_same_one_and_claims_nothing() {
    on_every_store(|data| {
        let (mut store, first, second) = (data.open(), bid("r-1", 1), bid("r-2", 1));
        let original = version(1, 0, 17);
        assert_eq!(store.claim(&first, &[original]).unwrap(), [ClaimOutcome::Novel]);
        // Another amount, and another amount on another day.
        let others = [version(1, 1, 1), version(1, 5, 2)];
        let expected = [differs(&first, original), differs(&first, original)];
        assert_eq!(store.look_up(&others).unwrap(), expected);
        assert_eq!(store.claim(&second, &others).unwrap(), expected);
        assert_eq!(store.claim(&second, &others).unwrap(), expected, "an answer that was lost");
        store.release(&second.run, 1, &others).unwrap();
        assert_eq!(store.claim(&bid("r-3", 1), &others).unwrap(), expected);
        store.release(&run_id("r-3"), 1, &others).unwrap();
        assert_eq!(store.claim(&second, &[version(1, 0, 3)]).unwrap(), [found(&first, 17)]);
        assert_eq!(store.release(&first.run, 1, &[original]).unwrap(), 1);
        assert_eq!(store.claim(&second, &others).unwrap(), [ClaimOutcome::Novel, differs(&second, others[0])]);
    });
}

#[test]
fn of_several_contents_in_one_call_the_first_row_wins_whatever_its_day() {
    on_every_store(|data| {
        let (mut store, bid) = (data.open(), bid("r-1", 1));
        let claims: Vec<Claim> = (0..300).map(|row| version(row % 100, row / 100 * 4, row + 1)).collect();
        let outcomes = store.claim(&bid, &claims).unwrap();
        for (index, outcome) in outcomes.into_iter().enumerate() {
            let expected = if index < 100 { ClaimOutcome::Novel } else { differs(&bid, claims[index % 100]) };
            assert_eq!(outcome, expected, "row {}", index + 1);
        }
    });
}

#[test]
fn a_content_that_is_claimed_alone_stands_beside_the_others_of_its_payment() {
    on_every_store(|data| {
        let (mut store, first, second) = (data.open(), bid("r-1", 1), bid("r-2", 1));
        let (original, same_day, other_day) = (version(1, 0, 1), version(1, 1, 2), version(1, 5, 3));
        let all = [original, same_day, other_day];
        store.claim(&first, &[original]).unwrap();
        let alone = [of_content(same_day), of_content(other_day)];
        assert_eq!(store.look_up(&alone).unwrap(), [ClaimOutcome::Novel, ClaimOutcome::Novel]);
        assert_eq!(store.claim(&second, &alone).unwrap(), [ClaimOutcome::Novel, ClaimOutcome::Novel]);
        assert_eq!(store.claim(&second, &alone).unwrap(), [found(&second, 2), found(&second, 3)]);
        let third = bid("r-3", 1);
        assert_eq!(store.claim(&third, &alone).unwrap(), [found(&second, 2), found(&second, 3)]);
        assert_eq!(store.claim(&third, &all).unwrap(), [found(&first, 1), found(&second, 2), found(&second, 3)]);
        assert_eq!(store.release(&first.run, 1, &all).unwrap(), 1);
        // Whatever stood first, what stands is known.
        assert_eq!(store.claim(&third, &all[1..]).unwrap(), [found(&second, 2), found(&second, 3)]);
        assert_eq!(store.release_run(&second.run).unwrap(), 2);
    });
}

#[test]
fn a_payment_passes_to_another_content_only_from_the_one_that_was_found() {
    on_every_store(|data| {
        let (mut store, old, new) = (data.open(), bid("r-1", 1), bid("r-2", 1));
        let (original, on_its_day, on_another) = (version(1, 0, 7), version(1, 1, 3), version(2, 5, 4));
        store.claim(&old, &[original, version(2, 0, 8)]).unwrap();
        let adoption = |claim: Claim, row, before: Claim| Adoption {
            claim,
            found: (Arc::clone(&old), row),
            differing: Some(before.content()),
            owner: Arc::clone(&new),
        };
        let adoptions = [
            adoption(on_its_day, 7, original),
            adoption(on_another, 8, version(2, 0, 8)),
            adoption(version(3, 1, 9), 1, version(3, 0, 1)),
        ];
        assert_eq!(store.adopt(&[adoption(on_its_day, 7, version(1, 2, 7))]).unwrap(), [false], "another content");
        assert_eq!(store.adopt(&[adoption(on_its_day, 6, original)]).unwrap(), [false], "another row");
        assert_eq!(store.adopt(&adoptions).unwrap(), [true, true, false]);
        assert_eq!(store.adopt(&adoptions).unwrap(), [true, true, false], "an answer that was lost");
        let both = [on_its_day, on_another];
        let own = store.claim(&new, &both).unwrap();
        assert!(own.iter().all(|outcome| outcome.run_marker().is_none_or(|(owner, _)| *owner == new)), "{own:?}");
        assert_eq!(store.claim(&new, &both).unwrap(), [found(&new, 3), found(&new, 4)]);
        assert_eq!(store.claim(&bid("r-3", 1), &[version(2, 6, 1)]).unwrap(), [differs(&new, on_another)]);
        assert_eq!(store.release(&new.run, 1, &both).unwrap(), 2);
        // In the layout that others share the old source hashes are still claimed.
        store.release(&old.run, 1, &[original, version(2, 0, 8)]).unwrap();
        assert_eq!(store.claim(&new, &[original]).unwrap(), [ClaimOutcome::Novel]);
    });
}

#[test]
fn a_run_is_freed_of_its_payments_and_no_other_content_goes_with_them() {
    on_every_store(|data| {
        let (mut store, first, second) = (data.open(), bid("r-1", 1), bid("r-2", 1));
        let payments = |content| (0..2_000).map(|payment| version(payment, content, payment + 1)).collect::<Vec<_>>();
        store.claim(&first, &payments(0)).unwrap();
        let alone: Vec<Claim> = payments(1).into_iter().map(of_content).collect();
        store.claim(&second, &alone).unwrap();
        assert_eq!(store.release_run(&first.run).unwrap(), 2_000);
        assert_eq!(store.release_run(&first.run).unwrap(), 0);
        let left = store.look_up(&payments(1)).unwrap();
        assert!(left.iter().all(|outcome| outcome.run_marker().is_some_and(|(owner, _)| *owner == second)));
        assert_eq!(store.release_run(&second.run).unwrap(), 2_000);
        let left = store.look_up(&payments(0)).unwrap();
        assert!(left.iter().all(|outcome| *outcome == ClaimOutcome::Novel));
    });
}

/// One call, with payment, version and row of each claim.
#[derive(Debug, Clone)]
enum Step {
    Claim { run: usize, claims: Vec<(u64, u64, u64)> },
    LookUp { records: Vec<(u64, u64)> },
    Release { run: usize, claims: Vec<(u64, u64, u64)> },
}

fn step() -> impl Strategy<Value = Step> {
    // Few payments, versions, rows and runs, so that calls meet each other's claims.
    let claims = || proptest::collection::vec((0_u64..8, 0_u64..7, 1_u64..5), 0..8);
    prop_oneof![
        (0_usize..3, claims()).prop_map(|(run, claims)| Step::Claim { run, claims }),
        proptest::collection::vec((0_u64..8, 0_u64..7), 0..8).prop_map(|records| Step::LookUp { records }),
        (0_usize..3, claims()).prop_map(|(run, claims)| Step::Release { run, claims }),
    ]
}

/// Which version of each payment stands, and by which run and row.
type Standing = HashMap<u64, (u64, usize, u64)>;

/// Carries `steps` out on `store` and on a plain map; payments are numbered from `first`, which no other case uses.
fn check_against_map(store: &mut dyn Store, first: u64, steps: &[Step]) -> Result<(), TestCaseError> {
    let bids = [bid("r-1", 1), bid("r-1", 2), bid("r-2", 1)];
    let mut standing = Standing::new();
    let as_claims = |all: &[(u64, u64, u64)]| {
        all.iter().map(|&(payment, content, row)| version(first + payment, content, row)).collect::<Vec<_>>()
    };
    let expected = |standing: &Standing, payment: u64, content: u64| match standing.get(&payment) {
        None => ClaimOutcome::Novel,
        Some(&(same, owner, row)) if same == content => found(&bids[owner], row),
        Some(&(other, owner, row)) => differs(&bids[owner], version(first + payment, other, row)),
    };
    for step in steps {
        match step {
            Step::Claim { run, claims } => {
                let mut outcomes = Vec::new();
                for &(payment, content, row) in claims {
                    outcomes.push(expected(&standing, payment, content));
                    standing.entry(payment).or_insert((content, *run, row));
                }
                let made = store.claim(&bids[*run], &as_claims(claims)).unwrap();
                prop_assert_eq!(&made, &outcomes);
                // As every caller does.
                let differing = claims.iter().zip(made).filter(|(_, made)| matches!(made, ClaimOutcome::Differs(_)));
                let differing: Vec<_> = differing.map(|(claim, _)| *claim).collect();
                store.release(&bids[*run].run, bids[*run].epoch, &as_claims(&differing)).unwrap();
            }
            Step::LookUp { records } => {
                let claims: Vec<Claim> =
                    records.iter().map(|&(payment, content)| version(first + payment, content, 1)).collect();
                let outcomes = records.iter().map(|&(payment, content)| expected(&standing, payment, content));
                prop_assert_eq!(store.look_up(&claims).unwrap(), outcomes.collect::<Vec<_>>());
            }
            Step::Release { run, claims } => {
                let before = standing.len();
                for &(payment, content, _) in claims {
                    let is_own = |&(same, owner, _): &(u64, usize, u64)| {
                        let (owner, run) = (&bids[owner], &bids[*run]);
                        same == content && owner.run == run.run && owner.epoch <= run.epoch
                    };
                    if standing.get(&payment).is_some_and(is_own) {
                        standing.remove(&payment);
                    }
                }
                let freed = u64::try_from(before - standing.len()).unwrap();
                prop_assert_eq!(store.release(&bids[*run].run, bids[*run].epoch, &as_claims(claims)).unwrap(), freed);
            }
        }
    }
    Ok(())
}

#[test]
fn a_store_behaves_like_a_map() {
    on_every_store(|data| {
        let (store, cases) = (RefCell::new(data.open()), Cell::new(0));
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&proptest::collection::vec(step(), 1..20), |steps| {
            cases.set(cases.get() + 1);
            check_against_map(&mut **store.borrow_mut(), cases.get() * 1_000, &steps)
        });
        outcome.unwrap();
    });
}
