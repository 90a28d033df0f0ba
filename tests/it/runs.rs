//! What the store knows of runs, as a table and as JSON, and that looking at it leaves no trace.

use serde_json::Value;

use crate::env::{Env, HEADER, NOW, STORES, assert_same};

fn feed(ids: std::ops::Range<u32>) -> String {
    let rows: String = ids.map(|id| format!("DE-main,T{id},1.00,EUR,2026-07-{:02}\n", id % 28 + 1)).collect();
    format!("{HEADER}\n{rows}")
}

/// A world with a published run, one that overlaps it, and one that stopped before its seal, all opened at `NOW` but
/// the second.
fn world(env: Env) -> Env {
    env.write("june.csv", feed(0..30));
    env.ingest(&["june.csv", "--run-id", "r-june"]).check_silent();
    env.write("july.csv", feed(20..50));
    env.run(&["ingest", "july.csv", "--run-id", "r-july", "--now", "2026-07-15T09:04:00+00:00"]).check(0, "");
    env.write("august.csv", feed(60..70));
    // The summary has no place to be written to.
    env.write(".august.summary.json.r-august.1.tmp", "");
    assert_eq!(env.ingest(&["august.csv", "--run-id", "r-august"]).code, Some(73));
    env
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The table with `[age]` for ages and `[worker]` for host and process, which no two tests share.
fn stable(env: &Env, table: &str) -> String {
    let host = lines(&env.run(&["runs", "--json"]).stdout)[0]["host"].as_str().unwrap().to_owned();
    let stable = |line: &str| match (line.rsplit_once("  "), line.split_once(" by process ")) {
        (Some((start, age)), _) if age.ends_with(" d") => format!("{start}  [age]\n"),
        (_, Some((start, rest))) => format!("{start} by [worker]{}\n", rest.split_once(&host).unwrap().1),
        _ => format!("{line}\n"),
    };
    table.lines().map(stable).collect()
}

#[test]
fn every_run_is_listed_what_is_stuck_first() {
    for store in STORES {
        let env = world(Env::new(*store));
        let ran = env.run(&["runs"]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{store:?}");
        assert_same(
            "the table",
            &stable(&env, &ran.stdout),
            "STATE       PASS  EPOCH  RUN       AGE\n\
             OPEN           1      1  r-august  [age]\n  \
               `august.csv` by [worker]; its lease is over\n  \
               [root]/feeds/august.*\n\
             PUBLISHED      1      1  r-july    [age]\n  \
               `july.csv` by [worker]\n  \
               30 records: 20 accepted, 10 suppressed\n  \
               [root]/feeds/july.*\n\
             PUBLISHED      1      1  r-june    [age]\n  \
               `june.csv` by [worker]\n  \
               30 records: 30 accepted\n  \
               [root]/feeds/june.*\n",
        );
        let ran = env.run(&["runs", "--state", "open", "--state", "SEALED", "--json"]);
        let listed = lines(&ran.stdout);
        assert_eq!((listed.len(), &listed[0]["run_id"], &listed[0]["lease"]), (1, &"r-august".into(), &"over".into()));
        assert!(listed[0]["decisions"].is_null() && listed[0]["lease_left_s"].is_null());
    }
}

#[test]
fn a_line_of_json_has_all_that_the_store_knows_of_a_run() {
    for store in STORES {
        let env = world(Env::new(*store));
        let ran = env.run(&["runs", "--json"]);
        let listed = lines(&ran.stdout);
        let keys: Vec<_> = listed[1].as_object().unwrap().keys().map(String::as_str).collect();
        let expected = [
            "type",
            "run_id",
            "state",
            "pass",
            "epoch",
            "opened_at",
            "age_s",
            "host",
            "pid",
            "lease",
            "lease_left_s",
            "file",
            "sha256",
            "profile_sha256",
            "decisions",
            "folder",
            "stem",
            "outputs",
            "suppressed_against",
        ];
        assert_eq!(keys, expected);
        let july = &listed[1];
        let summary: Value = serde_json::from_str(&env.text("july.summary.json")).unwrap();
        assert_eq!(
            (&july["type"], &july["run_id"], &july["state"]),
            (&"run".into(), &"r-july".into(), &"PUBLISHED".into())
        );
        assert_eq!((&july["sha256"], &july["profile_sha256"]), (&summary["sha256"], &summary["profile_sha256"]));
        assert_eq!((&july["decisions"]["ACCEPTED"], &july["decisions"]["HELD"]), (&20.into(), &0.into()));
        assert_eq!((&july["suppressed_against"], &july["stem"]), (&vec!["r-june"].into(), &"july".into()));
        assert_eq!(july["outputs"].as_array().unwrap().len(), 4);
        assert_eq!(july["outputs"][0], summary["outputs"][0]);
        assert_eq!(listed[2]["opened_at"], NOW);
    }
}

#[test]
fn a_store_that_is_not_there_has_no_runs_and_is_not_made() {
    for store in STORES {
        let env = Env::new(*store);
        let untouched = env.everything();
        let ran = env.run(&["runs"]);
        ran.check(0, "there is no store at `[store]` yet\n");
        env.run(&["runs", "-q", "--json"]).check(0, "");
        assert_eq!(env.everything().keys().collect::<Vec<_>>(), untouched.keys().collect::<Vec<_>>());
        if env.server.is_some() {
            assert!(env.ask_server("DBSIZE").starts_with(":0\r\n"), "not even a key is made");
        }
    }
}

#[test]
fn a_state_that_no_run_can_be_in() {
    let ran = Env::embedded().run(&["runs", "--state", "stuck"]);
    assert!(ran.stderr.contains("there are open, sealed, publishing, published, fenced, reverted"), "{}", ran.stderr);
    assert_eq!(ran.code, Some(2));
}

#[test]
fn a_reader_of_the_list_that_goes_away_is_no_failure() {
    let env = world(Env::embedded());
    let mut child = env.command(&["runs"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
