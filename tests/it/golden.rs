//! Every feed of `fixtures/feeds` yields the files of `fixtures/golden`, byte for byte, whatever the store, the batches
//! and the threads.
//!
//! A new feed needs its golden files: `UPDATE_GOLDEN=1 cargo test golden` writes them all anew. Read what changed: a
//! golden file is right because somebody checked it, not because the program wrote it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::env::{Env, Files, NOW, STORES, assert_same_files, files_of, fixture};

/// What the program said, kept beside the files of the run.
const SAID: &str = "stderr.txt";

/// The golden files of every feed.
static GOLDEN: LazyLock<BTreeMap<String, Files>> = LazyLock::new(|| {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        feeds().keys().for_each(|feed| write_golden(feed));
    }
    let folder = |feed: &String| fixture("golden").join(feed);
    feeds().into_keys().map(|feed| (feed.clone(), files_of(&folder(&feed)))).collect()
});

pub(crate) fn feeds() -> Files {
    files_of(&fixture("feeds"))
}

/// The files of a run over `feed` in `env`, and what was said.
pub(crate) fn ingest(feed: &str, env: &Env, words: &[&str]) -> Files {
    env.write(feed, &feeds()[feed]);
    let stem = feed.split('.').next().unwrap();
    let profile = fixture(&format!("profiles/{stem}.toml"));
    let profile_words = ["--profile", profile.to_str().unwrap()];
    let profile_words: &[&str] = if profile.exists() { &profile_words } else { &[] };
    let run = format!("r-{stem}");
    let ran = env.run(&[&["ingest", feed, "--now", NOW, "--run-id", &run], profile_words, words].concat());
    let mut files = env.published();
    let summary: serde_json::Value = serde_json::from_slice(&files[&format!("{stem}.summary.json")]).unwrap();
    assert_eq!(ran.code.map(i64::from), summary["exit_code"].as_i64(), "{feed}: the exit code");
    assert_eq!(ran.stdout, "", "{feed}: standard output");
    let journal = format!("{stem}.journal.jsonl");
    let others = env.files().into_keys().filter(|name| !files.contains_key(name) && *name != journal);
    assert_eq!(others.collect::<Vec<_>>(), [feed], "nothing else is left");
    files.insert(SAID.into(), ran.said_besides_store().stderr.into_bytes());
    files
}

fn write_golden(feed: &str) {
    let folder = fixture("golden").join(feed);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    for (name, bytes) in ingest(feed, &Env::embedded(), &[]) {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

/// Every feed on every store, with these batches.
fn check(batch_words: &[&str]) {
    for store in STORES {
        let first = Env::new(*store);
        for threads in ["1", "2", "4"] {
            for (feed, golden) in &*GOLDEN {
                let words = [&["--threads", threads], batch_words].concat();
                let found = ingest(feed, &first.fresh(), &words);
                assert_same_files(&format!("{feed} on {store:?} with {words:?}"), &found, golden);
            }
        }
    }
}

#[test]
fn golden_in_batches_of_the_stores_own_size() {
    check(&[]);
}

#[test]
fn golden_in_batches_of_1() {
    check(&["--batch-size", "1"]);
}

#[test]
fn golden_in_batches_of_7() {
    check(&["--batch-size", "7"]);
}

#[test]
fn golden_in_batches_of_1000() {
    check(&["--batch-size", "1000"]);
}

#[test]
fn golden_files_and_profiles_belong_to_a_feed() {
    let feeds = feeds();
    let is_stem = |stem: &str| feeds.keys().any(|feed| feed.split('.').next() == Some(stem));
    for folder in std::fs::read_dir(fixture("golden")).unwrap() {
        let name = folder.unwrap().file_name().into_string().unwrap();
        assert!(feeds.contains_key(&name), "fixtures/golden/{name} has no feed");
    }
    for name in files_of(&fixture("profiles")).into_keys() {
        assert!(is_stem(name.trim_end_matches(".toml")), "fixtures/profiles/{name} has no feed");
    }
}
