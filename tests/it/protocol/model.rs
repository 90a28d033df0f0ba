//! Everything that can happen to two runs on one record, step by step: no record is lost, none is accepted twice.
//!
//! From each state every next thing is tried: a process takes a step, starts, dies before its call or with the call
//! still under way, a call arrives once more or late, a lease ends, a server takes over without what no replica has.
//! States that were seen are not looked at again, so the search ends. Where nothing more can happen, all commands are
//! repeated in peace, and then every record must be accepted exactly once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use feeddedup::domain::{Canonicalizer, Claim, ClaimScope, Digest, IdentityHash, RawRecord, RunId};
use feeddedup::run::RunPlan;
use feeddedup::store::MemoryLayout;

use super::flaw::Flaw;
use super::replay::Job;
use super::search::{Scenario, Search, Violation};
use super::table::{Command, HOSTS};
use crate::env::is_long;

/// States that the search must go through at least, all scenarios together.
const STATES_MIN: usize = 300_000;

/// Histories of one process that are followed besides its first, to see that they may be taken for one another.
const OTHERS_MAX: usize = 2;
const OTHERS_MAX_LONG: usize = 20;

fn run_id(run: &str) -> RunId {
    RunId::parse(run).unwrap()
}

/// The one payment of every search, with this amount.
fn claim(amount: &str) -> Claim {
    let raw = RawRecord { account_id: "A", bank_txn_id: "1", amount, currency: "EUR", posted_at: "2026-07-15" };
    Canonicalizer::default().form(&raw).unwrap().claim(ClaimScope::Payment, 1)
}

fn payment() -> IdentityHash {
    claim("1").identity
}

fn ingest(run: &str, host: &str, amount: &str) -> Job {
    let plan = RunPlan {
        feed: Digest::of(run.as_bytes()),
        meaning: Digest::of(b""),
        feed_name: String::new(),
        name: Some(run_id(run)),
        key_prefix: String::new(),
        host: host.into(),
        pid: 1,
        lock: host.into(),
        folder: format!("{run} on {host}"),
        opened_at: "2026-07-15T09:03:00Z".into(),
        lease: Duration::from_secs(60),
    };
    let records = vec![claim(amount)];
    Job::Ingest { plan: Box::new(plan), records, batch: 1, outputs: 1, is_gated: false, is_terse: true }
}

fn command(run: &str, starts_max: u8, hosts: usize) -> Command {
    Command { run: run_id(run), job_on: HOSTS.map(|host| ingest(run, host, "1")), starts_max, hosts }
}

/// The run A, which has the payment with another amount, and B.
fn conflicting() -> Vec<Command> {
    vec![Command { job_on: HOSTS.map(|host| ingest("A", host, "2")), ..command("A", 1, 1) }, command("B", 1, 1)]
}

/// The runs A and B, A being started up to so many times on so many hosts.
fn two(starts_max: u8, hosts: usize) -> Vec<Command> {
    vec![command("A", starts_max, hosts), command("B", 1, 1)]
}

/// The runs A and B, and an operator who takes A back.
fn reverting() -> Vec<Command> {
    let revert = Command { run: run_id("A"), job_on: HOSTS.map(|_| Job::Revert(run_id("A"))), starts_max: 1, hosts: 1 };
    two(1, 1).into_iter().chain([revert]).collect()
}

fn scenario(name: &'static str, commands: Vec<Command>) -> Scenario {
    Scenario {
        name,
        commands,
        shards: 1,
        layout: MemoryLayout::Shared,
        crashes_max: 1,
        failovers_max: 0,
        ghosts_max: 0,
    }
}

/// Every search; the long ones let more happen at the same time.
fn scenarios(is_long: bool) -> Vec<Scenario> {
    let most = u8::from(is_long);
    vec![
        Scenario {
            failovers_max: 1,
            shards: 2,
            crashes_max: most,
            ..scenario("a run taken back, one of two servers fails", reverting())
        },
        Scenario { failovers_max: 1, crashes_max: most, ..scenario("a run taken back, one server fails", reverting()) },
        scenario("a second attempt", two(2, 2)),
        Scenario { failovers_max: 1, ..scenario("two contents, one server fails", conflicting()) },
        Scenario { failovers_max: 1, shards: 2, ..scenario("one of two servers fails", two(1, 1)) },
        Scenario { failovers_max: 1, ..scenario("one server fails", two(1, 1)) },
        Scenario { ghosts_max: 1, ..scenario("a late call", two(1 + most, 1 + usize::from(most))) },
        Scenario { ghosts_max: 1, ..scenario("a run taken back, a late call", reverting()) },
        Scenario { ghosts_max: 1, ..scenario("two contents, a late call", conflicting()) },
        Scenario {
            failovers_max: 1,
            layout: MemoryLayout::Packed,
            ..scenario("two contents in a packed store, one server fails", conflicting())
        },
    ]
}

/// Where the counterexample of each broken rule is found.
fn scenario_of(flaw: Flaw) -> Scenario {
    match flaw {
        Flaw::NoFence | Flaw::NoSealCheck | Flaw::ConflictClaimsLeft => scenario("two contents", conflicting()),
        Flaw::SuppressOnOpen | Flaw::SuppressOnSealed | Flaw::NoReassert | Flaw::NoPublishingState => {
            scenario("two runs", two(1, 1))
        }
        Flaw::BlindTakeover => {
            let commands = conflicting().into_iter().take(1).chain([command("B", 2, 1)]).collect();
            scenario("two contents, a second attempt", commands)
        }
        Flaw::LostAnswersForgotten => Scenario { ghosts_max: 1, ..scenario("a run taken back", reverting()) },
        Flaw::NoEpochInMarker => scenario("a second attempt", two(2, 1)),
        Flaw::NoWaitOnFence | Flaw::NoWaitOnSeal | Flaw::NoLineageCheck => {
            Scenario { failovers_max: 1, shards: 2, ..scenario("one of two servers fails", two(1, 1)) }
        }
        Flaw::UnsyncedTemporaries | Flaw::UnsyncedNames | Flaw::NoIntactCheck => {
            unreachable!("the files of the search are never lost, and its claims are never dropped")
        }
    }
}

/// Lets two threads go through `work`, each taking what comes next.
fn on_two_threads<T: Sync>(work: &[T], act: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let take = || {
        while let Some(item) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            act(item);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(take);
        take();
    });
}

#[test]
fn no_record_is_lost_or_accepted_twice_whatever_happens_to_two_runs() {
    let states = AtomicUsize::new(0);
    let others_max = if is_long() { OTHERS_MAX_LONG } else { OTHERS_MAX };
    on_two_threads(&scenarios(is_long()), |scenario| match Search::new(scenario, payment(), None, others_max).run() {
        Ok(found) => {
            tell(&format!("{}: {found} states", scenario.name));
            states.fetch_add(found, Ordering::Relaxed);
        }
        Err(Violation { what, story }) => panic!("{}: {what}\n{}", scenario.name, story.join("\n")),
    });
    let states = states.into_inner();
    assert!(states >= STATES_MIN, "only {states} states");
}

#[test]
fn a_rule_that_is_left_out_loses_a_record_or_accepts_it_twice() {
    on_two_threads(&Flaw::OF_MODEL, |flaw| {
        let scenario = scenario_of(*flaw);
        match Search::new(&scenario, payment(), Some(*flaw), OTHERS_MAX).run() {
            Err(Violation { what, story }) => {
                tell(&format!("{flaw:?} in `{}`, after {} steps: {what}", scenario.name, story.len()));
            }
            Ok(states) => panic!("{flaw:?} is not found in {states} states"),
        }
    });
}

#[expect(clippy::print_stderr, reason = "shown with --nocapture, and when the test fails")]
fn tell(text: &str) {
    eprintln!("{text}");
}
