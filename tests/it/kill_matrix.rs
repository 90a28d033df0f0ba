//! Disturbed at any one of its system calls and repeated, a run leaves the files of a run that nobody disturbed.
//!
//! With one thread a run makes the same calls in the same order each time. `strace` lists them, and then, in the same
//! world again for each, kills the run as it enters one, or makes that one fail. Whatever state a run can leave behind
//! between two calls, some case leaves it.

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use feeddedup::cli::failure::ExitCode;

use crate::env::{Env, Files, HEADER, NOW, Ran, STORES, StoreKind, difference};

/// The system calls by which a run looks at the world, changes it, and speaks with it. Some systems lack some of them.
const CALLS: &[&str] = &[
    "connect",
    "creat",
    "fallocate",
    "fdatasync",
    "flock",
    "fsync",
    "ftruncate",
    "link",
    "linkat",
    "mkdir",
    "mkdirat",
    "open",
    "openat",
    "pread64",
    "preadv",
    "pwrite64",
    "pwritev",
    "read",
    "readv",
    "recvfrom",
    "recvmsg",
    "rename",
    "renameat",
    "renameat2",
    "sendmsg",
    "sendto",
    "unlink",
    "unlinkat",
    "write",
    "writev",
];

/// The calls among them that give a file a name where a rename that never replaces is not to be had.
const LINKS: &[&str] = &["link", "linkat", "unlink", "unlinkat"];

/// What `strace` must do to a run on a file system like that.
const WITHOUT_RENAMES: &[&str] = &["-e", "inject=renameat2:error=EINVAL"];

/// Calls that begin a thread or a process.
const BEGINNINGS: &[&str] = &["clone", "clone3", "fork", "vfork"];

/// What happens at a call instead of the call.
const FAULTS: &[Fault] = &[Fault::Killed, Fault::Fails("EIO"), Fault::Fails("ENOSPC"), Fault::Fails("EINTR")];

/// Threads that try cases, each with a world and a server of its own. They wait for the disk as long as they work.
const WORKERS: usize = 4;

/// Repetitions after a disturbed run: the first ends its pass, the second is the next pass.
const REPETITIONS_MAX: usize = 2;

/// The command that is disturbed.
const COMMAND: &[&str] = &["ingest", "july.csv", "--threads", "1", "--now", NOW, "--run-id", "r-july"];

/// Makes it claim in several steps.
const SMALL_BATCHES: &[&str] = &["--batch-size", "3"];

/// How that command ends: a line was rejected.
const NEEDS_PERSON: Option<i32> = Some(3);

/// Stands only where the second pass is published.
const LAST_FILE: &str = "july.2.summary.json";

/// Where that command writes its summary.
const SUMMARY_TEMPORARY: &str = "/feeds/.july.summary.json.r-july.1.tmp";

/// The last line of this file says that the run is published; what fails from there on fails nothing.
const JOURNAL: &str = "/feeds/july.journal.jsonl";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Killed,
    /// With this error.
    Fails(&'static str),
}

/// A system call of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Site {
    call: String,
    /// Which of the run's calls of this name it is, from 1.
    number: usize,
    /// The file it is about, or what else.
    about: String,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} number {}, of {}", self.call, self.number, self.about)
    }
}

/// What a run finds when it begins, and what happens to it.
#[derive(Clone, Copy)]
struct Scenario<'a> {
    name: &'static str,
    /// Where an earlier attempt at the run was killed.
    died_at: Option<&'a Site>,
    /// More words of the command.
    words: &'static [&'static str],
    /// Options of `strace`, whatever else is done to the run.
    strace: &'static [&'static str],
    /// The run is disturbed at calls of these names.
    calls: &'static [&'static str],
    faults: &'static [Fault],
}

impl Scenario<'_> {
    /// Makes a new world what the run is to find.
    fn prepare(&self, env: &Env) {
        env.write("june.csv", format!("{HEADER}\nDE-main,T0,1.00,EUR,2026-06-30\nDE-main,T1,1.00,EUR,2026-07-01\n"));
        env.ingest(&["june.csv", "--run-id", "r-june"]).check_silent();
        // New records, one twice; a rejected line; one of the run before; and more than one batch of claims.
        let rows = ["T1,1.00", "T2,1.00", "T3,x", "T2,1.00", "T4,1.00", "T4,1.00", "T5,1.00", "T6,1.00"];
        let july: String = rows.iter().map(|row| format!("DE-main,{row},EUR,2026-07-01\n")).collect();
        env.write("july.csv", format!("{HEADER}\n{july}"));
        if let Some(site) = self.died_at {
            self.disturb(env, site, Fault::Killed).unwrap();
        }
    }

    /// The command that is disturbed.
    fn command(&self) -> Vec<&'static str> {
        [COMMAND, self.words].concat()
    }

    /// Every site of the run, those of its calls the same each time.
    fn sites(&self, store: StoreKind) -> Vec<Site> {
        let env = Env::new(store);
        self.prepare(&env);
        env.keep();
        let sites = self.list(&env);
        env.restore();
        let again = self.list(&env);
        assert_eq!(self.wanted(&sites), self.wanted(&again), "{}: the calls are the same each time", self.name);
        sites
    }

    /// Those of `sites` at which the run is disturbed.
    fn wanted<'s>(&self, sites: &'s [Site]) -> Vec<&'s Site> {
        sites.iter().filter(|site| self.calls.contains(&site.call.as_str())).collect()
    }

    /// Runs the command under `strace` with `options`; returns how it ended, and the calls that were made.
    fn traced(&self, env: &Env, options: &[&str]) -> (Ran, String) {
        let strace = env.under_strace(&env.command(&self.command()), &[&["-y"], self.strace, options].concat());
        let ran = env.finish(strace, b"");
        let trace = std::fs::read(env.trace_path());
        let trace = trace.unwrap_or_else(|error| panic!("`strace` made no trace ({error}): {ran:?}"));
        (ran, env.told(&trace))
    }

    /// The sites of the command in this world.
    fn list(&self, env: &Env) -> Vec<Site> {
        let calls = CALLS.iter().chain(BEGINNINGS).map(|call| format!("?{call}")).collect::<Vec<_>>().join(",");
        let (ran, trace) = self.traced(env, &["-e", &format!("trace={calls}")]);
        assert_eq!(ran.code, NEEDS_PERSON, "traced: {ran:?}\n{trace}");
        let begins_another = |line: &&str| BEGINNINGS.iter().any(|call| line.starts_with(&format!("{call}(")));
        let begun = trace.lines().filter(begins_another).count();
        assert_eq!(begun, waiting_threads(&trace), "only one thread is traced:\n{trace}");
        sites_in(&trace)
    }

    /// Runs the command and disturbs it at `site`, which it must reach; says how it ended.
    fn disturb(&self, env: &Env, site: &Site, fault: Fault) -> Result<Ran, String> {
        let Site { call, number, .. } = site;
        let what = match fault {
            Fault::Killed => "signal=KILL".to_owned(),
            Fault::Fails(error) => format!("error={error}"),
        };
        let (ran, trace) = self.traced(
            env,
            &["-e", &format!("trace={call},?renameat2"), "-e", &format!("inject={call}:{what}:when={number}")],
        );
        let reached = sites_in(&trace).into_iter().find(|reached| (&reached.call, reached.number) == (call, *number));
        if reached.as_ref() != Some(site) {
            return Err(format!("it was not reached, but {reached:?}: {ran:?}\n{trace}"));
        }
        let is_documented = |code: i32| ExitCode::ALL.iter().any(|known| i32::from(known.number()) == code);
        match (fault, ran.code) {
            // `strace` ends as the run did.
            (Fault::Killed, None) if trace.contains("+++ killed by SIGKILL +++") => Ok(ran),
            (Fault::Fails(_), Some(code)) if trace.contains("(INJECTED)") && is_documented(code) && code != 1 => {
                Ok(ran)
            }
            (Fault::Killed | Fault::Fails(_), _) => Err(format!("it ended so: {ran:?}\n{trace}")),
        }
    }

    /// Repeats the command until the second pass is published, and compares both passes.
    fn check_repeated(&self, env: &Env, expected: &Files) -> Result<(), String> {
        for _ in 0..REPETITIONS_MAX {
            if env.path(LAST_FILE).exists() {
                break;
            }
            let repeated = env.run(&self.command());
            if repeated.code != NEEDS_PERSON {
                return Err(format!("repeated, it ended so: {repeated:?}"));
            }
        }
        let temporaries: Vec<_> = env.files().into_keys().filter(|name| name.ends_with(".tmp")).collect();
        if !temporaries.is_empty() {
            return Err(format!("repeated, it leaves {temporaries:?}"));
        }
        difference(&env.published(), expected).map_or(Ok(()), |difference| Err(format!("repeated: {difference}")))
    }

    /// Tries one case; says what is wrong.
    fn try_case(&self, env: &Env, site: &Site, fault: Fault, is_free: bool, expected: &Files) -> Result<(), String> {
        let ran = self.disturb(env, site, fault)?;
        let is_lasting = matches!(fault, Fault::Fails("EIO" | "ENOSPC"));
        if is_lasting && !is_free && ran.code == NEEDS_PERSON {
            return Err(format!("the failure was passed over: {ran:?}"));
        }
        let is_made_again = fault == Fault::Fails("EINTR") && ["read", "write"].contains(&site.call.as_str());
        if is_made_again && ran.code != NEEDS_PERSON {
            return Err(format!("a signal is no failure: {ran:?}"));
        }
        self.check_repeated(env, expected).map_err(|fault| format!("{fault}, after {ran:?}"))
    }
}

/// How many threads stand beside the one that does everything. They make no call of their own in a run as short as these:
/// one waits for signals, and where an attempt begins one waits for the time to renew its lease.
fn waiting_threads(trace: &str) -> usize {
    let is_beginning = |line: &str| line.starts_with("openat(") && line.contains(".journal.jsonl");
    1 + usize::from(trace.lines().any(is_beginning))
}

/// The sites in a trace: the calls of this world's files, of sockets, and of standard error.
fn sites_in(trace: &str) -> Vec<Site> {
    let mut numbers = BTreeMap::new();
    let mut sites = Vec::new();
    for (call, arguments) in trace.lines().filter_map(|line| line.split_once('(')) {
        let number = numbers.entry(call).or_insert(0);
        *number += 1;
        if let Some(about) = about(arguments) {
            sites.push(Site { call: call.to_owned(), number: *number, about });
        }
    }
    sites
}

/// What a call is about, under the same name in each world; none for libraries, which are loaded before `main`.
fn about(arguments: &str) -> Option<String> {
    let descriptor = arguments.split_once('<').filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()));
    let name = match descriptor {
        Some(("2", _)) => "standard error",
        Some((_, rest)) if rest.starts_with("socket:") => "a socket",
        Some((_, rest)) => rest.split('>').next()?.strip_prefix("[root]")?,
        None => {
            let path = arguments.split('"').nth(1)?;
            // A relative one is in the working folder, which is this world's.
            if path.starts_with('/') { None? } else { path.strip_prefix("[root]").unwrap_or(path) }
        }
    };
    let hashes = name.split(['.', '/']).filter(|part| is_hash(part));
    Some(hashes.fold(name.to_owned(), |name, hash| name.replace(hash, "#")))
}

/// Whether a part of a name depends on the world's own path, or on chance.
fn is_hash(part: &str) -> bool {
    part.len() >= 16 && part.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Tries every case of `scenario`; returns how many there were, and what was wrong with them.
fn try_all(store: StoreKind, scenario: &Scenario<'_>, sites: &[Site], expected: &Files) -> (usize, Vec<String>) {
    let published_at = sites.iter().rposition(|site| site.about == JOURNAL && site.call == "write").unwrap();
    // A connection that breaks is made anew.
    let is_free = |site: &Site| site.about == "a socket" || sites[published_at..].contains(site);
    let with_faults = |site| scenario.faults.iter().map(move |fault| (site, *fault));
    let cases: Vec<(&Site, Fault)> = scenario.wanted(sites).into_iter().flat_map(with_faults).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let env = Env::new(store);
        scenario.prepare(&env);
        env.keep();
        let (mut tried, mut faults) = (0, Vec::new());
        while let Some((site, fault)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            env.restore();
            let found = scenario.try_case(&env, site, *fault, is_free(site), expected);
            faults.extend(found.err().map(|found| format!("{}, {fault:?} at {site}: {found}", scenario.name)));
            tried += 1;
        }
        (tried, faults)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter().map(|worker| worker.join().unwrap());
        results.fold((0, Vec::new()), |(tried, faults), (more, found)| (tried + more, [faults, found].concat()))
    })
}

/// The files of two passes that nobody disturbed.
fn undisturbed(scenario: &Scenario<'_>, store: StoreKind) -> Files {
    let env = Env::new(store);
    scenario.prepare(&env);
    for _ in 0..2 {
        assert_eq!(env.run(&scenario.command()).code, NEEDS_PERSON);
    }
    env.published()
}

#[track_caller]
fn check(store: StoreKind, scenario: &Scenario<'_>, expected: &Files) {
    let sites = scenario.sites(store);
    let (tried, faults) = try_all(store, scenario, &sites, expected);
    let wanted = scenario.wanted(&sites).len();
    assert!(wanted > 0, "{}: no {:?} in {sites:#?}", scenario.name, scenario.calls);
    assert_eq!(tried, wanted * scenario.faults.len(), "every site was tried");
    assert!(faults.is_empty(), "{store:?}: {} of {tried} cases failed:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn a_run_that_is_disturbed_at_any_call_is_gone_on_with() {
    let version = Command::new("strace").arg("--version").output();
    assert!(version.is_ok_and(|version| version.status.success()), "`strace` does not start: install package strace");
    for store in STORES {
        // Answers to claims in several steps come together or one by one, as the server likes.
        let words = if *store == StoreKind::Embedded { SMALL_BATCHES } else { &[] };
        let new = Scenario { name: "a new run", died_at: None, words, strace: &[], calls: CALLS, faults: FAULTS };
        let expected = undisturbed(&new, *store);
        let sites = new.sites(*store);
        let died = |name, call| {
            let site = sites.iter().find(|site| site.call == call && site.about == SUMMARY_TEMPORARY);
            let site = site.unwrap_or_else(|| panic!("no {call} of the summary in {sites:#?}"));
            Scenario { name, died_at: Some(site), faults: &[Fault::Killed], ..new }
        };
        check(*store, &new, &expected);
        check(*store, &died("a run that died before its seal", "openat"), &expected);
        check(*store, &died("a run that died while it published", "renameat2"), &expected);
        let linking = Scenario { name: "a run without renames", strace: WITHOUT_RENAMES, calls: LINKS, ..new };
        check(*store, &linking, &expected);
        if *store == StoreKind::Redis {
            let name = "a run that claims in several steps";
            check(*store, &Scenario { name, words: SMALL_BATCHES, calls: &["sendto"], ..new }, &expected);
        }
    }
}
