//! Several processes at once: on one new store, on one feed, on overlapping feeds.

use std::fmt::Write as _;
use std::process::{Child, Output, Stdio};

use crate::env::{Env, HEADER, STORES, StoreKind};

/// Processes that start together.
const WORKERS: usize = 6;

fn feed(account: &str, rows: usize) -> String {
    let mut feed = format!("{HEADER}\n");
    for row in 0..rows {
        writeln!(feed, "{account},T{row},1.00,EUR,2026-07-{:02}", row % 28 + 1).unwrap();
    }
    feed
}

fn start(env: &Env, words: &[&str]) -> Child {
    env.command(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

#[test]
fn a_new_store_is_created_once_however_many_begin_at_once() {
    for store in STORES {
        let env = Env::new(*store);
        let names: Vec<_> = (0..WORKERS).map(|worker| format!("feed{worker}.csv")).collect();
        names.iter().for_each(|name| env.write(name, feed(name, 50)));
        let workers: Vec<_> = names.iter().map(|name| start(&env, &["ingest", name])).collect();
        let outputs: Vec<_> = workers.into_iter().map(|worker| worker.wait_with_output().unwrap()).collect();
        let created =
            outputs.iter().filter(|output| String::from_utf8_lossy(&output.stderr).contains("created the store"));
        assert_eq!(created.count(), 1, "{outputs:?}");
        assert!(outputs.iter().all(|output| code(output) == 0), "{outputs:?}");
        names.iter().for_each(|name| env.ingest(&[name]).check_silent());
        assert_eq!(env.text("feed0.2.suppressed.csv"), feed("feed0.csv", 50), "every claim was kept");
    }
}

/// Without a common lock, as two users of a server have none, the run's record decides who goes on.
#[test]
fn two_users_on_one_feed_publish_it_once() {
    let env = Env::new(StoreKind::Redis);
    let july = feed("A", 30_000);
    env.write("july.csv", &july);
    let states = ["--state-dir=one", "--state-dir=two"];
    let workers: Vec<_> = states.iter().map(|state| start(&env, &["ingest", "july.csv", state])).collect();
    let outputs: Vec<_> = workers.into_iter().map(|worker| worker.wait_with_output().unwrap()).collect();
    let codes: Vec<_> = outputs.iter().map(code).collect();
    // Both may come to their end, one after the other; never do both accept.
    assert!(codes.contains(&0) && codes.iter().all(|code| [0, 75].contains(code)), "{outputs:?}");
    let repeated = env.ingest(&["july.csv", states[0]]);
    assert_eq!(repeated.code, Some(0), "{repeated:?}");
    let records = |kind: &str| -> usize {
        let files = env.published().into_iter().filter(|(name, _)| name.ends_with(&format!("{kind}.csv")));
        files.map(|(_, bytes)| bytes.iter().filter(|byte| **byte == b'\n').count() - 1).sum()
    };
    assert_eq!(records("accepted"), 30_000, "{outputs:?}");
    let temporaries = env.files().into_keys().filter(|name| name.ends_with(".tmp"));
    assert_eq!(temporaries.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn overlapping_feeds_at_once_accept_each_record_once() {
    for store in STORES {
        let env = Env::new(*store);
        let names: Vec<_> = (0..WORKERS).map(|worker| format!("feed{worker}.csv")).collect();
        for (worker, name) in names.iter().enumerate() {
            env.write(name, format!("{}A,own{worker},1.00,EUR,2026-07-01\n", feed("A", 5_000)));
        }
        let workers: Vec<_> = names.iter().map(|name| start(&env, &["ingest", name])).collect();
        let outputs: Vec<_> = workers.into_iter().map(|worker| worker.wait_with_output().unwrap()).collect();
        assert!(outputs.iter().all(|output| [0, 3].contains(&code(output))), "{outputs:?}");
        // What was held is decided when all are published.
        names.iter().for_each(|name| assert_eq!(env.ingest(&[name]).code, Some(0)));
        let mut accepted: Vec<String> = Vec::new();
        for (name, bytes) in env.published() {
            if name.ends_with("accepted.csv") {
                accepted.extend(String::from_utf8(bytes).unwrap().lines().skip(1).map(str::to_owned));
            }
        }
        accepted.sort();
        let of_all = accepted.len();
        accepted.dedup();
        assert_eq!((accepted.len(), of_all), (5_000 + WORKERS, 5_000 + WORKERS));
    }
}
