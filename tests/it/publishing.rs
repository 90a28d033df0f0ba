//! Publishing in which somebody else has a hand: of a worker that slept for longer than its lease, and of files that
//! were changed in the meantime.

use std::process::Command;

use crate::env::{Env, HEADER, NOW, STORES, StoreKind};
use crate::stopped::StoppedRun;

/// What another user of the server, who shares no lock with the worker, adds to a command.
const AS_ANOTHER_USER: [&str; 2] = ["--state-dir", "another"];

/// Outputs of a run in which no record needs a person.
const OUTPUTS: u32 = 4;

/// The words for a worker that another one has overtaken before it renamed anything.
const OVERTAKEN: &str = "error: another worker has taken run `r-july` over\n  hint: nothing was published by this process: \
                         let the other worker finish, then repeat the command\n";

fn feed() -> String {
    let rows: String = (0..30).map(|id| format!("DE-main,T{id},1.00,EUR,2026-07-{:02}\n", id % 28 + 1)).collect();
    format!("{HEADER}\n{rows}")
}

/// A world whose store was used before, with a feed.
fn world(store: StoreKind) -> Env {
    let env = Env::new(store);
    env.write("june.csv", format!("{HEADER}\nDE-main,S0,1.00,EUR,2026-06-01\n"));
    env.ingest(&["june.csv", "--run-id", "r-june"]).check_silent();
    env.write("july.csv", feed());
    env
}

fn july(env: &Env) -> Command {
    env.command(&["ingest", "july.csv", "--now", NOW, "--run-id", "r-july"])
}

/// A run over `july.csv` that stands still once it has given the first `renamed` outputs their names.
fn stopped_between_renames(env: &Env, renamed: u32) -> StoppedRun<'_> {
    StoppedRun::start_until(env, &july(env), ("renameat2", renamed), &[])
}

/// A run over `july.csv` that stands still behind its seal, as it looks for the first of its temporaries.
fn stopped_behind_its_seal(env: &Env) -> StoppedRun<'_> {
    let temporary = env.path(".july.accepted.csv.r-july.1.tmp");
    StoppedRun::start_until(env, &july(env), ("statx", 1), &[temporary.to_str().unwrap()])
}

fn as_another_user(env: &Env, words: &[&str]) {
    env.run(&[words, &AS_ANOTHER_USER].concat()).check(0, "");
}

/// What another user does with the feed once the lease of the stopped worker is over.
fn ingest_as_another_user(env: &Env) {
    as_another_user(env, &["ingest", "july.csv", "--now", NOW, "--run-id", "r-july"]);
}

/// How many published accepted files over `july.csv`, with the summary that lets them be used, hold its records.
fn check_accepted_once(env: &Env, accepted: &str) {
    let published = env.published();
    let is_complete = |name: &str| published.contains_key(&name.replace(".accepted.csv", ".summary.json"));
    let holds: Vec<_> = published
        .iter()
        .filter(|(name, bytes)| name.ends_with(".accepted.csv") && is_complete(name) && **bytes == feed().as_bytes())
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(holds, [accepted]);
}

#[test]
fn a_run_that_is_taken_back_between_its_renames_never_gets_its_summary() {
    for renamed in 1..OUTPUTS {
        let env = world(StoreKind::Redis);
        let stopped = stopped_between_renames(&env, renamed);
        env.end_lease("r-july");
        as_another_user(&env, &["resolve", "r-july", "--lost"]);
        ingest_as_another_user(&env);
        stopped.go_on().check(
            75,
            "error: run `r-july` was taken back in the middle of its publishing\n  hint: its files must not be posted: \
             move those of `july.*` out of `[root]/feeds`, and repeat the command, which decides its records anew\n",
        );
        assert!(!env.path("july.summary.json").exists(), "renamed: {renamed}");
        check_accepted_once(&env, "july.2.accepted.csv");
    }
}

#[test]
fn a_run_that_is_taken_back_behind_its_seal_publishes_nothing() {
    let env = world(StoreKind::Redis);
    let stopped = stopped_behind_its_seal(&env);
    as_another_user(&env, &["revert", "r-july"]);
    let published = env.published();
    stopped.go_on().check(
        75,
        "error: run `r-july` was taken back before it was published\n  hint: nothing of it is published: repeat the \
         command, and its records are decided anew\n",
    );
    assert_eq!(env.published(), published);
    env.finish(july(&env), b"").check(0, "");
    check_accepted_once(&env, "july.2.accepted.csv");
}

#[test]
fn a_run_that_another_worker_published_is_not_published_twice() {
    let env = world(StoreKind::Redis);
    let stopped = stopped_behind_its_seal(&env);
    env.end_lease("r-july");
    // It decides anew, and clears the temporaries away.
    ingest_as_another_user(&env);
    let published = env.published();
    stopped.go_on().check(75, OVERTAKEN);
    assert_eq!(env.published(), published);
    check_accepted_once(&env, "july.accepted.csv");
    // Between the renames it does the rest: then it is as if the run had been published by both.
    for renamed in 1..=OUTPUTS {
        let env = world(StoreKind::Redis);
        let stopped = stopped_between_renames(&env, renamed);
        env.end_lease("r-july");
        ingest_as_another_user(&env);
        let published = env.published();
        stopped.go_on().check(0, "");
        assert_eq!(env.published(), published, "renamed: {renamed}");
        check_accepted_once(&env, "july.accepted.csv");
    }
}

#[test]
fn files_that_another_worker_published_may_be_taken_away_at_once() {
    let env = world(StoreKind::Redis);
    let stopped = stopped_between_renames(&env, 1);
    env.end_lease("r-july");
    ingest_as_another_user(&env);
    for name in env.published().keys().filter(|name| name.starts_with("july.")) {
        std::fs::remove_file(env.path(name)).unwrap();
    }
    stopped.go_on().check(
        75,
        "error: another worker has ended the publishing of run `r-july`\n  hint: it is published: nothing is left to do\n",
    );
}

#[test]
fn a_file_that_waits_for_its_name_gets_it_only_as_it_was_sealed() {
    for store in STORES {
        let env = world(*store);
        stopped_between_renames(&env, 1).kill();
        let named = env.published();
        let waiting: Vec<_> = env.files().into_iter().filter(|(name, _)| name.ends_with(".tmp")).collect();
        assert_eq!(waiting.len(), OUTPUTS as usize - 1);
        for (temporary, bytes) in &waiting {
            let shorter = bytes.split_last().map(|(_, rest)| rest.to_vec()).unwrap_or_default();
            let longer = [&bytes[..], b"\n"].concat();
            for damaged in [shorter, longer] {
                env.write(temporary, damaged);
                let output = temporary.trim_start_matches('.').trim_end_matches(".r-july.1.tmp");
                env.finish(july(&env), b"").check(
                    76,
                    &format!(
                        "error: run `r-july` died while publishing, and its `{output}` neither stands nor waits as it was \
                         sealed\n  hint: the run is sealed, and its files are not to be used before its \
                         `summary.json` is there: put the files of the run back into its folder as they were, and \
                         repeat the command; or say what became of them with `feeddedup resolve r-july --published` or \
                         `--lost`\n"
                    ),
                );
                assert_eq!(env.published(), named, "{temporary}");
            }
            env.write(temporary, bytes);
        }
        env.finish(july(&env), b"").check(0, "");
        check_accepted_once(&env, "july.accepted.csv");
    }
}

#[test]
fn a_run_that_is_gone_on_with_keeps_the_names_it_was_sealed_with() {
    for store in STORES {
        let env = world(*store);
        stopped_between_renames(&env, 1).kill();
        let ran = env.ingest(&["july.csv", "--run-id", "r-july", "--name", "zz", "-v"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let line = "\n  the files are `july.*`, as they were when the earlier attempt was sealed\n";
        assert!(ran.stderr.ends_with(line), "{}", ran.stderr);
        check_accepted_once(&env, "july.accepted.csv");
    }
}
