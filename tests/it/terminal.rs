//! What is said where a person looks: on a terminal, and only there.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::env::{Env, HEADER, NOW, assert_same, fixture};

/// Runs `command` with a terminal as its standard error; returns its exit code and what stood on the terminal.
fn on_terminal(env: &Env, command: Command) -> (Option<i32>, String) {
    on_terminal_while(env, command, |_, _| {})
}

/// The same, calling `act` with what stands on the terminal whenever there is more.
fn on_terminal_while(env: &Env, mut command: Command, mut act: impl FnMut(&Child, &[u8])) -> (Option<i32>, String) {
    let keeper = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&keeper).unwrap();
    unlockpt(&keeper).unwrap();
    let path = ptsname(&keeper, Vec::new()).unwrap();
    let terminal: OwnedFd = File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap().into();
    let mut child = command.stderr(terminal).spawn().unwrap();
    // The command holds the terminal as well: with it goes the last one of this process.
    drop(command);
    let mut shown = Vec::new();
    let (mut keeper, mut buffer) = (File::from(keeper), [0; 4096]);
    // The end of a terminal that nobody holds any more is told as an error.
    while let Ok(count @ 1..) = keeper.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..count]);
        act(&child, &shown);
    }
    (child.wait().unwrap().code(), env.told(&shown).replace("\r\n", "\n"))
}

/// What a person reads of the small feed, up to how long it took.
const SUMMARY: &str = r"created the store `[store]`
run `r-july` published: 9 records: 7 accepted, 2 suppressed
  accepted                7  EUR in 2,450.00 out -925.95; JPY in 0 out -120,000; USD in 1,999.90 out -15.00
  suppressed              2  EUR in 0.00 out -42.75; USD in 1,999.90 out 0.00
  files       july.accepted.csv, july.suppressed.csv, july.audit.jsonl, july.summary.json
  folder      [root]/feeds
  store       [store]
";

/// A world with the small feed.
fn world() -> Env {
    let env = Env::embedded();
    std::fs::copy(fixture("feeds/quickstart.csv"), env.path("july.csv")).unwrap();
    env
}

#[test]
fn a_person_reads_what_was_done_at_a_glance() {
    let env = world();
    let words = ["ingest", "july.csv", "--run-id", "r-july", "--now", NOW];
    let (code, shown) = on_terminal(&env, env.command(&words));
    let (stable, time) = shown.split_once("  time        ").unwrap();
    assert!(time.ends_with(" records/s\n"), "{time}");
    assert_same("the terminal", stable, SUMMARY);
    assert_eq!(code, Some(0));
    let (_, shown) = on_terminal(&env, env.command(&["ingest", "july.csv", "-q"]));
    assert_eq!(shown, "");
}

#[test]
fn colour_is_for_terminals_and_ends_where_it_is_not_wanted() {
    let env = world();
    let command = || env.command(&["ingest", "gone.csv"]);
    assert!(on_terminal(&env, command()).1.starts_with("\x1b[1;31merror:\x1b[0m cannot open `gone.csv`\n"));
    let mut without = command();
    without.env("NO_COLOR", "1");
    assert!(on_terminal(&env, without).1.starts_with("error: cannot open `gone.csv`\n"));
    let mut dumb = command();
    dumb.env("TERM", "dumb");
    assert!(on_terminal(&env, dumb).1.starts_with("error: cannot open `gone.csv`\n"));
    assert!(env.run(&["ingest", "gone.csv"]).stderr.starts_with("error: cannot open `gone.csv`\n"));
}

#[test]
fn a_long_feed_shows_how_far_it_is() {
    let env = world();
    let rows: String = (0..100_000).map(|row| format!("DE-main,TRANSACTION-{row:010},1.00,EUR,2026-07-01\n")).collect();
    env.write("long.csv", format!("{HEADER}\n{rows}"));
    let mut command = env.command(&["ingest", "long.csv"]);
    command.env("TERM", "xterm");
    let (code, shown) = on_terminal(&env, command);
    assert_eq!(code, Some(0));
    assert!(shown.contains("records/s left "), "{shown:?}");
    let env = world();
    let mut command = env.command(&["ingest", "july.csv"]);
    command.env("TERM", "xterm");
    assert!(!on_terminal(&env, command).1.contains("records/s left "), "a short one is done before anybody looks");
}

#[test]
fn an_interruption_leaves_a_clean_terminal() {
    let env = world();
    let rows: String = (0..100_000).map(|row| format!("DE-main,TRANSACTION-{row:010},1.00,EUR,2026-07-01\n")).collect();
    env.write("long.csv", format!("{HEADER}\n{rows}"));
    let mut command = env.command(&["ingest", "long.csv", "--batch-size", "1"]);
    command.env("TERM", "xterm");
    let mut is_asked = false;
    let (code, shown) = on_terminal_while(&env, command, |child, shown| {
        if !is_asked && String::from_utf8_lossy(shown).contains("records/s left ") {
            kill_process(Pid::from_child(child), Signal::TERM).unwrap();
            is_asked = true;
        }
    });
    let error = "error: interrupted by SIGTERM in the middle of `long.csv`\n  hint: nothing of this feed is published: \
                 repeat the command to go on\n";
    let error = error.replacen("error:", "\x1b[1;31merror:\x1b[0m", 1);
    let drawn = shown.strip_suffix(&error).unwrap_or_else(|| panic!("{shown:?}"));
    assert!(drawn.ends_with("\r\x1b[2K"), "the bar is wiped away: {drawn:?}");
    assert_eq!(code, Some(143));
}
