//! What replicas confirm, and how a server's history is told from another.

use super::*;
use crate::store::record_wire::tests::sealed_run;
use crate::store::test_server::DURABLE;

/// The wait of a test whose replica does not answer.
const SHORT: Duration = Duration::from_millis(100);

/// A store on `server` whose writes `replicas_min` replicas must have within `replicas_timeout`.
fn store_that_waits(server: &TestServer, replicas_min: u32, replicas_timeout: Duration) -> RedisStore {
    open_store(&StoreConfig { replicas_min, replicas_timeout, ..config(server) }).unwrap().0
}

/// `store` fails to confirm, after its timeout and not much later.
#[track_caller]
fn check_unconfirmed(store: &mut RedisStore, confirmed: &str) {
    let start = Instant::now();
    let error = store.confirm().unwrap_err();
    let expected = format!("{confirmed} replicas confirmed the writes within 100 ms (`wait_replicas`)");
    assert!(matches!(&error, StoreError::Busy { cause, .. } if *cause == expected), "{error:?}");
    assert!((SHORT..Duration::from_secs(5)).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[test]
fn what_was_written_is_confirmed_by_as_many_replicas_as_are_demanded() {
    let primary = TestServer::start(&[]);
    store_that_waits(&primary, 0, Duration::ZERO).confirm().unwrap();
    check_unconfirmed(&mut store_that_waits(&primary, 1, SHORT), "0 of 1");
    let replica = primary.start_replica();
    let mut store = store_that_waits(&primary, 1, AMPLE);
    store.claim(&bid("r-1", 1), &[claim(1, 1)]).unwrap();
    store.write_run(None, &sealed_run("r-1"), None).unwrap();
    store.confirm().unwrap();
    let mut on_replica = open(&StoreConfig { access: Access::Read, ..config(&replica) }).unwrap().store;
    assert_eq!(on_replica.look_up(&[claim(1, 1)]).unwrap(), [found(&bid("r-1", 1), 1)]);
    assert!(on_replica.run_record(&run_id("r-1")).unwrap().is_some());
    check_unconfirmed(&mut store_that_waits(&primary, 2, SHORT), "1 of 2");
}

/// A server may say of a connection that wrote nothing itself that its writes are confirmed.
#[test]
fn a_stopped_replica_confirms_nothing_also_where_nothing_was_written_on_the_connection() {
    let primary = TestServer::start(&[]);
    let replica = primary.start_replica();
    let our_bid = bid("r-1", 1);
    let mut store = store_that_waits(&primary, 1, SHORT);
    replica.pause();
    store.claim(&our_bid, &[claim(1, 1)]).unwrap();
    check_unconfirmed(&mut store, "0 of 1");
    // Asked again on a new connection, the claim is found, which writes nothing.
    (store.server.link, store.server.control) = (None, None);
    assert_eq!(store.claim(&our_bid, &[claim(1, 1)]).unwrap(), [found(&our_bid, 1)]);
    check_unconfirmed(&mut store, "0 of 1");
    let mut another = store_that_waits(&primary, 1, SHORT);
    check_unconfirmed(&mut another, "0 of 1");
    assert_eq!(another.look_up(&[claim(1, 1)]).unwrap(), [found(&our_bid, 1)]);
    check_unconfirmed(&mut another, "0 of 1");
    replica.resume();
    store_that_waits(&primary, 1, AMPLE).confirm().unwrap();
}

#[test]
fn a_history_goes_on_through_use_and_ends_with_a_restart() {
    let mut server = TestServer::start(DURABLE);
    let mut store = store_that_waits(&server, 0, Duration::ZERO);
    let alone = store.lineage().unwrap();
    store.claim(&bid("r-1", 1), &[claim(2, 2)]).unwrap();
    assert_eq!(store.lineage().unwrap(), alone);
    // The first replica makes a server begin a history that can be followed.
    let _replica = server.start_replica();
    let lineage = store.lineage().unwrap();
    store.claim(&bid("r-1", 1), &[claim(1, 1)]).unwrap();
    store.write_run(None, &sealed_run("r-1"), None).unwrap();
    assert_eq!(store.lineage().unwrap(), lineage);
    (store.server.link, store.server.control) = (None, None);
    assert_eq!(store.lineage().unwrap(), lineage, "another connection sees the same");
    let _another = server.start_replica();
    assert_eq!(store.lineage().unwrap(), lineage, "a further replica changes nothing");
    server.restart();
    assert_ne!(store.lineage().unwrap(), lineage);
    assert_eq!(store.look_up(&[claim(1, 1)]).unwrap(), [found(&bid("r-1", 1), 1)], "though it kept its data");
}

#[test]
fn a_replica_that_is_promoted_begins_another_history() {
    let primary = TestServer::start(&[]);
    let mut on_primary = store_that_waits(&primary, 1, AMPLE);
    let replica = primary.start_replica();
    on_primary.claim(&bid("r-1", 1), &[claim(1, 1)]).unwrap();
    on_primary.confirm().unwrap();
    let mut on_replica = open(&StoreConfig { access: Access::Read, ..config(&replica) }).unwrap().store;
    let before = on_replica.lineage().unwrap();
    assert_ne!(before, on_primary.lineage().unwrap(), "a client that comes to the replica instead sees it");
    replica.ask("REPLICAOF NO ONE");
    assert_ne!(on_replica.lineage().unwrap(), before);
}
