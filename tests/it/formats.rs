//! What earlier versions wrote, later ones read; what they wrote into a line, later ones still write.
//!
//! `fixtures/formats` holds a sample of every version of every format. A new version adds its sample beside the old.

use std::collections::BTreeSet;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::env::{Env, HEADER, fixture};

fn sample(name: &str) -> String {
    std::fs::read_to_string(fixture("formats").join(name)).unwrap()
}

/// A world whose store is the sample of this name, with a feed of which it holds the first record.
fn world_of(sample: &str) -> Env {
    let env = Env::embedded();
    std::fs::create_dir_all(env.store_folder()).unwrap();
    std::fs::copy(fixture("formats").join(sample).join("data.mdb"), env.store_folder().join("data.mdb")).unwrap();
    env.write(
        "july.csv",
        format!("{HEADER}\nDE-main,B-1001,2450.00,EUR,2026-07-01\nDE-main,B-9,1.00,EUR,2026-07-31\n"),
    );
    env
}

#[test]
fn an_embedded_store_of_version_1_still_suppresses() {
    let env = world_of("embedded-1");
    env.ingest(&["july.csv"]).check(0, "");
    assert_eq!(env.text("july.suppressed.csv"), format!("{HEADER}\nDE-main,B-1001,2450.00,EUR,2026-07-01\n"));
    let first = r#""first_trace_id":"r-june:1","first_seen_at":"2026-11-30T22:32:59+00:00","first_file":"june.csv""#;
    assert!(env.text("july.audit.jsonl").contains(first));
    std::fs::copy(fixture("feeds/quickstart.csv"), env.path("quickstart.csv")).unwrap();
    env.ingest(&["quickstart.csv", "--run-id", "r-june"]).check(0, "");
    let summary: Value = serde_json::from_str(&env.text("quickstart.summary.json")).unwrap();
    assert_eq!(
        (&summary["run_id"], &summary["pass"]),
        (&"r-june.2".into(), &2.into()),
        "the run is known as published"
    );
}

#[test]
fn what_version_1_remembers_of_a_store_is_still_believed() {
    let env = world_of("embedded-1");
    let name = format!("file:{}\0dedup:bankfeed:", env.store_folder().display());
    let name: String = Sha256::digest(name).iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = env.store_folder().parent().unwrap().join("stores");
    let memory = folder.join(format!("{name}.json"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(&memory, sample("store-memory-1.json")).unwrap();
    env.ingest(&["july.csv"]).check(0, "");
    let age = serde_json::from_str::<Value>(&std::fs::read_to_string(&memory).unwrap()).unwrap()["age"].as_u64();
    assert!(age > Some(0), "the age of the store joins what is remembered of it");
    std::fs::write(&memory, sample("store-memory-1.json").replace("e2fa13b1", "00000000")).unwrap();
    assert_eq!(env.ingest(&["july.csv"]).code, Some(76), "another store than the one that is remembered");
    std::fs::remove_file(&memory).unwrap();
    env.ingest(&["july.csv"]).check(0, "");
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&memory).unwrap()).unwrap();
    assert_keeps(&serde_json::from_str(&sample("store-memory-1.json")).unwrap(), &written);
}

#[test]
fn journals_and_summaries_keep_their_fields() {
    let env = Env::embedded();
    std::fs::copy(fixture("feeds/quickstart.csv"), env.path("june.csv")).unwrap();
    env.run(&["ingest", "june.csv", "--run-id", "r-june"]).check_silent();
    let (old, new) = (sample("summary-1.json"), env.text("june.summary.json"));
    assert_keeps(&serde_json::from_str(&old).unwrap(), &serde_json::from_str(&new).unwrap());
    let lines = |text: &str| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();
    let (old, new) = (lines(&sample("journal-1.jsonl")), lines(&env.text("june.journal.jsonl")));
    for old in old {
        let same = new.iter().find(|new| new["event"] == old["event"]);
        assert_keeps(&old, same.unwrap_or_else(|| panic!("no line {}", old["event"])));
    }
}

/// Every field of `old` is in `new`, with a value of the same kind.
fn assert_keeps(old: &Value, new: &Value) {
    let kind = |value: &Value| std::mem::discriminant(value);
    assert_eq!(kind(old), kind(new), "{old} and {new}");
    if let (Value::Object(old), Value::Object(new)) = (old, new) {
        let missing: BTreeSet<_> = old.keys().filter(|key| !new.contains_key(*key)).collect();
        assert!(missing.is_empty(), "{missing:?} is no longer written");
        old.iter().for_each(|(key, value)| assert_keeps(value, &new[key]));
    }
}
