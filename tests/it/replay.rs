//! The same records again: in the same feed, in another, in several at once, and in a run that only looks.

use std::collections::BTreeMap;
use std::io::Read as _;

use serde_json::Value;

use crate::env::{Env, HEADER, NOW, STORES, assert_same, fixture};

fn feed(ids: std::ops::Range<u32>) -> String {
    let rows: String = ids.map(|id| format!("DE-main,T{id},{id}.50,EUR,2026-07-{:02}\n", id % 28 + 1)).collect();
    format!("{HEADER}\n{rows}")
}

/// The records of each decision, from the summary of a run.
fn counts(env: &Env, stem: &str) -> BTreeMap<String, u64> {
    let summary: Value = serde_json::from_str(&env.text(&format!("{stem}.summary.json"))).unwrap();
    let decisions = summary["decisions"].as_object().unwrap().iter();
    let counts = decisions.map(|(name, decision)| (name.clone(), decision["records"].as_u64().unwrap()));
    counts.filter(|(_, count)| *count > 0).collect()
}

fn only(decision: &str, count: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([(decision.to_owned(), count)])
}

#[test]
fn a_feed_that_comes_again_is_suppressed_beside_the_first_outputs() {
    for store in STORES {
        let env = Env::new(*store);
        env.write("july.csv", feed(0..50));
        env.ingest(&["july.csv"]).check_silent();
        let first = env.files();
        for (pass, stem) in [(2, "july.2"), (3, "july.3")] {
            env.ingest(&["july.csv"]).check(0, "");
            assert_eq!(counts(&env, stem), only("DUPLICATE_SUPPRESSED", 50), "pass {pass} on {store:?}");
            assert_eq!(env.text(&format!("{stem}.suppressed.csv")), feed(0..50));
            assert_eq!(env.text(&format!("{stem}.accepted.csv")), feed(0..0));
        }
        let files = env.files();
        assert!(first.iter().all(|(name, bytes)| files[name] == *bytes), "nothing is overwritten");
        assert_eq!(files.len(), 1 + 3 * 5);
        let audit = env.text("july.2.audit.jsonl");
        assert!(audit.contains(r#""reason":"published_run","first_trace_id":"r-"#), "{audit}");
        assert!(audit.contains(r#""first_file":"july.csv""#), "{audit}");
    }
}

#[test]
fn a_feed_that_overlaps_an_earlier_one_keeps_what_is_new() {
    for store in STORES {
        let env = Env::new(*store);
        env.write("june.csv", feed(0..30));
        env.write("july.csv", feed(20..50));
        env.ingest(&["june.csv", "--run-id", "r-june"]).check_silent();
        env.ingest(&["july.csv", "--run-id", "r-july"]).check(0, "");
        assert_eq!(env.text("july.suppressed.csv"), feed(20..30));
        assert_eq!(env.text("july.accepted.csv"), feed(30..50));
        let audit = env.text("july.audit.jsonl");
        let first = format!(
            r#""row":1,"line":2,"reason":"published_run","first_trace_id":"r-june:21","first_seen_at":"{NOW}","first_file":"june.csv"}}"#
        );
        assert!(audit.contains(&first), "{audit}");
    }
}

#[test]
fn other_spellings_of_a_record_are_the_same_record() {
    for store in STORES {
        let env = Env::new(*store);
        env.write("july.csv", format!("{HEADER}\nDE-main,T1,1250.00,EUR,2026-07-01T09:00:00Z\n"));
        env.ingest(&["july.csv"]).check_silent();
        let line = r#"{"posted_at":"2026-07-01T11:00:00+02:00","currency":"eur","amount":1250,"bank_txn_id":"T1","account_id":" DE-main"}"#;
        env.write("webhook.jsonl", format!("{line}\n"));
        env.ingest(&["webhook.jsonl"]).check(0, "");
        assert_eq!(counts(&env, "webhook"), only("DUPLICATE_SUPPRESSED", 1));
    }
}

#[test]
fn several_feeds_are_runs_in_their_order_and_the_gravest_code_is_told() {
    for store in STORES {
        let env = Env::new(*store);
        env.write("a.csv", feed(0..10));
        env.write("b.csv", format!("{}bad\n", feed(5..15)));
        env.write("c.csv", feed(10..20));
        let ran = env.ingest(&["a.csv", "gone.csv", "b.csv", "c.csv", "--json"]).said_besides_store();
        assert_eq!(ran.code, Some(66));
        let run = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        let lines: Vec<Value> = ran.stdout.lines().map(run).collect();
        let kinds: Vec<_> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["run", "failure", "run", "run", "end"]);
        let codes: Vec<_> = lines.iter().map(|line| line["exit_code"].as_u64().unwrap()).collect();
        assert_eq!(codes, [0, 66, 3, 0, 66]);
        assert_eq!((&lines[1]["file"], &lines[2]["file"]), (&Value::from("gone.csv"), &Value::from("b.csv")));
        assert_eq!(env.text("b.accepted.csv"), feed(10..15));
        assert_eq!(env.text("c.suppressed.csv"), feed(10..15));
        assert_eq!(env.text("c.accepted.csv"), feed(15..20));
    }
}

#[test]
fn standard_input_is_a_feed() {
    for store in STORES {
        let env = Env::new(*store);
        std::fs::create_dir(env.path("out")).unwrap();
        let words = ["ingest", "-", "--now", NOW, "--out-dir", "out", "--name", "july"];
        env.finish(env.command(&words), feed(0..3).as_bytes()).check_silent();
        let files = crate::env::files_of(&env.path("out"));
        let names = ["accepted.csv", "audit.jsonl", "journal.jsonl", "summary.json", "suppressed.csv"];
        assert_eq!(files.keys().cloned().collect::<Vec<_>>(), names.map(|name| format!("july.{name}")));
        assert_eq!(files["july.accepted.csv"], feed(0..3).as_bytes());
        let words = ["ingest", "-", "--name", "stdin"];
        env.finish(env.command(&words), feed(0..3).as_bytes()).check(0, "");
        assert_eq!(env.text("stdin.suppressed.csv"), feed(0..3), "the same bytes are the same feed");
        assert_eq!(env.files().keys().filter(|name| name.starts_with('.')).count(), 0, "the spool is gone");
    }
}

/// The commands that a server was asked, or nothing where the store is no server.
fn commands_asked(env: &Env) -> Vec<String> {
    if env.server.is_none() {
        return Vec::new();
    }
    let reply = env.ask_server("INFO commandstats");
    let calls = reply.lines().filter(|line| line.starts_with("cmdstat_"));
    let calls = calls.map(|line| line.split(",usec").next().unwrap().to_owned());
    calls.filter(|line| WRITES.iter().any(|write| line.starts_with(&format!("cmdstat_{write}:")))).collect()
}

/// What changes a server's keys.
const WRITES: [&str; 12] =
    ["set", "setnx", "setex", "getset", "hset", "hsetnx", "del", "unlink", "expire", "eval", "evalsha", "multi"];

#[test]
fn a_dry_run_decides_the_same_and_writes_nothing() {
    for store in STORES {
        let env = Env::new(*store);
        env.write("june.csv", feed(0..10));
        env.write("july.csv", format!("{}bad\n{}", feed(5..15), &feed(12..20)[HEADER.len() + 1..]));
        let dry = ["july.csv", "--dry-run", "--run-id", "r-july", "--json"];
        let untouched = env.everything();
        let first = env.ingest(&dry);
        env.check_untouched(&untouched);
        assert!(!env.store_folder().exists(), "not even a store is made");
        assert_eq!(first.code, Some(3));
        env.ingest(&["june.csv"]).check_silent();
        let (untouched, asked) = (env.everything(), commands_asked(&env));
        let told = env.ingest(&dry);
        env.check_untouched(&untouched);
        assert_eq!(commands_asked(&env), asked, "nothing is written on {store:?}");
        let real = env.ingest(&["july.csv", "--run-id", "r-july"]);
        assert_eq!(told.code, real.code);
        let line: Value = serde_json::from_str(told.stdout.lines().next().unwrap()).unwrap();
        assert_eq!(
            (&line["type"], &line["run_id"], &line["records"]),
            (&"dry_run".into(), &"r-july".into(), &19.into())
        );
        let decided = line["decisions"].as_object().unwrap().iter();
        let decided: BTreeMap<_, _> = decided.map(|(name, count)| (name.clone(), count.as_u64().unwrap())).collect();
        let expected = [("ACCEPTED", 10), ("DUPLICATE_SUPPRESSED", 8), ("REJECTED", 1)];
        let expected = BTreeMap::from(expected.map(|(name, count)| (name.to_owned(), count)));
        assert_eq!(counts(&env, "july"), expected);
        assert_eq!(decided.into_iter().filter(|(_, count)| *count > 0).collect::<BTreeMap<_, _>>(), expected);
        assert_same(
            "standard error",
            &told.stderr,
            "july.csv:12: rejected: the row has 1 column where the header has 5\ndry run, nothing written: run `r-july` \
             would find 19 records: 10 accepted, 8 suppressed, 1 rejected\n  accepted               10  EUR in 150.00 \
             out 0.00\n  suppressed              8  EUR in 78.00 out 0.00\n  rejected                1\n",
        );
    }
}

#[test]
fn a_dry_run_over_feeds_that_overlap_decides_as_the_runs_would() {
    let env = Env::embedded();
    env.write("a.csv", feed(0..3));
    env.write("b.csv", feed(1..5));
    let said = env.ingest(&["a.csv", "b.csv", "--dry-run"]).stderr;
    assert!(said.contains("would find 3 records: 3 accepted"), "{said}");
    assert!(said.contains("would find 4 records: 2 accepted, 2 suppressed"), "{said}");
}

#[test]
fn a_dry_run_checks_the_gates() {
    let env = Env::embedded();
    env.write("july.csv", feed(0..3));
    let untouched = env.everything();
    let ran = env.ingest(&["july.csv", "--dry-run", "--expect-records", "4"]);
    assert_eq!(ran.code, Some(65));
    assert!(ran.stderr.starts_with("error: july.csv: the feed has 3 records where 4 are expected\n"), "{}", ran.stderr);
    env.check_untouched(&untouched);
}

#[test]
fn without_a_terminal_success_is_silent_unless_words_are_asked_for() {
    let env = Env::embedded();
    std::fs::copy(fixture("feeds/quickstart.csv"), env.path("quickstart.csv")).unwrap();
    let created = "created the store `[store]`\n";
    assert_same("the first run", &env.ingest(&["quickstart.csv", "--run-id", "r-1"]).stderr, created);
    env.ingest(&["quickstart.csv"]).check(0, "");
    let told = env.ingest(&["quickstart.csv", "--run-id", "r-1", "-v"]);
    let stable: String = told
        .stderr
        .lines()
        .filter(|line| !line.starts_with("  time "))
        .fold(String::new(), |all, line| all + line + "\n");
    assert_same(
        "the words of -v",
        &stable,
        "run `r-1.2` published (pass 2 over this feed): 9 records: 9 suppressed\n  suppressed              9  EUR in \
         2,450.00 out -968.70; JPY in 0 out -120,000; USD in 3,999.80 out -15.00\n  files       \
         quickstart.3.accepted.csv, quickstart.3.suppressed.csv, quickstart.3.audit.jsonl, \
         quickstart.3.summary.json\n  folder      [root]/feeds\n  store       [store]\n  the name `quickstart` was taken: \
         the files are `quickstart.3.*`\n",
    );
    env.write("bad.csv", format!("{HEADER}\nbad\n"));
    env.ingest(&["bad.csv", "-q"]).check(3, "");
    env.ingest(&["gone.csv", "-q"])
        .check(66, "error: cannot open `gone.csv`\n  caused by: No such file or directory (os error 2)\n");
    let loud = env.ingest(&["gone.csv", "--color", "always"]);
    assert!(loud.stderr.starts_with("\x1b[1;31merror:\x1b[0m cannot open `gone.csv`\n"), "{}", loud.stderr);
}

#[test]
fn a_reader_of_standard_output_that_goes_away_is_no_failure() {
    let env = Env::embedded();
    env.write("july.csv", feed(0..20_000));
    let mut child = env.command(&["hash", "july.csv"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut first = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!((&first, child.wait().unwrap().code()), (b"1\t", Some(0)));
}

#[test]
fn a_run_without_a_fixed_instant_says_how_it_went() {
    for store in STORES {
        let env = Env::new(*store);
        env.write("july.csv", feed(0..3));
        env.run(&["ingest", "july.csv", "--tag", "batch=7"]).check_silent();
        let summary: Value = serde_json::from_str(&env.text("july.summary.json")).unwrap();
        let operation = summary["operation"].as_object().unwrap();
        for key in ["store", "host", "user", "epoch", "started_at", "sealed_at", "elapsed_ms", "claim_latency_us"] {
            assert!(operation.contains_key(key), "{key} in {operation:?}");
        }
        assert_eq!(summary["tags"]["batch"], "7");
        assert!(env.text("july.audit.jsonl").lines().next().unwrap().contains(r#""tags":{"batch":"7"}"#));
    }
}
