//! What every store must do, tried on each of them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::record_wire::tests::sealed_run;
use super::test_server::TestServer;
use super::{Access, Expected, FeedNote, MemoryStore, Store, StoreConfig, StoreError, StoreLocation};
use crate::domain::{
    Adoption, Bid, Claim, ClaimOutcome, Digest, Interrupt, Marker, Owner, PostedDay, RunId, RunRecord, RunState,
    SourceHash,
};

/// The data of one store, for as many handles as a test wants.
trait StoreData {
    fn open(&self) -> Box<dyn Store>;
}

/// Makes an empty store.
type MakeData = fn() -> Box<dyn StoreData>;

/// Every kind of store, and how to get an empty one.
const STORES: [(&str, MakeData); 5] = [
    ("memory", || Box::new(SharedMemory::default())),
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
        claim_ttl: Duration::from_secs(220_924_800),
        lock_timeout: Duration::from_secs(5),
        batch_size: None,
        failures_max: 3,
        username: None,
        password: None,
        remembered: None,
        access: Access::Write { create: true },
        interrupt: Interrupt::default(),
    }
}

#[derive(Default, Clone)]
struct SharedMemory(Arc<Mutex<MemoryStore>>);

impl SharedMemory {
    fn lock(&self) -> MutexGuard<'_, MemoryStore> {
        self.0.lock().unwrap()
    }
}

impl StoreData for SharedMemory {
    fn open(&self) -> Box<dyn Store> {
        Box::new(self.clone())
    }
}

impl Store for SharedMemory {
    fn claims_per_call(&self) -> usize {
        self.lock().claims_per_call()
    }

    fn claim(&mut self, bid: &Bid, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, StoreError> {
        self.lock().claim(bid, claims)
    }

    fn adopt(&mut self, adoptions: &[Adoption]) -> Result<Vec<bool>, StoreError> {
        self.lock().adopt(adoptions)
    }

    fn look_up(&mut self, claims: &[Claim]) -> Result<Vec<Option<Marker>>, StoreError> {
        self.lock().look_up(claims)
    }

    fn release(&mut self, run: &RunId, claims: &[Claim]) -> Result<u64, StoreError> {
        self.lock().release(run, claims)
    }

    fn advance_age(&mut self) -> Result<u64, StoreError> {
        self.lock().advance_age()
    }

    fn check_intact(&mut self) -> Result<(), StoreError> {
        self.lock().check_intact()
    }

    fn run_record(&mut self, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        self.lock().run_record(run)
    }

    fn write_run(&mut self, expected: Option<Expected>, record: &RunRecord) -> Result<bool, StoreError> {
        self.lock().write_run(expected, record)
    }

    fn feed_note(&mut self, feed: &Digest, meaning: &Digest) -> Result<Option<FeedNote>, StoreError> {
        self.lock().feed_note(feed, meaning)
    }

    fn write_feed_note(&mut self, feed: &Digest, meaning: &Digest, note: &FeedNote) -> Result<(), StoreError> {
        self.lock().write_feed_note(feed, meaning, note)
    }
}

/// A claim of the record that `record` stands for.
pub(super) fn claim(record: u64, row: u64) -> Claim {
    // Few days for many records, as in a statement.
    let posted_day = PostedDay(20_000 + u32::try_from(record % 31).unwrap());
    Claim { source_hash: SourceHash::of(&record.to_be_bytes()), posted_day, row }
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
        assert_eq!(one.look_up(&[claim(2, 9)]).unwrap(), [Some(marker(&second, 2))]);
        assert!(one.write_run(None, &sealed_run("r-1")).unwrap());
        assert_eq!(other.run_record(&run_id("r-1")).unwrap(), Some(sealed_run("r-1")));
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
            owner: Arc::clone(&heir),
        };
        let adoptions = [adoption(1, 7, 3), adoption(2, 9, 4), adoption(3, 1, 5)];
        assert_eq!(store.adopt(&adoptions).unwrap(), [true, false, false]);
        assert_eq!(store.adopt(&adoptions).unwrap(), [true, false, false], "an answer that was lost");
        let found = store.look_up(&[claim(1, 0), claim(2, 0), claim(3, 0)]).unwrap();
        let marker = |owner: &Bid, row| Some(Marker::Run { owner: Arc::clone(owner), row });
        assert_eq!(found, [marker(&heir, 3), marker(&old, 8), None]);
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
        assert_eq!(looked_up, [None, Some(marker(&first, 5)), None]);
        assert_eq!(store.claim(&bid("r-2", 1), &[claim(1, 1)]).unwrap(), [ClaimOutcome::Novel]);
    });
}

#[test]
fn a_release_frees_what_is_of_the_run_and_the_row_and_nothing_else() {
    on_every_store(|data| {
        let (mut store, first, later) = (data.open(), bid("r-1", 1), bid("r-1", 2));
        let (longer_name, longer_row) = (bid("r-11", 1), bid("r-1", 1));
        store.claim(&first, &[claim(1, 1), claim(2, 2)]).unwrap();
        store.claim(&later, &[claim(3, 3)]).unwrap();
        store.claim(&longer_name, &[claim(4, 4)]).unwrap();
        store.claim(&longer_row, &[claim(5, 50)]).unwrap();
        let claims = [claim(1, 1), claim(2, 9), claim(3, 3), claim(4, 4), claim(5, 5), claim(6, 6)];
        assert_eq!(store.release(&run_id("r-1"), &claims).unwrap(), 2, "row 1, and row 3 of a later epoch");
        assert_eq!(store.release(&run_id("r-1"), &claims).unwrap(), 0);
        assert_eq!(store.release(&run_id("r-1"), &[]).unwrap(), 0);
        let left = store.look_up(&claims).unwrap();
        let expected =
            [None, Some(marker(&first, 2)), None, Some(marker(&longer_name, 4)), Some(marker(&first, 50)), None];
        assert_eq!(left, expected);
        assert_eq!(store.claim(&bid("r-2", 1), &[claim(1, 8)]).unwrap(), [ClaimOutcome::Novel]);
    });
}

#[test]
fn a_run_record_changes_only_from_the_state_and_epoch_that_were_expected() {
    on_every_store(|data| {
        let mut store = data.open();
        let expect = |state, epoch| Some(Expected { state, epoch });
        let sealed = sealed_run("r-1");
        let opened = RunRecord { state: RunState::Open, outputs: vec![], audit_chain: None, ..sealed.clone() };
        assert_eq!(store.run_record(&opened.run).unwrap(), None);
        assert!(!store.write_run(expect(RunState::Open, 2), &sealed).unwrap(), "there is none yet");
        assert!(store.write_run(None, &opened).unwrap());
        assert!(store.write_run(None, &opened).unwrap(), "an answer that was lost");
        assert!(!store.write_run(None, &sealed).unwrap(), "there is one already");
        assert!(!store.write_run(expect(RunState::Fenced, 2), &sealed).unwrap(), "another state");
        assert!(!store.write_run(expect(RunState::Open, 1), &sealed).unwrap(), "another epoch");
        assert_eq!(store.run_record(&opened.run).unwrap().as_ref(), Some(&opened));
        assert!(store.write_run(expect(RunState::Open, 2), &sealed).unwrap());
        assert!(store.write_run(expect(RunState::Open, 2), &sealed).unwrap(), "an answer that was lost");
        assert!(!store.write_run(expect(RunState::Open, 2), &opened).unwrap(), "the state has moved on");
        assert_eq!(store.run_record(&sealed.run).unwrap(), Some(sealed));
        assert_eq!(store.run_record(&run_id("r-11")).unwrap(), None);
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

/// One call, with record and row of each claim.
#[derive(Debug, Clone)]
enum Step {
    Claim { run: usize, claims: Vec<(u64, u64)> },
    LookUp { records: Vec<u64> },
    Release { run: usize, claims: Vec<(u64, u64)> },
}

fn step() -> impl Strategy<Value = Step> {
    // Few records, rows and runs, so that calls meet each other's claims.
    let claims = || proptest::collection::vec((0_u64..12, 1_u64..5), 0..8);
    prop_oneof![
        (0_usize..3, claims()).prop_map(|(run, claims)| Step::Claim { run, claims }),
        proptest::collection::vec(0_u64..12, 0..8).prop_map(|records| Step::LookUp { records }),
        (0_usize..3, claims()).prop_map(|(run, claims)| Step::Release { run, claims }),
    ]
}

/// Carries `steps` out on `store` and on a plain map; records are numbered from `first`, which no other case uses.
fn check_against_map(store: &mut dyn Store, first: u64, steps: &[Step]) -> Result<(), TestCaseError> {
    let bids = [bid("r-1", 1), bid("r-1", 2), bid("r-2", 1)];
    let mut owner_by_record: HashMap<u64, (usize, u64)> = HashMap::new();
    let as_claims =
        |pairs: &[(u64, u64)]| pairs.iter().map(|&(record, row)| claim(first + record, row)).collect::<Vec<_>>();
    for step in steps {
        match step {
            Step::Claim { run, claims } => {
                let mut expected = Vec::new();
                for &(record, row) in claims {
                    expected.push(match owner_by_record.get(&record) {
                        Some(&(owner, row)) => found(&bids[owner], row),
                        None => ClaimOutcome::Novel,
                    });
                    owner_by_record.entry(record).or_insert((*run, row));
                }
                prop_assert_eq!(store.claim(&bids[*run], &as_claims(claims)).unwrap(), expected);
            }
            Step::LookUp { records } => {
                let claims: Vec<Claim> = records.iter().map(|record| claim(first + record, 1)).collect();
                let owner = |record| owner_by_record.get(record).map(|&(owner, row)| marker(&bids[owner], row));
                prop_assert_eq!(store.look_up(&claims).unwrap(), records.iter().map(owner).collect::<Vec<_>>());
            }
            Step::Release { run, claims } => {
                let before = owner_by_record.len();
                for &(record, row) in claims {
                    let is_own =
                        |&(owner, owned_row): &(usize, u64)| bids[owner].run == bids[*run].run && owned_row == row;
                    if owner_by_record.get(&record).is_some_and(is_own) {
                        owner_by_record.remove(&record);
                    }
                }
                let freed = u64::try_from(before - owner_by_record.len()).unwrap();
                prop_assert_eq!(store.release(&bids[*run].run, &as_claims(claims)).unwrap(), freed);
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
