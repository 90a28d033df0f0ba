//! Killed at any moment and repeated, a run leaves the files of a run that was never killed.
//!
//! The parent polls for a sign of the moment, such as a file that appears, and kills the process there. Where it comes
//! too late the run is published, and repeating it must show that instead.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::env::{Env, Files, HEADER, NOW, STORES, assert_same_files};
use crate::stopped::StoppedRun;

/// No run of these tests takes longer.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// Enough records for several batches and for some milliseconds in every stage.
const RECORDS: u32 = 6_000;

fn feed() -> String {
    let row = |row: u32| match row % 50 {
        // The record ten rows above, once more.
        9 => format!("DE-main,T{},1.00,EUR,2026-07-{:02}\n", row - 8, (row - 8) % 28 + 1),
        17 => format!("DE-main,T{row},x,EUR,2026-07-01\n"),
        _ => format!("DE-main,T{row},1.00,EUR,2026-07-{:02}\n", row % 28 + 1),
    };
    format!("{HEADER}\n{}", (0..RECORDS).map(row).collect::<String>())
}

/// The command of all runs here.
fn command(env: &Env) -> Command {
    let mut command = env.command(&["ingest", "july.csv", "--now", NOW, "--run-id", "r-july", "--batch-size", "500"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A world with the feed, and a store that was used before.
fn world(env: Env) -> Env {
    env.write("june.csv", format!("{HEADER}\nDE-main,T0,1.00,EUR,2026-07-01\n"));
    env.ingest(&["june.csv", "--run-id", "r-june"]).check_silent();
    env.write("july.csv", feed());
    env
}

/// Kills `child` as soon as `is_now`; says whether it was still alive then.
fn kill_when(mut child: Child, is_now: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + RUN_TIMEOUT;
    while !is_now() {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        assert!(Instant::now() < deadline, "the run hangs");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap().code().is_none()
}

/// What the run leaves that nobody disturbs.
fn undisturbed(env: &Env) -> Files {
    let env = world(env.fresh());
    assert_eq!(command(&env).status().unwrap().code(), Some(3));
    env.published()
}

/// Repeats the killed run, and compares. One that had come to its end before it was killed begins its second pass.
fn check_repeated(env: &Env, expected: &Files, moment: &str) {
    assert_eq!(command(env).status().unwrap().code(), Some(3), "repeated after it was killed {moment}");
    let first_pass: Files = env.published().into_iter().filter(|(name, _)| !name.starts_with("july.2.")).collect();
    assert_same_files(&format!("killed {moment} and repeated"), &first_pass, expected);
    let temporaries = env.files().into_keys().filter(|name| name.ends_with(".tmp"));
    assert_eq!(temporaries.collect::<Vec<_>>(), Vec::<String>::new(), "killed {moment}");
}

/// Whether the journal has the line of this event.
fn journal_has(path: &Path, event: &str) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.contains(&format!("\"event\":\"{event}\""))
}

#[test]
fn a_run_that_is_killed_where_a_file_appears_is_gone_on_with() {
    for store in STORES {
        let first = Env::new(*store);
        let expected = undisturbed(&first);
        let mut killed = 0;
        for name in [
            ".july.accepted.csv.r-july.1.tmp",
            ".july.rejected.csv.r-july.1.tmp",
            ".july.audit.jsonl.r-july.1.tmp",
            ".july.summary.json.r-july.1.tmp",
            "july.accepted.csv",
            "july.suppressed.csv",
            "july.rejected.csv",
            "july.audit.jsonl",
            "july.summary.json",
        ] {
            let env = world(first.fresh());
            let path = env.path(name);
            killed += u32::from(kill_when(command(&env).spawn().unwrap(), || path.exists()));
            check_repeated(&env, &expected, &format!("when {name} appeared on {store:?}"));
        }
        assert!(killed > 0, "every kill came too late");
    }
}

#[test]
fn a_run_that_is_killed_between_its_states_is_gone_on_with() {
    for store in STORES {
        let first = Env::new(*store);
        let expected = undisturbed(&first);
        let mut killed = 0;
        for event in ["run.opened", "run.sealed", "run.publishing", "run.published"] {
            let env = world(first.fresh());
            let journal = env.path("july.journal.jsonl");
            killed += u32::from(kill_when(command(&env).spawn().unwrap(), || journal_has(&journal, event)));
            check_repeated(&env, &expected, &format!("at {event} on {store:?}"));
        }
        assert!(killed > 0, "every kill came too late");
    }
}

#[test]
fn a_run_that_is_killed_at_any_time_is_gone_on_with() {
    for store in STORES {
        let first = Env::new(*store);
        let started = Instant::now();
        let expected = undisturbed(&first);
        let whole = started.elapsed();
        let mut killed = 0;
        for part in 1..=8_u32 {
            let env = world(first.fresh());
            let (child, started) = (command(&env).spawn().unwrap(), Instant::now());
            killed += u32::from(kill_when(child, || started.elapsed() > whole * part / 8));
            check_repeated(&env, &expected, &format!("after {part}/8 of its time on {store:?}"));
        }
        assert!(killed > 0, "every kill came too late");
    }
}

#[test]
fn a_run_that_is_killed_again_and_again_is_gone_on_with() {
    for store in STORES {
        let first = Env::new(*store);
        let expected = undisturbed(&first);
        let env = world(first.fresh());
        let journal = env.path("july.journal.jsonl");
        for epoch in 1..=5 {
            let opened = format!("\"epoch\":{epoch},");
            let is_open = || std::fs::read_to_string(&journal).unwrap_or_default().contains(&opened);
            kill_when(command(&env).spawn().unwrap(), is_open);
        }
        check_repeated(&env, &expected, &format!("five times on {store:?}"));
    }
}

#[test]
fn records_of_a_run_that_died_are_held_until_it_is_published() {
    for store in STORES {
        let env = world(Env::new(*store));
        // Its lease still runs: nobody can know that it will not go on.
        StoppedRun::start(&env, &command(&env)).kill();
        let overlap = format!("{HEADER}\nDE-main,T1,1.00,EUR,2026-07-02\nDE-other,T1,1.00,EUR,2026-07-02\n");
        env.write("august.csv", &overlap);
        let ran = env.ingest(&["august.csv", "--run-id", "r-august"]);
        ran.check(
            3,
            "run `r-august` published: 2 records: 1 accepted, 1 held\n  run `r-july` over `july.csv` holds records and is \
             not published: repeat its command, then this one\n",
        );
        assert_eq!(env.text("august.held.csv"), format!("{HEADER}\nDE-main,T1,1.00,EUR,2026-07-02\n"));
        let first =
            r#""match_decision":"HELD","row":1,"line":2,"reason":"run_not_published","first_trace_id":"r-july:2""#;
        assert!(env.text("august.audit.jsonl").contains(first), "{}", env.text("august.audit.jsonl"));
        assert_eq!(command(&env).status().unwrap().code(), Some(3));
        env.ingest(&["august.csv", "--run-id", "r-august"]).check(0, "");
        assert_eq!(env.text("august.2.suppressed.csv"), overlap, "decided once the first run is published");
    }
}
