//! Everything that can happen to two runs on one record, step by step: no record is lost, none is accepted twice.
//!
//! From each state every next thing is tried: a process takes a step, starts, dies before its call or with the call
//! still under way, a call arrives once more or late, a lease ends, a server takes over without what no replica has.
//! States that were seen are not looked at again, so the search ends. Where nothing more can happen, all commands are
//! repeated in peace, and then every record must be accepted exactly once.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use feeddedup::domain::{Claim, Decision, Digest, PostedDay, RunId, RunRecord, RunState, SourceHash};
use feeddedup::run::RunPlan;

use super::flaw::Flaw;
use super::replay::{Answer, Call, FeedRecord, Halt, Job, Next, next, run_to_end};
use super::world::{Caller, World};

/// States that the search must go through at least, all scenarios together.
const STATES_MIN: usize = 300_000;

/// States of one scenario after which something is wrong with it.
const STATES_MAX: usize = 30_000_000;

/// How often all commands are repeated until nothing is held any more.
const REPETITIONS_MAX: u32 = 6;

const HOSTS: [&str; 2] = ["h1", "h2"];

/// A command that may be given some times.
struct Command {
    run: RunId,
    job_on: [Job; 2],
    starts_max: u8,
    /// How many of the hosts it may be given on.
    hosts: usize,
}

/// What may happen in a search.
struct Scenario {
    name: &'static str,
    commands: Vec<Command>,
    shards: usize,
    crashes_max: u8,
    failovers_max: u8,
    /// Calls that arrive late, or once more.
    ghosts_max: u8,
}

fn run_id(run: &str) -> RunId {
    RunId::parse(run).unwrap()
}

fn record() -> SourceHash {
    SourceHash::of(b"the record")
}

fn ingest(run: &str, host: &str, is_diverted: bool) -> Job {
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
    let claim = Claim { source_hash: record(), posted_day: PostedDay(1), row: 1 };
    let records = vec![FeedRecord { claim, is_diverted }];
    Job::Ingest { plan: Box::new(plan), records, batch: 1, outputs: 1, is_gated: false, is_terse: true }
}

fn command(run: &str, starts_max: u8, hosts: usize) -> Command {
    Command { run: run_id(run), job_on: HOSTS.map(|host| ingest(run, host, false)), starts_max, hosts }
}

/// Every search; the long ones let two attempts of one run live at the same time wherever they can.
fn scenarios(is_long: bool) -> Vec<Scenario> {
    let none = |name, commands| Scenario { name, commands, shards: 1, crashes_max: 1, failovers_max: 0, ghosts_max: 0 };
    let diverting = Command { job_on: HOSTS.map(|host| ingest("A", host, true)), ..command("A", 1, 1) };
    let revert = Command { run: run_id("A"), job_on: HOSTS.map(|_| Job::Revert(run_id("A"))), starts_max: 1, hosts: 1 };
    let two = |starts_max, hosts| vec![command("A", starts_max, hosts), command("B", 1, 1)];
    // What may happen at any time multiplies the states, so that a second attempt at a time is for the long search.
    let with_faults = || if is_long { two(2, 2) } else { two(1, 1) };
    let mut scenarios = vec![
        none("a diverted record", vec![diverting, command("B", 1, 1)]),
        none("a second attempt", two(2, if is_long { 2 } else { 1 })),
        Scenario { ghosts_max: 1, ..none("a late call", with_faults()) },
        none("a run taken back", vec![command("A", 1, 1), command("B", 1, 1), revert]),
    ];
    if is_long {
        // Every write that may be lost is a way on of its own; otherwise the dice look after these.
        scenarios.extend([
            Scenario { failovers_max: 1, ..none("one server fails", two(1, 1)) },
            Scenario { failovers_max: 1, shards: 2, ..none("one of two servers fails", two(1, 1)) },
        ]);
    }
    scenarios
}

/// A process that waits for the answer to its next call.
#[derive(Debug, Clone)]
struct Process {
    command: usize,
    host: usize,
    answers: Vec<Answer>,
    call: Box<Call>,
    last: Option<Box<Call>>,
}

impl Hash for Process {
    /// All else follows from the answers.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.command, self.host, &self.answers).hash(state);
    }
}

#[derive(Debug, Clone, Hash)]
struct State {
    world: World,
    processes: Vec<Process>,
    starts: Vec<u8>,
    crashes: u8,
    failovers: u8,
    ghosts: u8,
    /// A call under way that nobody waits for, of which command on which host.
    in_flight: Option<(Box<Call>, usize, usize)>,
    /// Whether a run is being taken back, or was left halfway.
    is_reverting: bool,
}

/// What happened, for the story of a violation.
type Story = Option<Arc<(String, Chapter)>>;

#[derive(Debug, Clone)]
struct Chapter(Story);

/// A record that was lost or accepted twice, and how it came to that.
struct Violation {
    what: String,
    story: Vec<String>,
}

struct Search<'a> {
    scenario: &'a Scenario,
    flaw: Option<Flaw>,
    seen: HashSet<u128>,
    recovered: HashSet<u128>,
    queue: VecDeque<(State, Story)>,
}

fn fingerprint(value: &impl Hash) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        value.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

impl<'a> Search<'a> {
    fn new(scenario: &'a Scenario, flaw: Option<Flaw>) -> Self {
        Self { scenario, flaw, seen: HashSet::new(), recovered: HashSet::new(), queue: VecDeque::new() }
    }

    /// Looks at every state; returns how many there are, or the first violation.
    fn run(mut self) -> Result<usize, Violation> {
        let first = State {
            world: World::new(self.scenario.shards),
            processes: Vec::new(),
            starts: vec![0; self.scenario.commands.len()],
            crashes: 0,
            failovers: 0,
            ghosts: 0,
            in_flight: None,
            is_reverting: false,
        };
        self.reach(first, &None, String::new())?;
        while let Some((state, story)) = self.queue.pop_front() {
            self.follow(&state, &story)?;
            assert!(self.seen.len() < STATES_MAX, "{}: too many states", self.scenario.name);
        }
        Ok(self.seen.len())
    }

    /// Notes a state that was reached by `what`, unless it was seen before.
    fn reach(&mut self, mut state: State, story: &Story, what: String) -> Result<(), Violation> {
        self.settle(&mut state);
        if !self.seen.insert(fingerprint(&state)) {
            return Ok(());
        }
        let story = Some(Arc::new((what, Chapter(story.clone()))));
        if let Some(what) = state.world.wrong_with(&record(), state.is_reverting) {
            return Err(Violation { what, story: told(&story) });
        }
        self.queue.push_back((state, story));
        Ok(())
    }

    /// Makes all calls that nobody else can notice, and that notice nobody: in whatever order they come, the same follows.
    fn settle(&self, state: &mut State) {
        let is_one_history = state.failovers == self.scenario.failovers_max;
        if is_one_history {
            state.world.shards.iter_mut().for_each(|shard| shard.unconfirmed.clear());
        }
        let is_private = |call: &Call| match call {
            Call::Write(..) | Call::IsWaiting(..) => true,
            Call::Confirm | Call::Lineage => is_one_history,
            _ => false,
        };
        while let Some(index) = state.processes.iter().position(|process| is_private(&process.call)) {
            let Process { command, host, mut answers, call, last } = state.processes.remove(index);
            answers.push(self.perform(&mut state.world, &call, command, host, last.as_deref()));
            self.continue_with(state, command, host, answers, Some(call));
        }
    }

    fn follow(&mut self, state: &State, story: &Story) -> Result<(), Violation> {
        self.start_processes(state, story)?;
        for index in 0..state.processes.len() {
            self.step(state, story, index)?;
            self.crash(state, story, index)?;
        }
        self.deliver(state, story)?;
        self.end_leases(state, story)?;
        self.fail_over(state, story)?;
        let is_quiet = state.processes.is_empty() && state.in_flight.is_none();
        if is_quiet && self.recovered.insert(fingerprint(&(&state.world, state.is_reverting))) {
            self.recover(state, story)?;
        }
        Ok(())
    }

    fn start_processes(&mut self, state: &State, story: &Story) -> Result<(), Violation> {
        for (index, command) in self.scenario.commands.iter().enumerate() {
            for (host, name) in HOSTS.iter().enumerate().take(command.hosts) {
                // The kernel lock on a feed keeps a second process of one host away.
                let is_locked = state.processes.iter().any(|other| (other.command, other.host) == (index, host));
                // The hosts are alike until one of them was used.
                let is_mirrored = host > 0 && state.starts[index] == 0;
                if is_locked || is_mirrored || state.starts[index] == command.starts_max {
                    continue;
                }
                let mut reached = state.clone();
                reached.starts[index] += 1;
                reached.is_reverting |= matches!(command.job_on[host], Job::Revert(_));
                self.continue_with(&mut reached, index, host, Vec::new(), None);
                self.reach(reached, story, format!("{} starts on {name}", command.run))?;
            }
        }
        Ok(())
    }

    /// Adds the process of `command` on `host` that has had `answers`, or what its end leaves.
    fn continue_with(
        &self,
        state: &mut State,
        command: usize,
        host: usize,
        answers: Vec<Answer>,
        last: Option<Box<Call>>,
    ) {
        let job = &self.scenario.commands[command].job_on[host];
        match next(job, &answers) {
            Next::Call(call) => state.processes.push(Process { command, host, answers, call, last }),
            Next::TakenBack(dependents) => {
                state.world.hand_out(&self.scenario.commands[command].run, &dependents);
                state.is_reverting = false;
            }
            Next::Halted(_) if matches!(job, Job::Revert(_)) => {
                let run = &self.scenario.commands[command].run;
                state.is_reverting = matches!(state.world.state_of(run), Some((RunState::Reverted, _)));
            }
            Next::Published(_) | Next::Halted(_) => {}
        }
        state.processes.sort_by_key(|process| (process.command, process.host));
    }

    fn perform(&self, world: &mut World, call: &Call, command: usize, host: usize, last: Option<&Call>) -> Answer {
        let run = &self.scenario.commands[command].run;
        let folder = format!("{run} on {}", HOSTS[host]);
        world.perform(call, &Caller { run, folder: &folder, last, outputs: 1 }, self.flaw)
    }

    fn step(&mut self, state: &State, story: &Story, index: usize) -> Result<(), Violation> {
        let mut reached = state.clone();
        let Process { command, host, mut answers, call, last } = reached.processes.remove(index);
        let answer = self.perform(&mut reached.world, &call, command, host, last.as_deref());
        let what = format!("{}: {} -> {answer:?}", self.name(command, host), told_call(&call));
        answers.push(answer);
        self.continue_with(&mut reached, command, host, answers, Some(call.clone()));
        if may_come_again(&call) && state.ghosts < self.scenario.ghosts_max && state.in_flight.is_none() {
            let mut again = reached.clone();
            again.ghosts += 1;
            again.in_flight = Some((call, command, host));
            self.reach(again, story, format!("{what}, which will come once more"))?;
        }
        self.reach(reached, story, what)
    }

    fn crash(&mut self, state: &State, story: &Story, index: usize) -> Result<(), Violation> {
        if state.crashes == self.scenario.crashes_max {
            return Ok(());
        }
        let mut reached = state.clone();
        reached.crashes += 1;
        let Process { command, host, call, .. } = reached.processes.remove(index);
        let what = format!("{} dies", self.name(command, host));
        if may_come_again(&call) && state.ghosts < self.scenario.ghosts_max && state.in_flight.is_none() {
            let mut late = reached.clone();
            late.ghosts += 1;
            late.in_flight = Some((call.clone(), command, host));
            self.reach(late, story, format!("{what} with its call under way: {}", told_call(&call)))?;
        }
        self.reach(reached, story, what)
    }

    fn deliver(&mut self, state: &State, story: &Story) -> Result<(), Violation> {
        let mut reached = state.clone();
        let Some((call, command, host)) = reached.in_flight.take() else { return Ok(()) };
        self.perform(&mut reached.world, &call, command, host, None);
        self.reach(reached, story, format!("a late call arrives: {}", told_call(&call)))
    }

    fn end_leases(&mut self, state: &State, story: &Story) -> Result<(), Violation> {
        for run in state.world.runs().runs.keys() {
            let is_running = state.world.runs().leases.get(run).is_some_and(|end| !end.is_zero());
            let can_matter = matches!(
                state.world.state_of(run),
                Some((RunState::Open | RunState::Sealed | RunState::Publishing, _))
            );
            if is_running && can_matter {
                let mut reached = state.clone();
                reached.world.expire(run);
                self.reach(reached, story, format!("the lease of {run} ends"))?;
            }
        }
        Ok(())
    }

    fn fail_over(&mut self, state: &State, story: &Story) -> Result<(), Violation> {
        if state.failovers == self.scenario.failovers_max {
            return Ok(());
        }
        for (index, shard) in state.world.shards.iter().enumerate() {
            for kept in 0..=shard.unconfirmed.len() {
                let mut reached = state.clone();
                reached.failovers += 1;
                reached.world.fail_over(index, kept);
                let lost = shard.unconfirmed.len() - kept;
                self.reach(reached, story, format!("server {index} fails over and {lost} writes are lost"))?;
            }
        }
        Ok(())
    }

    /// Repeats all commands in peace; then the record must be accepted exactly once.
    fn recover(&self, state: &State, story: &Story) -> Result<(), Violation> {
        let mut world = state.world.clone();
        let mut is_reverting = state.is_reverting;
        let violation = |what: String| Violation { what, story: told(story) };
        let mut open = true;
        for _ in 0..REPETITIONS_MAX {
            open = false;
            for command in 0..self.scenario.commands.len() {
                let is_revert = matches!(self.scenario.commands[command].job_on[0], Job::Revert(_));
                if is_revert && !is_reverting {
                    continue;
                }
                match self.run_in_peace(&mut world, command) {
                    Next::Published(record) => open |= record.counts[Decision::Held.index()] > 0,
                    Next::TakenBack(dependents) => {
                        world.hand_out(&self.scenario.commands[command].run, &dependents);
                        is_reverting = false;
                        // What it had is free: the commands before it are repeated.
                        open = true;
                    }
                    // Whoever needs the run that is taken back is repeated first.
                    Next::Halted(_) if is_revert => open = true,
                    Next::Halted(halt) => return Err(violation(format!("stuck: {halt:?}"))),
                    Next::Call(_) => unreachable!("a process in peace comes to its end"),
                }
            }
            if let Some(what) = world.wrong_with(&record(), is_reverting) {
                return Err(violation(format!("{what}, when all commands are repeated")));
            }
            if !open {
                break;
            }
        }
        let accepted = world.accepted(&record()).len();
        match (open, accepted) {
            (false, 1) => Ok(()),
            (true, _) => Err(violation("held for good".to_owned())),
            (false, _) => Err(violation(format!("accepted {accepted} times when all commands are repeated"))),
        }
    }

    /// Runs a command to its end, on the host where it can go on.
    fn run_in_peace(&self, world: &mut World, command: usize) -> Next {
        let mut ended = Next::Halted(Halt::Failed);
        for host in 0..HOSTS.len() {
            world.expire_all();
            let job = &self.scenario.commands[command].job_on[host];
            ended = run_to_end(job, |call, last| self.perform(world, call, command, host, last));
            if !ended.is_elsewhere() {
                break;
            }
        }
        ended
    }

    fn name(&self, command: usize, host: usize) -> String {
        let Command { run, job_on, .. } = &self.scenario.commands[command];
        match job_on[host] {
            Job::Ingest { .. } => format!("{run} on {}", HOSTS[host]),
            Job::Revert(_) => format!("revert {run}"),
        }
    }
}

/// Whether a call changes the store, so that it matters when it arrives.
fn may_come_again(call: &Call) -> bool {
    matches!(call, Call::Claim(..) | Call::Adopt(_) | Call::WriteRun(..) | Call::Release(..) | Call::ReleaseRun(_))
}

fn told_call(call: &Call) -> String {
    match call {
        Call::WriteRun(_, record, _) => {
            let RunRecord { run, state, epoch, .. } = &**record;
            format!("write {run} as {state:?} in epoch {epoch}")
        }
        Call::Claim(bid, _) => format!("claim for {} in epoch {}", bid.run, bid.epoch),
        Call::RunRecord(run) => format!("read {run}"),
        other => format!("{other:?}"),
    }
}

fn told(story: &Story) -> Vec<String> {
    let mut lines = Vec::new();
    let mut at = story.clone();
    while let Some(chapter) = at {
        lines.push(chapter.0.chars().take(400).collect());
        at = chapter.1.0.clone();
    }
    lines.reverse();
    lines
}

fn is_long() -> bool {
    std::env::var_os("FEEDS_LONG").is_some()
}

#[test]
fn no_record_is_lost_or_accepted_twice_whatever_happens_to_two_runs() {
    let scenarios = scenarios(is_long());
    let (next, states) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let search = || {
            while let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
                match Search::new(scenario, None).run() {
                    Ok(found) => {
                        tell(scenario.name, found);
                        states.fetch_add(found, Ordering::Relaxed);
                    }
                    Err(Violation { what, story }) => panic!("{}: {what}\n{}", scenario.name, story.join("\n")),
                }
            }
        };
        scope.spawn(search);
        scope.spawn(search);
    });
    let states = states.into_inner();
    assert!(states >= STATES_MIN, "only {states} states");
}

#[test]
fn a_rule_that_is_left_out_loses_a_record_or_accepts_it_twice() {
    let scenarios = scenarios(false);
    let smallest = scenarios.first().expect("there are scenarios");
    for flaw in Flaw::OF_MODEL {
        match Search::new(smallest, Some(flaw)).run() {
            Err(Violation { what, story }) => tell_flaw(flaw, smallest.name, &what, story.len()),
            Ok(states) => panic!("{flaw:?} is not found in {states} states"),
        }
    }
}

#[expect(clippy::print_stderr, reason = "shown with --nocapture, and when the test fails")]
fn tell(name: &str, states: usize) {
    eprintln!("{name}: {states} states");
}

#[expect(clippy::print_stderr, reason = "shown with --nocapture, and when the test fails")]
fn tell_flaw(flaw: Flaw, name: &str, what: &str, steps: usize) {
    eprintln!("{flaw:?} in `{name}`, after {steps} steps: {what}");
}
