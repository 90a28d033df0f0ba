//! Leases: who is refused while a worker may be alive, and what passes on once its lease is over.

use std::process::Command;

use serde_json::{Value, json};

use crate::env::{Env, HEADER, NOW, Ran, STORES, StoreKind, assert_same};
use crate::stopped::StoppedRun;

/// The command of a user of this machine who shares no lock with the others.
const AS_ANOTHER_USER: &[&str] = &["ingest", "july.csv", "--now", NOW, "--run-id", "r-july", "--state-dir", "another"];

fn feed(ids: std::ops::Range<u32>) -> String {
    let rows: String = ids.map(|id| format!("DE-main,T{id},{id}.50,EUR,2026-07-{:02}\n", id % 28 + 1)).collect();
    format!("{HEADER}\n{rows}")
}

/// A world whose store was used before, and two feeds that share a hundred records.
fn world(env: Env) -> Env {
    env.write("june.csv", format!("{HEADER}\nDE-main,June,1.00,EUR,2026-06-01\n"));
    env.ingest(&["june.csv", "--run-id", "r-june"]).check_silent();
    env.write("july.csv", feed(0..200));
    env.write("august.csv", feed(100..300));
    env
}

fn july(env: &Env) -> Command {
    env.command(&["ingest", "july.csv", "--now", NOW, "--run-id", "r-july", "--lease-s", "3600"])
}

fn ingest_august(env: &Env) -> Ran {
    env.ingest(&["august.csv", "--run-id", "r-august"])
}

/// The fields of the journal's only line of `event`.
fn journal_line(env: &Env, journal: &str, event: &str) -> Value {
    let text = env.text(journal);
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let found: Vec<Value> = lines.filter(|line: &Value| line["event"] == event).collect();
    assert_eq!(found.len(), 1, "{event} in {text}");
    found.into_iter().next().unwrap()
}

/// Every record of the feeds from 0 to `ids` is in one accepted file, once.
fn check_accepted_once(env: &Env, ids: u32) {
    let accepted = env.published().into_iter().filter(|(name, _)| {
        name.ends_with(".accepted.csv") && (name.starts_with("july.") || name.starts_with("august."))
    });
    let texts = accepted.map(|(_, bytes)| String::from_utf8(bytes).unwrap());
    let mut rows: Vec<String> =
        texts.flat_map(|text| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()).collect();
    rows.sort();
    let mut expected: Vec<String> = feed(0..ids).lines().skip(1).map(str::to_owned).collect();
    expected.sort();
    assert_same("the accepted records", &rows.join("\n"), &expected.join("\n"));
}

/// What `ingest` is told of a feed whose run `pid` does; the seconds that are left of an hour are left out.
fn check_refused(ran: &Ran, pid: u32) {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let seconds = ran.stderr.split("repeat the command in ").nth(1).unwrap_or_default().split(' ').next().unwrap();
    let left: u32 = seconds.parse().unwrap_or_else(|_| panic!("no seconds are told: {}", ran.stderr));
    assert!((3_000..=3_600).contains(&left), "{left} s");
    ran.check(
        75,
        &format!(
            "error: the feed is being ingested already, as run `r-july` by process {pid} on {host} since {NOW}\n  hint: \
             let it finish; if its worker is dead, repeat the command in {left} s, when its lease is over\n"
        ),
    );
}

#[test]
fn the_claims_of_a_killed_run_pass_to_whoever_finds_its_lease_over() {
    let env = world(Env::new(StoreKind::Redis));
    StoppedRun::start(&env, &july(&env)).kill();
    env.end_lease("r-july");
    ingest_august(&env).check(0, "");
    assert_same("what is accepted", &env.text("august.accepted.csv"), &feed(100..300));
    let taken_over = journal_line(&env, "august.journal.jsonl", "claim.taken_over");
    let fields = (&taken_over["from"], &taken_over["claims"], &taken_over["epoch"]);
    assert_eq!(fields, (&json!("r-july"), &json!(100), &json!(1)));
    let repeated = env.finish(july(&env), b"");
    repeated.check(0, "");
    assert_same("what is suppressed", &env.text("july.suppressed.csv"), &feed(100..200));
    check_accepted_once(&env, 300);
}

#[test]
fn a_second_worker_is_refused_while_the_first_may_be_alive() {
    for store in STORES {
        let env = world(Env::new(*store));
        let stopped = StoppedRun::start(&env, &july(&env));
        let before = env.files();
        for dry in [&[][..], &["--dry-run"]] {
            let refused = env.ingest(&[&["july.csv", "--run-id", "r-july"], dry].concat());
            let start = format!("error: the feed is being ingested already, by process {} on ", stopped.pid());
            assert!(refused.stderr.starts_with(&start), "{}", refused.stderr);
            assert!(
                refused.stderr.ends_with("\n  hint: let it finish: the feed is decided there\n"),
                "{}",
                refused.stderr
            );
            assert_eq!(refused.code, Some(75));
            if *store == StoreKind::Redis {
                // Without a common lock, as two users of a server have none, the run's record tells.
                check_refused(&env.run(&[AS_ANOTHER_USER, dry].concat()), stopped.pid());
            }
        }
        assert_eq!(env.files(), before, "nothing is written");
        stopped.go_on().check(0, "");
        check_accepted_once(&env, 200);
    }
}

#[test]
fn a_run_that_sleeps_longer_than_its_lease_publishes_nothing() {
    let lost = "error: another worker has taken run `r-july` over\n  hint: nothing was published by this process: let the \
                other worker finish, then repeat the command\n";
    // By another feed that has records of it; and by another worker on the same feed.
    for is_same_feed in [false, true] {
        let env = world(Env::new(StoreKind::Redis));
        let stopped = StoppedRun::start(&env, &july(&env));
        env.end_lease("r-july");
        match is_same_feed {
            false => ingest_august(&env).check(0, ""),
            true => env.run(AS_ANOTHER_USER).check(0, ""),
        }
        let published = env.published();
        stopped.go_on().check(75, lost);
        assert_eq!(env.published(), published, "who lost its lease publishes nothing");
        let temporaries = env.files().into_keys().filter(|name| name.ends_with(".tmp"));
        assert_eq!(temporaries.collect::<Vec<_>>(), Vec::<String>::new());
        env.finish(july(&env), b"").check(0, "");
        check_accepted_once(&env, if is_same_feed { 200 } else { 300 });
    }
}

/// The decisions that a dry run foretells.
fn foretold(env: &Env, words: &[&str]) -> Value {
    let before = env.everything();
    let ran = env.ingest(&[words, &["--dry-run", "--json", "-q"]].concat());
    env.check_untouched(&before);
    let line = ran.stdout.lines().next().unwrap_or_else(|| panic!("{ran:?}"));
    serde_json::from_str::<Value>(line).unwrap()["decisions"].clone()
}

/// The decisions of the run whose summary this is.
fn decided(env: &Env, summary: &str) -> Value {
    let summary: Value = serde_json::from_str(&env.text(summary)).unwrap();
    let decisions = summary["decisions"].as_object().unwrap().iter();
    decisions
        .map(|(name, decision)| (name.clone(), decision["records"].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[test]
fn a_dry_run_foretells_what_becomes_of_the_claims_of_a_dead_run() {
    for store in STORES {
        let env = world(Env::new(*store));
        StoppedRun::start(&env, &july(&env)).kill();
        // Its lease runs: its records are held from others, and its own feed goes on, as the lock tells.
        let august = foretold(&env, &["august.csv", "--run-id", "r-august"]);
        assert_eq!((&august["ACCEPTED"], &august["HELD"]), (&json!(100), &json!(100)), "{august}");
        assert_eq!(ingest_august(&env).code, Some(3));
        assert_eq!(decided(&env, "august.summary.json"), august);
        let july_told = foretold(&env, &["july.csv", "--run-id", "r-july"]);
        assert_eq!(july_told["ACCEPTED"], json!(200), "{july_told}");
        if *store == StoreKind::Redis {
            env.end_lease("r-july");
            let august = foretold(&env, &["august.csv", "--run-id", "r-august"]);
            assert_eq!((&august["ACCEPTED"], &august["HELD"]), (&json!(100), &json!(0)), "{august}");
            ingest_august(&env).check(0, "");
            assert_eq!(decided(&env, "august.2.summary.json"), august);
        }
        let july_told = foretold(&env, &["july.csv", "--run-id", "r-july"]);
        env.finish(july(&env), b"").check(0, "");
        assert_eq!(decided(&env, "july.summary.json"), july_told);
        assert!(ingest_august(&env).code == Some(0), "whatever was held is decided now");
        check_accepted_once(&env, 300);
    }
}

#[test]
fn a_run_whose_writes_are_not_replicated_is_not_published() {
    let env = world(Env::new(StoreKind::Redis));
    let words = ["july.csv", "--run-id", "r-july", "--wait-replicas", "1", "--wait-timeout-ms"];
    let short = [&words[..], &["100"]].concat();
    let unconfirmed = "error: the store at `[store]` takes no claims now\n  caused by: 0 of 1 replicas confirmed the writes \
                       within 100 ms (`wait_replicas`)\n  hint: nothing of this input is published: repeat the command \
                       once the store takes writes again\n";
    let published = env.published();
    env.ingest(&short).check(75, unconfirmed);
    assert_eq!(env.published(), published, "no record of the run was safe, so nothing was claimed");
    let server = env.server.as_ref().unwrap();
    let replica = server.start_replica();
    env.ingest(&[&words[..], &["10000"]].concat()).check(0, "");
    check_accepted_once(&env, 200);
    replica.pause();
    let published = env.published();
    env.ingest(&short).check(75, unconfirmed);
    assert_eq!(env.published(), published);
}
