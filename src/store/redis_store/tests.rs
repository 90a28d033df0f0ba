//! What only a server can do to a store: other writers, failures of every kind, refusals.

mod proxy;
mod replication;

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::cmd;

use self::proxy::{Fate, Proxy, start_server_that_answers_set};
use super::opening::open_store;
use super::*;
use crate::domain::Marker;
use crate::store::conformance::{bid, claim, config_for, found, run_id};
use crate::store::test_server::TestServer;
use crate::store::{Access, OpenedStore, Secret, StoreConfig, open};

/// The password of every test.
const PASSWORD: &str = "s3cr3t-p4ssw0rd";

/// A client that knows nothing of this program.
fn plain_client(server: &TestServer) -> redis::Connection {
    redis::Client::open(server.url()).unwrap().get_connection_with_timeout(Duration::from_secs(5)).unwrap()
}

fn ask<T: redis::FromRedisValue>(client: &mut redis::Connection, command: &[&str]) -> T {
    cmd(command[0]).arg(&command[1..]).query(client).unwrap()
}

fn config(server: &TestServer) -> StoreConfig {
    config_for(&server.url())
}

/// A store that fails fast; its waits are as short as a test wants them.
fn impatient_store(url: &str, lock_timeout: Duration, failures_max: u32) -> RedisStore {
    let config = StoreConfig { failures_max, batch_size: Some(9), ..config_for(url) };
    let (mut store, _) = open_store(&config).unwrap();
    store.server.backoff_first = Duration::from_millis(1);
    // Only from here on: opening has to work on a busy machine too.
    store.server.place.set_lock_timeout(lock_timeout);
    (store.server.link, store.server.control) = (None, None);
    store
}

fn open_error(config: &StoreConfig) -> StoreError {
    open(config).expect_err("the store is refused")
}

fn key_of(claim: &Claim) -> String {
    format!("dedup:bankfeed:{}", claim.source_hash)
}

#[test]
fn a_claim_stands_as_the_contract_says_and_for_as_long() {
    let server = TestServer::start(&[]);
    let mut store = open(&config(&server)).unwrap().store;
    let claimed = claim(1, 17);
    store.claim(&bid("r-1", 3), &[claimed]).unwrap();
    let (mut client, key) = (plain_client(&server), key_of(&claimed));
    assert_eq!(ask::<String>(&mut client, &["GET", &key]), "r-1:17|2026-07-15T09:03:03Z|3");
    let ttl: i64 = ask(&mut client, &["TTL", &key]);
    assert!((220_924_800 - 60..=220_924_800).contains(&ttl), "{ttl}");
    store.write_run(None, &crate::store::record_wire::tests::sealed_run("r-1"), None).unwrap();
    assert_eq!(ask::<i64>(&mut client, &["TTL", "dedup:bankfeed:run:r-1"]), -1, "run records do not expire");
}

#[test]
fn plain_writers_and_this_program_respect_each_other() {
    let server = TestServer::start(&[]);
    let mut store = open(&config(&server)).unwrap().store;
    let mut client = plain_client(&server);
    let mut plain_claim = |claim: &Claim, marker: &str| -> Option<String> {
        ask(&mut client, &["SET", &key_of(claim), marker, "NX", "EX", "86400"])
    };
    let (theirs, ours, garbled) = (claim(1, 1), claim(2, 2), claim(3, 3));
    assert!(plain_claim(&theirs, "hook-7|2026-07-15T09:03:00+00:00").is_some());
    assert!(plain_claim(&garbled, "done").is_some());
    let outcomes = store.claim(&bid("r-1", 1), &[theirs, ours, garbled]).unwrap();
    let other_writer =
        Marker::OtherWriter(std::sync::Arc::new(("hook-7".to_owned(), "2026-07-15T09:03:00+00:00".to_owned())));
    let expected = [ClaimOutcome::Found(other_writer), ClaimOutcome::Novel, ClaimOutcome::Found(Marker::Unreadable)];
    assert_eq!(outcomes, expected);
    assert!(plain_claim(&ours, "hook-8|2026-07-15T09:03:00+00:00").is_none(), "ours stands");
    assert_eq!(store.release(&run_id("hook-7"), 1, &[theirs]).unwrap(), 0);
}

#[test]
fn a_marker_of_another_writer_is_not_released_though_its_trace_looks_like_ours() {
    let server = TestServer::start(&[]);
    let mut store = open(&config(&server)).unwrap().store;
    let theirs = claim(1, 1);
    ask::<()>(&mut plain_client(&server), &["SET", &key_of(&theirs), "r-1:1|2026-07-15T09:03:00Z"]);
    assert_eq!(store.release(&run_id("r-1"), 1, &[theirs]).unwrap(), 0);
    assert!(matches!(store.look_up(&[theirs]).unwrap()[..], [ClaimOutcome::Found(Marker::OtherWriter(_))]));
}

/// A store behind a proxy, and records that another run holds in part.
struct Bench {
    _server: TestServer,
    proxy: Proxy,
    store: RedisStore,
    /// Claims straight at the server.
    other: RedisStore,
    /// Bytes of replies before the first claim's.
    login_len: usize,
    records_used: u64,
}

impl Bench {
    fn new(lock_timeout: Duration, failures_max: u32) -> Self {
        let server = TestServer::start(&[]);
        let proxy = Proxy::start(server.socket_address());
        let (other, _) = open_store(&config(&server)).unwrap();
        let mut store = impatient_store(&proxy.url(), lock_timeout, failures_max);
        // As the record of a run that opens does.
        store.references.register(&mut store.server, &bid("r-ours", 1)).unwrap();
        let meta = crate::store::record_wire::encode_meta(store.server.place.meta.as_ref().unwrap());
        let login_len = format!("+OK\r\n${}\r\n{meta}\r\n", meta.len()).len();
        Self { _server: server, proxy, store, other, login_len, records_used: 0 }
    }

    /// Claims `count` records, every second of which another run holds, while connections meet `fates`.
    fn check(&mut self, count: u64, fates: &[Fate]) {
        let first = self.records_used;
        self.records_used += count;
        // Rows of the other run are told from ours, so that an answer to another row is seen.
        let claims: Vec<Claim> = (1..=count).map(|row| claim(first + row, row)).collect();
        let theirs: Vec<Claim> =
            claims.iter().filter(|c| c.row % 2 == 0).map(|c| Claim { row: c.row + 1_000_000, ..*c }).collect();
        let (their_bid, our_bid) = (bid("r-other", 1), bid("r-ours", 1));
        self.other.claim(&their_bid, &theirs).unwrap();
        self.store.server.link = None;
        self.proxy.doom(fates.iter().map(|fate| match *fate {
            Fate::Cut(bytes) => Fate::Cut(self.login_len + bytes),
            Fate::Stall(bytes) => Fate::Stall(self.login_len + bytes),
        }));
        let outcomes = self.store.claim(&our_bid, &claims).unwrap_or_else(|error| panic!("{fates:?}: {error:?}"));
        assert_eq!(outcomes.len(), claims.len());
        for (claim, outcome) in claims.iter().zip(outcomes) {
            if claim.row % 2 == 0 {
                assert_eq!(outcome, found(&their_bid, claim.row + 1_000_000), "{fates:?}");
            } else {
                // The first answer may be lost; the second then finds the claim that it told of.
                let own = outcome == ClaimOutcome::Novel || outcome == found(&our_bid, claim.row);
                assert!(own, "{fates:?}: row {} got {outcome:?}", claim.row);
            }
        }
        let standing = self.store.look_up(&claims).unwrap();
        for (claim, standing) in claims.iter().zip(standing) {
            let theirs = claim.row % 2 == 0;
            let expected = if theirs { found(&their_bid, claim.row + 1_000_000) } else { found(&our_bid, claim.row) };
            assert_eq!(standing, expected, "{fates:?}");
        }
    }
}

/// Enough for any machine to answer within; no test waits so long but for a stall.
const AMPLE: Duration = Duration::from_secs(10);

#[test]
fn a_connection_cut_at_any_byte_of_a_batch_costs_no_answer_and_mixes_none_up() {
    let mut bench = Bench::new(AMPLE, 10);
    // Two rows are `$-1` and a marker of about 60 bytes: every place in the first rows, and then every seventh.
    let cuts = (0..150).chain((150..1_400).step_by(7));
    for cut in cuts {
        bench.check(40, &[Fate::Cut(cut)]);
        assert_eq!(bench.proxy.fates_left(), 0);
    }
}

#[test]
fn a_silent_connection_is_given_up_and_costs_no_answer_either() {
    let mut bench = Bench::new(Duration::from_millis(50), 10);
    for (place, stall) in (1..).zip([0, 1, 4, 5, 6, 10, 40, 69, 70, 71, 75, 500, 1_000]) {
        bench.check(40, &[Fate::Stall(stall)]);
        assert_eq!(bench.store.answers_lost(), place);
    }
}

#[test]
fn failures_between_which_something_is_answered_are_no_row_of_failures() {
    let mut bench = Bench::new(AMPLE, 2);
    // Each connection gets a few rows through, among up to four batches in flight.
    let fates: Vec<Fate> = (0..30).map(|index| Fate::Cut(70 + index * 13)).collect();
    bench.check(3_000, &fates);
    assert_eq!(bench.proxy.fates_left(), 0);
}

#[test]
fn any_sequence_of_failures_is_survived() {
    let bench = std::cell::RefCell::new(Bench::new(Duration::from_millis(100), 20));
    let mut runner =
        TestRunner::new(Config { cases: 40, max_shrink_iters: 20, failure_persistence: None, ..Config::default() });
    let fate = prop_oneof![20 => (0_usize..4_000).prop_map(Fate::Cut), 1 => (0_usize..4_000).prop_map(Fate::Stall)];
    let outcome = runner.run(&(1_u64..300, proptest::collection::vec(fate, 0..6)), |(count, fates)| {
        let mut bench = bench.borrow_mut();
        bench.check(count, &fates);
        bench.proxy.forget_fates();
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn equal_hashes_stay_with_their_first_row_when_the_connection_is_cut() {
    let mut bench = Bench::new(AMPLE, 10);
    let our_bid = bid("r-ours", 1);
    for cut in (0..900).step_by(11) {
        bench.records_used += 10;
        let first = bench.records_used;
        let claims: Vec<Claim> = (1..=30).map(|row| claim(first + row % 10, row)).collect();
        bench.store.server.link = None;
        bench.proxy.doom([Fate::Cut(bench.login_len + cut)]);
        for (claim, outcome) in claims.iter().zip(bench.store.claim(&our_bid, &claims).unwrap()) {
            let first_row = (claim.row - 1) % 10 + 1;
            let is_first = claim.row == first_row;
            assert!(outcome == found(&our_bid, first_row) || (is_first && outcome == ClaimOutcome::Novel), "{cut}");
        }
    }
}

#[test]
fn a_server_that_closes_every_connection_is_given_up_after_as_many_failures_as_allowed() {
    let mut bench = Bench::new(AMPLE, 4);
    bench.proxy.doom([Fate::Cut(3); 10]);
    bench.store.server.link = None;
    let error = bench.store.claim(&bid("r-1", 1), &[claim(1, 1)]).unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    assert_eq!(bench.proxy.fates_left(), 6);
}

#[test]
fn a_stopped_server_is_given_up_in_time_and_used_again_when_it_goes_on() {
    let server = TestServer::start(&[]);
    let mut store = impatient_store(&server.url(), Duration::from_millis(100), 3);
    let (our_bid, claims) = (bid("r-1", 1), (1..=50).map(|row| claim(row, row)).collect::<Vec<_>>());
    store.claim(&our_bid, &claims[..1]).unwrap();
    store.run_record(&run_id("r-1")).unwrap();
    server.pause();
    let start = Instant::now();
    let error = store.claim(&our_bid, &claims).unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    assert!(store.server.link.is_none());
    let error = store.run_record(&run_id("r-1")).unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    assert!(store.server.control.is_none());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    server.resume();
    store.server.place.set_lock_timeout(AMPLE);
    // What was sent to the stopped server is carried out in the meantime, or not: both is right.
    for (claim, outcome) in claims.iter().zip(store.claim(&our_bid, &claims).unwrap()) {
        assert!(outcome == ClaimOutcome::Novel || outcome == found(&our_bid, claim.row), "{outcome:?}");
    }
    assert_eq!(store.run_record(&run_id("r-1")).unwrap(), None);
}

#[test]
fn a_server_that_is_not_there_is_told_at_once_when_opening() {
    let server = TestServer::start(&[]);
    let config = StoreConfig { failures_max: 10, ..config(&server) };
    drop(server);
    let start = Instant::now();
    assert!(matches!(open_error(&config), StoreError::Unreachable { .. }));
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn a_password_is_demanded_checked_and_never_shown() {
    let server = TestServer::start(&["--requirepass", PASSWORD]);
    let secret = |text: &str| Some(Secret::new(text.to_owned()));
    let with_password = StoreConfig { password: secret(PASSWORD), ..config(&server) };
    let opened = open(&with_password).unwrap();
    let in_url = config_for(&server.url().replace("redis://", &format!("redis://default:{PASSWORD}@")));
    let (store, _) = open_store(&in_url).unwrap();
    let overridden = StoreConfig { password: secret(PASSWORD), ..config_for(&in_url_with(&server, "wrong")) };
    let named = StoreConfig { username: Some("default".to_owned()), ..with_password.clone() };
    assert!(open(&overridden).is_ok() && open(&named).is_ok());
    let mut shown = vec![format!("{opened:?} {with_password:?} {in_url:?} {store:?}")];
    for denied in [
        config(&server),
        StoreConfig { password: secret("wr0ng-s3cr3t"), ..config(&server) },
        StoreConfig { username: Some("nobody".to_owned()), password: secret(PASSWORD), ..config(&server) },
        config_for(&in_url_with(&server, "wr0ng-s3cr3t")),
    ] {
        let error = open_error(&denied);
        assert!(matches!(error, StoreError::Denied { .. }), "{error:?}");
        shown.push(format!("{error} {error:?} {:?}", error.cause()));
    }
    let open_server = TestServer::start(&[]);
    let unwanted = open_error(&StoreConfig { password: secret(PASSWORD), ..config(&open_server) });
    assert!(matches!(unwanted, StoreError::Denied { .. }), "{unwanted:?}");
    shown.push(format!("{unwanted:?}"));
    let unreadable = open_error(&config_for(&format!("redis://:{PASSWORD}@db1:port/x")));
    assert!(matches!(unreadable, StoreError::Unfit { .. }), "{unreadable:?}");
    shown.push(format!("{unreadable:?}"));
    for text in shown {
        assert!(!text.contains(PASSWORD) && !text.contains("wr0ng-s3cr3t"), "{text}");
    }
}

fn in_url_with(server: &TestServer, password: &str) -> String {
    server.url().replace("redis://", &format!("redis://:{password}@"))
}

#[test]
fn a_user_who_may_not_write_is_denied() {
    let server = TestServer::start(&["--user", "clerk", "on", ">pw", "~*", "+@all", "-set"]);
    let password = Some(Secret::new("pw".to_owned()));
    let clerk = StoreConfig { username: Some("clerk".to_owned()), password, ..config(&server) };
    let error = open_error(&clerk);
    assert!(matches!(error, StoreError::Denied { .. }), "{error:?}");
    assert!(open(&StoreConfig { access: Access::Read, ..clerk }).is_ok());
}

#[test]
fn a_server_that_would_drop_claims_is_refused() {
    for policy in ["volatile-lru", "allkeys-lru", "volatile-ttl", "volatile-random", "allkeys-lfu", "volatile-lfu"] {
        let server = TestServer::start(&["--maxmemory-policy", policy]);
        let error = open_error(&config(&server));
        assert!(matches!(&error, StoreError::Unfit { cause, .. } if cause.contains(policy)), "{error:?}");
        assert_eq!(ask::<u64>(&mut plain_client(&server), &["DBSIZE"]), 0);
    }
}

#[test]
fn a_server_that_cannot_make_a_claim_is_refused() {
    for answer in ["-ERR syntax error\r\n", "+OK\r\n", "$-1\r\n", ":1\r\n"] {
        let error = open_error(&config_for(&start_server_that_answers_set(answer)));
        assert!(matches!(error, StoreError::Unfit { .. }), "{answer}: {error:?}");
    }
}

#[test]
fn a_store_is_created_once_and_known_again() {
    let server = TestServer::start(&[]);
    let never_create = StoreConfig { access: Access::Write { create: false }, ..config(&server) };
    assert!(matches!(open_error(&never_create), StoreError::Missing { .. }));
    let opened: Vec<OpenedStore> = std::thread::scope(|scope| {
        let openers: Vec<_> = (0..4).map(|_| scope.spawn(|| open(&config(&server)).unwrap())).collect();
        openers.into_iter().map(|opener| opener.join().unwrap()).collect()
    });
    assert_eq!(opened.iter().filter(|opened| opened.is_new).count(), 1);
    let sentinel = opened[0].sentinel.clone().unwrap();
    assert_eq!(sentinel.len(), 32);
    assert!(opened.iter().all(|opened| opened.sentinel.as_ref() == Some(&sentinel)));
    let again = open(&StoreConfig { remembered: Some(sentinel.clone()), ..never_create }).unwrap();
    assert!(!again.is_new && again.sentinel == Some(sentinel));
    assert_eq!(ask::<Vec<String>>(&mut plain_client(&server), &["KEYS", "*"]), ["dedup:bankfeed:meta"]);
}

#[test]
fn reading_makes_no_key_and_finds_an_empty_store_where_there_is_none() {
    let server = TestServer::start(&[]);
    let mut opened = open(&StoreConfig { access: Access::Read, ..config(&server) }).unwrap();
    assert!(opened.sentinel.is_none() && !opened.is_new);
    assert_eq!(opened.store.look_up(&[claim(1, 1)]).unwrap(), [ClaimOutcome::Novel]);
    assert_eq!(opened.store.run_record(&run_id("r-1")).unwrap(), None);
    assert_eq!(ask::<u64>(&mut plain_client(&server), &["DBSIZE"]), 0);
}

#[test]
fn a_store_that_forgot_is_noticed_when_opened_and_when_connected_again() {
    let server = TestServer::start(&[]);
    let (mut store, _) = open_store(&config(&server)).unwrap();
    let remembered = store.server.place.meta.as_ref().map(|meta| meta.sentinel.clone());
    store.claim(&bid("r-1", 1), &[claim(1, 1)]).unwrap();
    let mut client = plain_client(&server);
    ask::<()>(&mut client, &["FLUSHALL"]);
    for access in [Access::Write { create: true }, Access::Write { create: false }, Access::Read] {
        let error = open_error(&StoreConfig { remembered: remembered.clone(), access, ..config(&server) });
        assert!(matches!(error, StoreError::Forgotten { .. }), "{error:?}");
    }
    ask::<()>(&mut client, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let error = store.claim(&bid("r-1", 1), &[claim(1, 1)]).unwrap_err();
    assert!(matches!(error, StoreError::Forgotten { .. }), "{error:?}");
    let error = store.run_record(&run_id("r-1")).unwrap_err();
    assert!(matches!(error, StoreError::Forgotten { .. }), "{error:?}");
    open(&config(&server)).unwrap();
    let error = open_error(&StoreConfig { remembered, ..config(&server) });
    assert!(matches!(error, StoreError::Forgotten { .. }), "{error:?}");
}

#[test]
fn a_store_that_forgets_during_a_run_is_noticed_before_the_seal() {
    let server = TestServer::start(&[]);
    let mut client = plain_client(&server);
    let (mut store, _) = open_store(&config(&server)).unwrap();
    store.check_intact().unwrap();
    for word in [["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"], ["CONFIG", "SET", "maxmemory", "1"]] {
        ask::<()>(&mut client, &word);
    }
    // Whether the policy was changed to one that drops claims is told by the claims that were dropped.
    let _ = redis::cmd("SET").arg("other").arg("x").query::<()>(&mut client);
    assert!(matches!(store.check_intact(), Err(StoreError::Forgotten { .. })));
    ask::<()>(&mut client, &["CONFIG", "SET", "maxmemory", "0"]);
    ask::<()>(&mut client, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let (mut store, _) = open_store(&StoreConfig { remembered: None, ..config(&server) }).unwrap();
    store.check_intact().unwrap();
    ask::<()>(&mut client, &["FLUSHALL"]);
    assert!(matches!(store.check_intact(), Err(StoreError::Forgotten { .. })));
}

#[test]
fn a_store_of_another_version_or_layout_is_refused_and_so_is_one_that_cannot_be_read() {
    let server = TestServer::start(&[]);
    let mut client = plain_client(&server);
    for meta in [
        r#"{"version":2,"layout":"shared","sentinel":"00"}"#,
        r#"{"version":1,"layout":"compact","sentinel":"00"}"#,
        r#"{"version":3}"#,
    ] {
        ask::<()>(&mut client, &["SET", "dedup:bankfeed:meta", meta]);
        let error = open_error(&config(&server));
        assert!(matches!(error, StoreError::OtherVersion { .. }), "{meta}: {error:?}");
    }
    ask::<()>(&mut client, &["SET", "dedup:bankfeed:meta", "{"]);
    assert!(matches!(open_error(&config(&server)), StoreError::Corrupt { .. }));
    ask::<()>(&mut client, &["DEL", "dedup:bankfeed:meta"]);
    let mut store = open(&config(&server)).unwrap().store;
    ask::<()>(&mut client, &["HSET", "dedup:bankfeed:run:r-1", "json", "{"]);
    assert!(matches!(store.run_record(&run_id("r-1")), Err(StoreError::Corrupt { .. })));
}

#[test]
fn a_key_of_another_program_is_no_duplicate() {
    let server = TestServer::start(&[]);
    let mut store = open(&config(&server)).unwrap().store;
    let taken = claim(2, 2);
    ask::<()>(&mut plain_client(&server), &["LPUSH", &key_of(&taken), "x"]);
    let claims = [claim(1, 1), taken, claim(3, 3)];
    let error = store.claim(&bid("r-1", 1), &claims).unwrap_err();
    assert!(matches!(&error, StoreError::Unfit { hint, .. } if hint.contains("dedup:bankfeed:")), "{error:?}");
    assert!(matches!(store.look_up(&claims), Err(StoreError::Unfit { .. })));
    assert_eq!(store.look_up(&claims[..1]).unwrap(), [found(&bid("r-1", 1), 1)]);
}

#[test]
fn a_server_that_takes_no_claims_says_why_and_takes_them_afterwards() {
    let server = TestServer::start(&["--busy-reply-threshold", "1"]);
    let mut client = plain_client(&server);
    let mut store = impatient_store(&server.url(), AMPLE, 2);
    let our_bid = bid("r-1", 1);
    store.references.register(&mut store.server, &our_bid).unwrap();
    let mut check = |row: u64, cause: &str| {
        let error = store.claim(&our_bid, &[claim(row, row)]).unwrap_err();
        assert!(matches!(&error, StoreError::Busy { cause: found, .. } if found.contains(cause)), "{error:?}");
        let error = store.write_run(None, &crate::store::record_wire::tests::sealed_run("r-1"), None).unwrap_err();
        assert!(matches!(&error, StoreError::Busy { cause: found, .. } if found.contains(cause)), "{error:?}");
    };
    ask::<()>(&mut client, &["CONFIG", "SET", "maxmemory", "1"]);
    check(1, "OOM");
    ask::<()>(&mut client, &["CONFIG", "SET", "maxmemory", "0"]);
    ask::<()>(&mut client, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    check(2, "NOREPLICAS");
    ask::<()>(&mut client, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
    ask::<()>(&mut client, &["REPLICAOF", "127.0.0.1", "1"]);
    check(3, "READONLY");
    ask::<()>(&mut client, &["REPLICAOF", "NO", "ONE"]);
    client.send_packed_command(&cmd("EVAL").arg("while true do end").arg(0).get_packed_command()).unwrap();
    check(4, "BUSY");
    let mut killer = plain_client(&server);
    ask::<()>(&mut killer, &["SCRIPT", "KILL"]);
    assert_eq!(store.claim(&our_bid, &[claim(5, 5)]).unwrap(), [ClaimOutcome::Novel]);
}

#[test]
fn the_database_of_the_address_is_used() {
    let server = TestServer::start(&[]);
    let mut store = open(&config_for(&server.url().replace("/0", "/3"))).unwrap().store;
    store.claim(&bid("r-1", 1), &[claim(1, 1)]).unwrap();
    store.write_run(None, &crate::store::record_wire::tests::sealed_run("r-1"), None).unwrap();
    let mut client = plain_client(&server);
    assert_eq!(ask::<u64>(&mut client, &["DBSIZE"]), 0);
    ask::<()>(&mut client, &["SELECT", "3"]);
    // The store's description, the claim, its payment, its owner, the run, the list of runs.
    assert_eq!(ask::<u64>(&mut client, &["DBSIZE"]), 6);
    let error = open_error(&config_for(&server.url().replace("/0", "/99")));
    assert!(matches!(&error, StoreError::Unfit { cause, .. } if cause.contains("database 99")), "{error:?}");
}
