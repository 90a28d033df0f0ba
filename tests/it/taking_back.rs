//! Runs that are taken back, and runs whose end the operator tells: what is free again, handed out, refused, noted.

use std::ops::Range;
use std::process::Command;

use serde_json::Value;

use crate::env::{Env, HEADER, Ran, STORES, StoreKind, assert_same};

fn rows(ids: Range<u32>) -> String {
    ids.map(|id| format!("DE-main,T{id},1.00,EUR,2026-07-{:02}\n", id % 28 + 1)).collect()
}

fn feed(ids: Range<u32>) -> String {
    format!("{HEADER}\n{}", rows(ids))
}

/// A world with a published run over `june.csv`, and one over `july.csv` that suppressed ten records because of it.
fn overlap(env: Env) -> Env {
    env.write("june.csv", feed(0..30));
    env.ingest(&["june.csv", "--run-id", "r-june"]).check_silent();
    env.write("july.csv", format!("{}{}", feed(20..50), rows(20..22)));
    env.ingest(&["july.csv", "--run-id", "r-july"]).check(0, "");
    env
}

/// The command that leaves the run over `july.csv` in the middle of its publishing.
const STUCK: [&str; 3] = ["july.csv", "--run-id", "r-july"];

/// A world whose run over `july.csv` stopped between its renames: another file has the name of one of its outputs.
fn stuck(env: Env) -> Env {
    env.write("july.csv", feed(0..30));
    // The first attempt takes the names, and its summary has no place; the second one goes on with them.
    env.write(".july.summary.json.r-july.1.tmp", "");
    assert_eq!(env.ingest(&STUCK).code, Some(73));
    env.write("july.suppressed.csv", "foreign\n");
    assert_eq!(env.ingest(&STUCK).code, Some(73));
    env
}

fn state(env: &Env, run: &str) -> String {
    let listed = env.run(&["runs", "--json"]).stdout;
    let lines = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found = lines.filter(|line| line["run_id"] == run).map(|line| line["state"].as_str().unwrap().to_owned());
    found.collect()
}

/// The last line of a journal.
fn last_line(env: &Env, journal: &str) -> Value {
    serde_json::from_str(env.text(journal).lines().last().unwrap()).unwrap()
}

/// Runs `words` and kills them as they enter the system call `call` for the `number`th time; false if they end before.
fn killed_at(env: &Env, words: &[&str], call: &str, number: usize) -> bool {
    let command = env.command(words);
    let mut strace = Command::new("strace");
    strace.args(["-o", "/dev/null", "-e", &format!("trace={call}")]);
    strace.args(["-e", &format!("inject={call}:signal=KILL:when={number}")]);
    strace.arg(command.get_program()).args(command.get_args());
    strace.current_dir(env.path("")).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    strace.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = env.finish(strace, b"");
    assert!(matches!(ran.code, None | Some(0)), "{call} number {number}: {ran:?}");
    ran.code.is_none()
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"))
}

#[test]
fn what_a_reverted_run_had_accepted_is_accepted_again() {
    for store in STORES {
        let env = Env::new(*store);
        env.write("june.csv", feed(0..30));
        env.ingest(&["june.csv", "--run-id", "r-june"]).check_silent();
        env.run(&["revert", "r-june"]).check(0, "");
        assert_eq!(state(&env, "r-june"), "REVERTED");
        let noted = last_line(&env, "june.journal.jsonl");
        assert_eq!((&noted["event"], &noted["claims"]), (&"run.reverted".into(), &30.into()), "{noted}");
        for key in ["ts", "host", "user", "pid"] {
            assert!(!noted[key].is_null(), "{key} in {noted}");
        }
        // A corrected feed has most records, and the same feed again has the rest.
        env.write("corrected.csv", feed(5..30));
        env.ingest(&["corrected.csv", "--run-id", "r-corrected"]).check(0, "");
        assert_eq!(env.text("corrected.accepted.csv"), feed(5..30));
        env.ingest(&["june.csv", "--run-id", "r-june"]).check(0, "");
        assert_eq!(env.text("june.2.accepted.csv"), feed(0..5));
        assert_eq!(env.text("june.accepted.csv"), feed(0..30), "the files of the run stay");
    }
}

#[test]
fn a_run_is_reverted_once_however_often_it_is_told() {
    for store in STORES {
        let env = Env::new(*store);
        env.write("june.csv", feed(0..30));
        env.ingest(&["june.csv", "--run-id", "r-june"]).check_silent();
        let first = json(&env.run(&["revert", "r-june", "--json"]));
        let keys: Vec<_> = first.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["type", "run_id", "file", "was_reverted", "claims_freed", "released", "exit_code"]);
        assert_eq!((&first["was_reverted"], &first["claims_freed"]), (&false.into(), &30.into()));
        let again = env.run(&["revert", "r-june", "--json", "-v"]);
        assert_same("standard error", &again.stderr, "run `r-june` had been taken back before: 0 claims freed\n");
        assert_eq!((&json(&again)["was_reverted"], again.code), (&true.into(), Some(0)));
    }
}

#[test]
fn a_dry_run_says_what_would_be_taken_back_and_changes_nothing() {
    for store in STORES {
        let env = overlap(Env::new(*store));
        let (files, listed) = (env.files(), env.run(&["runs", "--json"]).stdout.lines().count());
        let ran = env.run(&["revert", "r-june", "--dry-run", "--release-suppressed"]);
        ran.check(
            0,
            "dry run, nothing changed: run `r-june` over `june.csv` would be taken back: 30 records: 30 accepted\n  \
             accepted               30  EUR in 30.00 out 0.00\n  \
             30 accepted records would be free again\n  \
             run `r-july` over `july.csv` suppressed records because of it\n",
        );
        let refused = env.run(&["revert", "r-june", "--dry-run", "--json"]);
        assert_eq!((json(&refused)["exit_code"].as_u64(), refused.code), (Some(2), Some(2)));
        assert_eq!(json(&refused)["published_dependents"], Value::from(vec!["r-july"]));
        assert_eq!((env.files(), state(&env, "r-june").as_str()), (files, "PUBLISHED"));
        assert_eq!(env.run(&["runs", "--json"]).stdout.lines().count(), listed);
        assert_eq!(env.run(&["revert", "r-june", "--release-suppressed"]).code, Some(0));
        env.run(&["revert", "r-june", "--dry-run", "--release-suppressed"]).check(
            0,
            "dry run, nothing changed: run `r-june` over `june.csv` is taken back already: 30 records: 30 accepted\n  \
             accepted               30  EUR in 30.00 out 0.00\n  \
             claims of it would be freed only where that was broken off\n  \
             run `r-july` over `july.csv` suppressed records because of it\n",
        );
    }
}

#[test]
fn a_run_that_suppressed_nothing_is_in_nobodys_way() {
    for store in STORES {
        let env = Env::new(*store);
        for name in ["june", "july"] {
            env.write(&format!("{name}.csv"), feed(0..30));
        }
        env.ingest(&["june.csv", "--run-id", "r-june"]).check_silent();
        // Neither pass over the second feed accepts anything, so the later one rests on the first feed alone.
        for _ in 0..2 {
            env.ingest(&["july.csv", "--run-id", "r-july"]).check(0, "");
        }
        let taken_back = env.run(&["revert", "r-july", "--json"]);
        assert_eq!((taken_back.code, &json(&taken_back)["claims_freed"]), (Some(0), &0.into()), "{taken_back:?}");
    }
}

#[test]
fn records_that_others_suppressed_are_handed_out_byte_for_byte() {
    for store in STORES {
        let env = overlap(Env::new(*store));
        let files = env.files();
        env.run(&["revert", "r-june"]).check(
            2,
            "error: published runs suppressed records because of run `r-june`: `r-july`\n  hint: nothing was changed: \
             with `--release-suppressed` those records are written to files for ingestion\n",
        );
        assert_eq!((env.files(), state(&env, "r-june").as_str()), (files, "PUBLISHED"));
        let ran = env.run(&["revert", "r-june", "--release-suppressed"]);
        let file = "`[root]/feeds/july.released.csv`: ingest that file\n";
        ran.check(0, &format!("12 records that run `r-july` had suppressed are handed out in {file}"));
        let released = format!("{}{}", feed(20..30), rows(20..22));
        assert_eq!(env.text("july.released.csv"), released);
        let noted = last_line(&env, "july.journal.jsonl");
        assert_eq!((&noted["event"], &noted["records"]), (&"run.released".into(), &12.into()), "{noted}");
        assert_eq!(last_line(&env, "june.journal.jsonl")["released"], Value::from(vec![noted["file"].clone()]));
        let again = env.run(&["revert", "r-june", "--release-suppressed"]);
        again.check(0, &format!("12 records that run `r-july` had suppressed were handed out before in {file}"));
        assert!(!env.path("july.released.2.csv").exists());
        env.ingest(&["july.released.csv"]).check(0, "");
        assert_eq!(env.text("july.released.accepted.csv"), feed(20..30), "the first of equal rows is accepted");
    }
}

#[test]
fn a_released_file_goes_where_it_is_told_and_replaces_nothing() {
    let env = overlap(Env::embedded());
    std::fs::create_dir(env.path("out")).unwrap();
    std::fs::write(env.path("out/july.released.csv"), "foreign\n").unwrap();
    // What a process left that was killed while it wrote.
    std::fs::write(env.path("out/.july.released.csv.r-june.1.tmp"), "half").unwrap();
    let ran = env.run(&["revert", "r-june", "--release-suppressed", "--out-dir", "out"]);
    assert!(ran.stderr.contains("`[root]/feeds/out/july.released.2.csv`"), "{}", ran.stderr);
    let files = crate::env::files_of(&env.path("out"));
    assert_eq!(files.keys().collect::<Vec<_>>(), ["july.released.2.csv", "july.released.csv"]);
    assert_eq!(files["july.released.csv"], b"foreign\n");
}

#[test]
fn files_that_were_not_published_so_are_not_handed_out() {
    for (name, change) in [("july.suppressed.csv", true), ("july.audit.jsonl", true), ("july.audit.jsonl", false)] {
        let env = overlap(Env::embedded());
        let path = env.path(name);
        let shown = format!("`[root]/feeds/{name}`");
        let whole = env.text(name);
        if change {
            env.write(name, whole.replace("T20", "T21").replace("\"row\":1,", "\"row\":2,"));
        } else {
            std::fs::remove_file(&path).unwrap();
        }
        let ran = env.run(&["revert", "r-june", "--release-suppressed"]);
        let (code, error) = match change {
            true => (
                65,
                format!(
                    "error: {shown} is not the file that run `r-july` published\n  hint: nothing was changed in the store: "
                ),
            ),
            false => {
                (66, format!("error: cannot open {shown}\n  hint: nothing was changed in the store: put the audit log"))
            }
        };
        assert!(ran.stderr.starts_with(&error), "{}", ran.stderr);
        assert_eq!((ran.code, state(&env, "r-june").as_str()), (Some(code), "PUBLISHED"));
        assert!(!env.path("july.released.csv").exists());
        env.write(name, whole);
        assert_eq!(env.run(&["revert", "r-june", "--release-suppressed"]).code, Some(0));
    }
}

#[test]
fn runs_with_different_profiles_are_handed_out_one_profile_after_another() {
    for store in STORES {
        let env = overlap(Env::new(*store));
        env.write("bank.toml", "delimiter = \";\"\n");
        env.write("august.csv", feed(0..5).replace(',', ";"));
        env.ingest(&["august.csv", "--run-id", "r-august", "--profile", "bank.toml"]).check(0, "");
        let words = ["revert", "r-june", "--release-suppressed"];
        env.run(&words).check(
            2,
            "error: run `r-august` read `august.csv` with another profile, so its records cannot be cut\n  hint: \
             nothing was changed in the store: give the profile of run `r-august` with `--profile`; where runs have \
             different profiles, repeat the command with each\n",
        );
        assert_eq!(state(&env, "r-june"), "PUBLISHED");
        assert!(env.path("july.released.csv").exists(), "what can be cut is cut");
        let ran = env.run(&[&words[..], &["--profile", "bank.toml"]].concat());
        assert_eq!((ran.code, state(&env, "r-june").as_str()), (Some(0), "REVERTED"), "{}", ran.stderr);
        assert_eq!(env.text("august.released.csv"), feed(0..5).replace(',', ";"));
    }
}

#[test]
fn a_run_in_the_wrong_state_is_refused_with_what_to_do_instead() {
    for store in STORES {
        let env = stuck(Env::new(*store));
        env.write("june.csv", feed(50..60));
        env.ingest(&["june.csv", "--run-id", "r-june"]).check(0, "");
        env.write("gated.csv", feed(60..70));
        assert_eq!(env.ingest(&["gated.csv", "--run-id", "r-gated", "--expect-records", "9"]).code, Some(65));
        env.write("open.csv", feed(70..80));
        env.write(".open.summary.json.r-open.1.tmp", "");
        assert_eq!(env.ingest(&["open.csv", "--run-id", "r-open"]).code, Some(73));
        let unknown = "error: the store knows no run `r-none`\n  hint: `feeddedup runs` lists those that it knows\n";
        let resolve = "and only a run in the middle of its publishing can be resolved so";
        let revert = "and only a sealed or published run can be taken back";
        for (words, error) in [
            (&["revert", "r-none"][..], unknown.to_owned()),
            (&["resolve", "r-none", "--lost"], unknown.to_owned()),
            (
                &["revert", "r-open"],
                format!("error: run `r-open` is OPEN, {revert}\n  hint: nothing of it is published: repeat"),
            ),
            (
                &["revert", "r-gated"],
                format!("error: run `r-gated` is FENCED, {revert}\n  hint: nothing of it is published, and"),
            ),
            (
                &["revert", "r-july"],
                format!("error: run `r-july` is PUBLISHING, {revert}\n  hint: repeat its command over"),
            ),
            (&["resolve", "r-open", "--lost"], format!("error: run `r-open` is OPEN, {resolve}\n  hint: nothing")),
            (
                &["resolve", "r-june", "--lost"],
                format!("error: run `r-june` is PUBLISHED, {resolve}\n  hint: to take it back"),
            ),
        ] {
            let ran = env.run(words);
            assert!(ran.stderr.starts_with(&error), "{}", ran.stderr);
            assert_eq!(ran.code, Some(2), "{words:?}");
        }
        for words in [&["resolve", "r-july"][..], &["resolve", "r-july", "--lost", "--published"]] {
            assert_eq!(env.run(words).code, Some(2));
        }
        assert_eq!(state(&env, "r-july"), "PUBLISHING");
    }
}

#[test]
fn a_store_that_is_not_there_knows_no_run_and_is_not_made() {
    for store in STORES {
        let env = Env::new(*store);
        for words in [&["revert", "r-1"][..], &["revert", "r-1", "--dry-run"], &["resolve", "r-1", "--published"]] {
            let hint = "`feeddedup runs` lists those that it knows";
            env.run(words).check(2, &format!("error: the store knows no run `r-1`\n  hint: {hint}\n"));
        }
        assert!(!env.store_folder().exists());
    }
}

#[test]
fn a_run_waits_for_others_that_may_still_be_published() {
    for store in STORES {
        let env = Env::new(*store);
        env.write("june.csv", feed(0..30));
        env.ingest(&["june.csv", "--run-id", "r-june"]).check_silent();
        let env = stuck(env);
        for dry in [&[][..], &["--dry-run", "-q"]] {
            let ran = env.run(&[&["revert", "r-june", "--release-suppressed"], dry].concat());
            ran.check(
                75,
                "error: runs that are not published yet suppress records because of run `r-june`: `r-july`\n  hint: \
                 nothing was changed: bring them to their end by repeating their commands, then repeat this one\n",
            );
        }
        std::fs::remove_file(env.path("july.suppressed.csv")).unwrap();
        env.ingest(&STUCK).check(0, "");
        assert_eq!(env.run(&["revert", "r-june", "--release-suppressed"]).code, Some(0));
        assert_eq!(env.text("july.released.csv"), feed(0..30));
    }
}

#[test]
fn a_run_that_was_left_open_keeps_no_other_from_being_taken_back() {
    for store in STORES {
        let env = Env::new(*store);
        env.write("june.csv", feed(0..30));
        env.ingest(&["june.csv", "--run-id", "r-june"]).check_silent();
        env.write("july.csv", feed(20..40));
        env.write(".july.summary.json.r-july.1.tmp", "");
        assert_eq!(env.ingest(&["july.csv", "--run-id", "r-july"]).code, Some(73));
        env.run(&["revert", "r-june"]).check(0, "");
        assert_eq!(state(&env, "r-july"), "FENCED");
        env.ingest(&["july.csv", "--run-id", "r-july"]).check(0, "");
        assert_eq!(env.text("july.accepted.csv"), feed(20..40), "it decides anew");
    }
}

#[test]
fn a_stuck_run_is_lost_or_published_as_the_operator_says() {
    for store in STORES {
        let env = stuck(Env::new(*store));
        env.run(&["resolve", "r-july", "--lost"]).check(0, "");
        assert_eq!(state(&env, "r-july"), "REVERTED");
        let noted = last_line(&env, "july.journal.jsonl");
        assert_eq!((&noted["event"], &noted["state"]), (&"run.resolved".into(), &"REVERTED".into()), "{noted}");
        assert_eq!(noted["claims"], 30);
        let again = env.run(&["resolve", "r-july", "--lost", "--json"]);
        assert_eq!((again.code, &json(&again)["claims_freed"]), (Some(0), &0.into()));
        env.ingest(&STUCK).check(0, "");
        assert_eq!(env.text("july.2.accepted.csv"), feed(0..30), "nothing is suppressed by what was lost");

        let env = stuck(env.fresh());
        env.run(&["resolve", "r-july", "--published", "-v"]).check(0, "run `r-july` counts as published\n");
        assert_eq!(state(&env, "r-july"), "PUBLISHED");
        env.run(&["resolve", "r-july", "--published"]).check(0, "");
        env.ingest(&STUCK).check(0, "");
        assert_eq!(env.text("july.2.suppressed.csv"), feed(0..30));
    }
}

#[test]
fn a_run_that_cannot_be_published_says_what_is_in_its_way() {
    let sealed = "hint: the run is sealed, and its files are not to be used before its `summary.json` is there";
    for store in STORES {
        let env = stuck(Env::new(*store));
        env.ingest(&STUCK).check(
            73,
            &format!(
                "error: `[root]/feeds/july.suppressed.csv` exists and is never overwritten\n  {sealed}: move \
                 the file away and repeat the command, the run goes on\n"
            ),
        );
        std::fs::remove_file(env.path(".july.suppressed.csv.r-july.2.tmp")).unwrap();
        env.ingest(&STUCK).check(
            76,
            &format!(
                "error: run `r-july` died while publishing, and its `july.suppressed.csv` neither stands nor waits as \
                 it was sealed\n  {sealed}: put the files of the run back into its folder as they were, and repeat \
                 the command; or say what became of them with `feeddedup resolve r-july --published` or `--lost`\n"
            ),
        );
    }
}

#[test]
fn a_stuck_run_whose_folder_is_gone_is_resolved_with_a_warning() {
    for store in STORES {
        let env = stuck(Env::new(*store));
        std::fs::remove_file(env.path("july.journal.jsonl")).unwrap();
        env.run(&["resolve", "r-july", "--lost"]).check(
            0,
            "warning: the journal of run `r-july` is not in `[root]/feeds`: it does not say how it was resolved\n",
        );
        assert!(!env.path("july.journal.jsonl").exists(), "a journal is not begun anew");
    }
}

#[test]
fn a_run_whose_worker_may_be_alive_is_not_resolved() {
    let env = stuck(Env::new(StoreKind::Redis));
    let prefix = env.ask_server("KEYS *run:r-july");
    let key = prefix.lines().find(|line| line.ends_with("run:r-july")).unwrap().to_owned();
    env.ask_server(&format!("HSET {key} lease 99999999999999"));
    let listed = env.run(&["runs", "--state", "publishing"]).stdout;
    assert!(listed.contains("; alive for ") && listed.starts_with("STATE "), "{listed}");
    let ran = env.run(&["resolve", "r-july", "--lost"]);
    assert!(ran.stderr.starts_with("error: run `r-july` is being published by process "), "{}", ran.stderr);
    assert!(ran.stderr.contains("whose lease is not over\n  hint: let it finish;"), "{}", ran.stderr);
    assert_eq!((ran.code, state(&env, "r-july").as_str()), (Some(75), "PUBLISHING"));
}

#[test]
fn a_run_is_left_alone_while_its_feed_is_worked_on() {
    for store in STORES {
        let env = stuck(Env::new(*store));
        let digest: Value = serde_json::from_str(env.run(&["runs", "--json"]).stdout.lines().next().unwrap()).unwrap();
        let path = env.lock_folder().join(format!("{}.lock", digest["sha256"].as_str().unwrap()));
        let lock = std::fs::File::open(path).unwrap();
        lock.try_lock().unwrap();
        let ran = env.run(&["resolve", "r-july", "--lost"]);
        assert!(ran.stderr.starts_with("error: the feed is being ingested already, by "), "{}", ran.stderr);
        assert_eq!((ran.code, state(&env, "r-july").as_str()), (Some(75), "PUBLISHING"));
    }
}

/// The system calls by which a revert changes the world.
const CALLS: [&str; 8] = ["flock", "fdatasync", "fsync", "pwrite64", "pwritev", "renameat2", "sendto", "write"];

#[test]
fn a_revert_that_is_killed_at_any_call_comes_to_the_same_end() {
    let words = ["revert", "r-june", "--release-suppressed"];
    for store in STORES {
        let env = overlap(Env::new(*store));
        env.keep();
        let mut killed = 0;
        for call in CALLS {
            for number in 1.. {
                env.restore();
                if !killed_at(&env, &words, call, number) {
                    break;
                }
                killed += 1;
                let moment = format!("{call} number {number} on {store:?}");
                let released = format!("{}{}", feed(20..30), rows(20..22));
                // Nothing is free unless the records that others suppressed are there to be ingested.
                let is_free = state(&env, "r-june") == "REVERTED";
                assert!(!is_free || env.text("july.released.csv") == released, "{moment}");
                let ran = env.run(&words);
                assert_eq!((ran.code, state(&env, "r-june").as_str()), (Some(0), "REVERTED"), "{moment}: {ran:?}");
                assert_same(&moment, &env.text("july.released.csv"), &released);
                let odd = |name: &String| name.ends_with(".tmp") || name.contains("released.2");
                assert_eq!(env.files().into_keys().filter(odd).collect::<Vec<_>>(), Vec::<String>::new(), "{moment}");
                env.ingest(&["june.csv", "--run-id", "r-june"]).check(0, "");
                assert_eq!(env.text("june.2.accepted.csv"), feed(0..30), "{moment}");
            }
        }
        assert!(killed > 10, "only {killed} calls on {store:?}");
    }
}
