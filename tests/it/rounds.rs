//! Several processes on overlapping feeds, killed at random and repeated until all is done: nothing lost, nothing twice.
//!
//! `FEEDS_LONG=1` takes 10,000 rounds instead of 100; `FEEDS_ROUND=17` repeats round 17 alone, as far as timing allows.

use std::collections::BTreeSet;
use std::ops::Range;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::env::{Env, HEADER, STORES, StoreKind, is_long};
use crate::oracle::Random;

/// Rounds, unless the long mode is asked for.
const ROUNDS: u64 = 100;

/// Rounds in the long mode.
const ROUNDS_LONG: u64 = 10_000;

/// Rounds that are under way at a time.
const WORKERS: u64 = 2;

/// The feeds of a round.
const FEEDS: [&str; 3] = ["a.csv", "b.csv", "c.csv"];

/// No process lives longer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// About as long as a process lives that nobody kills.
const LIFE_MICROS: u64 = 60_000;

/// When a process is killed.
#[derive(Debug, Clone, Copy)]
enum Fate {
    After(Duration),
    /// When the folder has so many files.
    AtFiles(usize),
    Spared,
}

impl Fate {
    fn draw(random: &mut Random) -> Self {
        match random.below(8) {
            0..=3 => Self::After(Duration::from_micros(random.below(LIFE_MICROS))),
            // The feeds alone are three; three runs that are about to be published have some twenty.
            4..=6 => Self::AtFiles(4 + usize::try_from(random.below(18)).unwrap()),
            _ => Self::Spared,
        }
    }

    fn has_come(self, env: &Env, started: Instant) -> bool {
        match self {
            Self::After(delay) => started.elapsed() >= delay,
            Self::AtFiles(count) => std::fs::read_dir(env.path("")).unwrap().count() >= count,
            Self::Spared => false,
        }
    }
}

/// One record, as a line of the canonical feed; equal numbers are equal records.
fn line(number: u64) -> String {
    format!("DE-main,T{number},{}.50,EUR,2026-07-{:02}\n", number % 90 + 1, number % 28 + 1)
}

/// Writes the feeds of a round: stretches of one row of records that overlap, with some repeated. Returns all records.
fn write_feeds(env: &Env, random: &mut Random) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (place, name) in (0..).zip(FEEDS) {
        let (first, count) = (random.below(30), 10 + random.below(40));
        // One of its own: two feeds of the same bytes are one.
        let mut numbers = vec![1_000 + place];
        for number in first..first + count {
            numbers.push(number);
            if random.below(5) == 0 {
                numbers.push(first + random.below(number - first + 1));
            }
        }
        let lines: Vec<_> = numbers.into_iter().map(line).collect();
        env.write(name, format!("{HEADER}\n{}", lines.concat()));
        all.extend(lines);
    }
    all
}

fn start(env: &Env, name: &str, random: &mut Random) -> Child {
    let batch_size = (1 + random.below(20)).to_string();
    let words = ["ingest", name, "-q", "--batch-size", &batch_size];
    env.command(&words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The exit code of a process that has ended, none if it was killed; fails with what it said where that is no good end.
fn end_of(name: &str, child: Child, good: &[i32]) -> Result<Option<i32>, String> {
    let output = child.wait_with_output().unwrap();
    match output.status.code() {
        Some(code) if !good.contains(&code) => {
            Err(format!("{name} ended with {code}: {}", String::from_utf8_lossy(&output.stderr)))
        }
        code => Ok(code),
    }
}

/// The feeds in a random order.
fn shuffled(random: &mut Random) -> [&'static str; 3] {
    let mut names = FEEDS;
    for place in (1..names.len()).rev() {
        names.swap(place, usize::try_from(random.below(place as u64 + 1)).unwrap());
    }
    names
}

/// Starts a process for each feed at once, and lets each meet its fate.
fn run_under_kills(env: &Env, random: &mut Random) -> Result<(), String> {
    let started = Instant::now();
    let mut alive: Vec<_> = Vec::new();
    for name in shuffled(random) {
        alive.push((name, start(env, name, random), Fate::draw(random)));
    }
    while !alive.is_empty() {
        let mut ended = Vec::new();
        for (place, (name, child, fate)) in alive.iter_mut().enumerate() {
            if fate.has_come(env, started) {
                child.kill().unwrap();
                ended.push(place);
            } else if child.try_wait().unwrap().is_some() {
                ended.push(place);
            } else if started.elapsed() > TIMEOUT {
                let waits = waits_of(child);
                child.kill().unwrap();
                return Err(format!("{name} hangs in {waits}"));
            }
        }
        for place in ended.into_iter().rev() {
            let (name, child, _) = alive.swap_remove(place);
            end_of(name, child, &[0, 3])?;
        }
        thread::yield_now();
    }
    check_suppressed(env)
}

/// Where each thread of a process waits in the system, by its name.
fn waits_of(child: &Child) -> String {
    let mut waits = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap() {
        let about =
            |file: &str| std::fs::read_to_string(thread.as_ref().unwrap().path().join(file)).unwrap_or_default();
        waits.push(format!("{}: {} {}", about("comm").trim(), about("wchan").trim(), about("syscall").trim()));
    }
    waits.join(", ")
}

/// Repeats every command, undisturbed and one after another.
fn run_alone(env: &Env, good: &[i32], random: &mut Random) -> Result<(), String> {
    for name in shuffled(random) {
        let child = start(env, name, random);
        end_of(name, child, good)?;
    }
    Ok(())
}

/// Whatever a published run suppressed stands in an accepted file already: nobody has to repeat anything for that.
fn check_suppressed(env: &Env) -> Result<(), String> {
    let files = env.files();
    let lines_of = |bytes: &[u8]| -> Vec<String> {
        String::from_utf8(bytes.to_vec()).unwrap().lines().skip(1).map(str::to_owned).collect()
    };
    let accepted = files.iter().filter(|(name, _)| name.ends_with(".accepted.csv"));
    let accepted: BTreeSet<_> = accepted.flat_map(|(_, bytes)| lines_of(bytes)).collect();
    for (name, bytes) in &files {
        let Some(stem) = name.strip_suffix(".suppressed.csv") else { continue };
        let is_published = files.contains_key(&format!("{stem}.summary.json"));
        if let Some(lost) = lines_of(bytes).into_iter().find(|line| is_published && !accepted.contains(line)) {
            return Err(format!("{name} holds a record that no accepted file has: {lost}"));
        }
    }
    Ok(())
}

/// Every record of `all` is in one accepted file, once, and nothing is half-written.
fn check(env: &Env, all: &BTreeSet<String>) -> Result<(), String> {
    let mut lacking = all.clone();
    for (name, bytes) in env.files() {
        if name.ends_with(".tmp") {
            return Err(format!("{name} is left"));
        }
        if name.ends_with(".accepted.csv") {
            for line in String::from_utf8(bytes).unwrap().split_inclusive('\n').skip(1) {
                if !lacking.remove(line) {
                    return Err(format!("{name} holds a record that is accepted elsewhere, or none: {line}"));
                }
            }
        }
    }
    if lacking.is_empty() { Ok(()) } else { Err(format!("in no accepted file: {lacking:?}")) }
}

/// One round; returns how many runs were gone on with.
fn round(env: &Env, random: &mut Random) -> Result<usize, String> {
    let all = write_feeds(env, random);
    for _ in 0..1 + random.below(3) {
        run_under_kills(env, random)?;
    }
    // All are published by the first repetition; the second decides what was held.
    run_alone(env, &[0, 3], random)?;
    run_alone(env, &[0], random)?;
    check(env, &all)?;
    let journals = env.files().into_iter().filter(|(name, _)| name.ends_with(".journal.jsonl"));
    Ok(journals.filter(|(_, bytes)| String::from_utf8_lossy(bytes).contains("\"resumed\":true")).count())
}

/// Does those of `rounds` that belong to `worker`, the kinds of store in turn; returns how many runs were gone on with.
fn work(worker: u64, rounds: Range<u64>) -> usize {
    let mut resumed = 0;
    let first_of = STORES.iter().map(|store| Env::new(*store)).collect::<Vec<_>>();
    for number in rounds.filter(|number| number % WORKERS == worker) {
        let place = usize::try_from(number / WORKERS).unwrap() % STORES.len();
        let store: StoreKind = STORES[place];
        let mut env = first_of[place].fresh();
        match round(&env, &mut Random(number)) {
            Ok(runs) => resumed += runs,
            Err(reason) => {
                let folder = env.keep_folder().display();
                panic!("round {number} on {store:?} (`FEEDS_ROUND={number}`, folder `{folder}`): {reason}");
            }
        }
    }
    resumed
}

#[test]
fn processes_that_are_killed_at_random_accept_each_record_once() {
    let only = std::env::var("FEEDS_ROUND").ok().map(|number| number.parse().expect("FEEDS_ROUND is a number"));
    let all = if is_long() { ROUNDS_LONG } else { ROUNDS };
    let rounds = only.map_or(0..all, |number: u64| number..number + 1);
    let resumed: usize = thread::scope(|scope| {
        let start = |worker| {
            let rounds = rounds.clone();
            scope.spawn(move || work(worker, rounds))
        };
        let workers: Vec<_> = (0..WORKERS).map(start).collect();
        // Why one failed stands above.
        workers.into_iter().map(|worker| worker.join().expect("every round holds")).sum()
    });
    assert!(resumed > 0 || only.is_some(), "every kill came too late");
}
