//! Larger worlds than a search can go through: several feeds that overlap, every kind of fault, by a seeded dice.
//!
//! `FEEDS_SEED=n` repeats one seed and tells its story; `FEEDS_LONG=1` throws a million.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use feeddedup::domain::{
    Canonicalizer, Claim, ClaimScope, Content, Decision, Digest, IdentityHash, Marker, RawRecord, RunId,
};
use feeddedup::run::RunPlan;
use feeddedup::store::{MemoryLayout, Payment};

use super::flaw::Flaw;
use super::replay::{Answer, Call, Halt, Job, Next, next, run_to_end};
use super::world::{Caller, World};
use crate::env::is_long;

const SEEDS: u64 = 10_000;
const SEEDS_LONG: u64 = 1_000_000;

/// Seeds within which a planted bug must be found.
const SEEDS_FOR_FLAW: u64 = 1_000;

/// Things that happen before there is peace.
const EVENTS: u32 = 160;

/// How often all commands are repeated in peace until nothing is held any more.
const REPETITIONS_MAX: u32 = 10;

const OUTPUTS: usize = 3;
const HOSTS: [&str; 2] = ["h1", "h2"];

/// A small generator that needs no state but a number: the same seed is the same world on every machine.
struct Dice(u64);

impl Dice {
    fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.throw() % end as u64).unwrap()
    }

    fn is(&mut self, percent: u64) -> bool {
        self.throw() % 100 < percent
    }
}

/// A process that waits for the answer to its next call.
struct Process {
    command: usize,
    host: usize,
    job: Job,
    answers: Vec<Answer>,
    call: Box<Call>,
    last: Option<Box<Call>>,
    /// Claims that the server had dropped when the process began.
    evictions: u32,
}

/// A feed that is ingested, or a run that is taken back.
enum Command {
    Ingest { run: RunId, records: Vec<Claim> },
    Revert { run: RunId },
}

struct Simulation {
    dice: Dice,
    flaw: Option<Flaw>,
    world: World,
    commands: Vec<Command>,
    processes: Vec<Process>,
    /// Calls under way that nobody waits for.
    ghosts: Vec<(Box<Call>, usize, usize)>,
    payments: BTreeSet<IdentityHash>,
    /// What the server dropped, until the operator puts it back.
    dropped: Option<Dropped>,
    evictions: u32,
    /// Runs that an operator has begun to take back and not ended with.
    reverting: BTreeSet<RunId>,
    story: Option<Vec<String>>,
}

/// A key of the server with what stood there.
enum Dropped {
    /// A source hash, and what stood for its payment beside it.
    Content((IdentityHash, Content), Marker, Option<Payment>),
    Payment(IdentityHash, Payment),
}

/// The claim of a payment's version in a row.
fn claim(payment: usize, version: usize, row: usize) -> Claim {
    let (bank_txn_id, amount) = (payment.to_string(), (version + 1).to_string());
    let raw = RawRecord {
        account_id: "A",
        bank_txn_id: &bank_txn_id,
        amount: &amount,
        currency: "EUR",
        posted_at: "2026-07-15",
    };
    let row = u64::try_from(row).unwrap() + 1;
    Canonicalizer::default().form(&raw).unwrap().claim(ClaimScope::Payment, row)
}

fn ingest(run: &RunId, records: &[Claim], host: usize, batch: usize, is_gated: bool) -> Job {
    let plan = RunPlan {
        feed: Digest::of(run.as_str().as_bytes()),
        meaning: Digest::of(b""),
        feed_name: String::new(),
        name: Some(run.clone()),
        key_prefix: String::new(),
        host: HOSTS[host].into(),
        pid: 1,
        lock: HOSTS[host].into(),
        folder: HOSTS[host].into(),
        opened_at: "2026-07-15T09:03:00Z".into(),
        lease: Duration::from_secs(60),
    };
    let records = records.to_vec();
    Job::Ingest { plan: Box::new(plan), records, batch, outputs: OUTPUTS, is_gated, is_terse: false }
}

impl Simulation {
    fn new(seed: u64, flaw: Option<Flaw>, is_told: bool) -> Self {
        let mut dice = Dice(seed);
        let (feeds, records) = (2 + dice.below(2), 2 + dice.below(3));
        let commands: Vec<Command> = (0..feeds).map(|feed| feed_of(feed, records, &mut dice)).collect();
        let payments = commands.iter().flat_map(payments_of).collect();
        let shards = 1 + dice.below(2);
        let layout = if dice.is(50) { MemoryLayout::Shared } else { MemoryLayout::Packed };
        Self {
            dice,
            flaw,
            world: World::new(shards, layout),
            commands,
            processes: Vec::new(),
            ghosts: Vec::new(),
            payments,
            dropped: None,
            evictions: 0,
            reverting: BTreeSet::new(),
            story: is_told.then(Vec::new),
        }
    }

    /// Lets things happen, then repeats all commands in peace; says what went wrong.
    fn run(&mut self) -> Result<(), String> {
        for _ in 0..EVENTS {
            self.happen();
            self.check()?;
        }
        self.end_chaos()?;
        self.recover()
    }

    fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(what());
        }
    }

    fn happen(&mut self) {
        match self.dice.below(100) {
            0..12 => self.start(),
            12..15 => self.expire_a_lease(),
            15..17 => self.deliver_a_ghost(),
            17 => self.fail_over(),
            18 => self.cut_power(),
            19 => self.evict(),
            _ => self.step(),
        }
        self.put_back();
    }

    fn start(&mut self) {
        // Who sees that claims were dropped begins nothing before they are back.
        if self.dropped.is_some() {
            return;
        }
        let runs: Vec<RunId> = self.world.runs().runs.keys().cloned().collect();
        if !runs.is_empty() && self.dice.is(6) {
            let run = runs[self.dice.below(runs.len())].clone();
            if self.reverting.insert(run.clone()) {
                self.commands.push(Command::Revert { run });
                self.begin(self.commands.len() - 1, 0, false);
            }
            return;
        }
        let (command, host) = (self.dice.below(self.commands.len()), self.dice.below(HOSTS.len()));
        let is_gated = self.dice.is(5);
        if let Command::Revert { run } = &self.commands[command] {
            self.reverting.insert(run.clone());
        }
        self.begin(command, host, is_gated);
    }

    fn begin(&mut self, command: usize, host: usize, is_gated: bool) {
        // The kernel lock on a feed keeps a second process of one host away.
        if self.processes.iter().any(|other| (other.command, other.host) == (command, host)) {
            return;
        }
        let job = self.job(command, host, is_gated);
        self.tell(|| format!("command {command} starts on {}", HOSTS[host]));
        self.continue_with(command, host, job, Vec::new(), None, self.evictions);
    }

    fn job(&mut self, command: usize, host: usize, is_gated: bool) -> Job {
        let batch = 1 + self.dice.below(3);
        match &self.commands[command] {
            Command::Ingest { run, records } => ingest(run, records, host, batch, is_gated),
            Command::Revert { run } => Job::Revert(run.clone()),
        }
    }

    fn continue_with(
        &mut self,
        command: usize,
        host: usize,
        job: Job,
        answers: Vec<Answer>,
        last: Option<Box<Call>>,
        evictions: u32,
    ) {
        match next(&job, &answers) {
            Next::Call(call) => {
                self.processes.push(Process { command, host, job, answers, call, last, evictions });
            }
            ended => {
                self.tell(|| {
                    format!("command {command} on {} ends: {ended:?}", HOSTS[host]).chars().take(300).collect()
                });
                self.end(command, &ended);
            }
        }
    }

    fn end(&mut self, command: usize, ended: &Next) {
        let Command::Revert { run } = &self.commands[command] else { return };
        match ended {
            Next::TakenBack(dependents) => {
                self.world.hand_out(run, dependents);
                self.reverting.remove(run);
            }
            Next::Halted(_) if !self.world.reverted.contains(run) && !self.is_being_reverted(run) => {
                self.reverting.remove(run);
            }
            Next::Halted(_) | Next::Published(_) | Next::Call(_) => {}
        }
    }

    /// Whether a process takes `run` back, by this command or by another one that was given for it.
    fn is_being_reverted(&self, run: &RunId) -> bool {
        let is_meant = |process: &Process| matches!(&self.commands[process.command], Command::Revert { run: reverted } if reverted == run);
        self.processes.iter().any(is_meant)
    }

    fn perform(&mut self, call: &Call, command: usize, host: usize, last: Option<&Call>, evictions: u32) -> Answer {
        let (Command::Ingest { run, .. } | Command::Revert { run }) = &self.commands[command];
        if *call == Call::CheckIntact && evictions != self.evictions && self.flaw != Some(Flaw::NoIntactCheck) {
            return Answer::Failed;
        }
        let caller = Caller { run, folder: HOSTS[host], last, outputs: OUTPUTS };
        self.world.perform(call, &caller, self.flaw)
    }

    fn step(&mut self) {
        if self.processes.is_empty() {
            return;
        }
        let index = self.dice.below(self.processes.len());
        let fault = self.dice.below(100);
        let Process { command, host, job, mut answers, call, last, evictions } = self.processes.swap_remove(index);
        self.tell(|| format!("command {command} on {}: {call:?}", HOSTS[host]).chars().take(300).collect());
        match fault {
            // It dies before the call, or with the call under way, or right behind it.
            0 => return,
            1 => {
                self.ghosts.push((call, command, host));
                return;
            }
            2 => {
                self.perform(&call, command, host, last.as_deref(), evictions);
                return;
            }
            // The answer was lost, and the call is made again; the first one may arrive late.
            3 => self.ghosts.push((call.clone(), command, host)),
            4 => {
                self.perform(&call, command, host, last.as_deref(), evictions);
            }
            _ => {}
        }
        let answer = match fault {
            // The store or the disk fails, before or behind the call.
            5 => Answer::Failed,
            6 => {
                self.perform(&call, command, host, last.as_deref(), evictions);
                Answer::Failed
            }
            3 | 4 => self.perform(&call, command, host, last.as_deref(), evictions).asked_again(self.flaw),
            _ => self.perform(&call, command, host, last.as_deref(), evictions),
        };
        self.tell(|| format!("    -> {answer:?}").chars().take(300).collect());
        answers.push(answer);
        self.continue_with(command, host, job, answers, Some(call), evictions);
    }

    fn deliver_a_ghost(&mut self) {
        if !self.ghosts.is_empty() {
            let index = self.dice.below(self.ghosts.len());
            let (call, command, host) = self.ghosts.swap_remove(index);
            // A call to the disk does not outlive its process.
            let is_of_store = matches!(
                *call,
                Call::Claim(..)
                    | Call::Adopt(_)
                    | Call::WriteRun(..)
                    | Call::Release(..)
                    | Call::ReleaseRun(_)
                    | Call::RenewLease(..)
            );
            if is_of_store {
                self.tell(|| format!("late: {call:?}").chars().take(300).collect());
                self.perform(&call, command, host, None, self.evictions);
                // Who gave a command that takes effect after all finds that, and repeats it.
                if let Command::Revert { run } = &self.commands[command]
                    && self.world.reverted.contains(run)
                {
                    self.reverting.insert(run.clone());
                }
            }
        }
    }

    fn expire_a_lease(&mut self) {
        let runs: Vec<RunId> = self.world.runs().leases.keys().cloned().collect();
        if !runs.is_empty() {
            let run = runs[self.dice.below(runs.len())].clone();
            self.tell(|| format!("the lease of {run} ends"));
            self.world.expire(&run);
        }
    }

    fn fail_over(&mut self) {
        // What was dropped for lack of room would be lost for good.
        if self.world.failovers < 2 && self.dropped.is_none() {
            let shard = self.dice.below(self.world.shards.len());
            let kept = self.dice.below(self.world.shards[shard].unconfirmed.len() + 1);
            self.tell(|| format!("server {shard} fails over, from write {kept} on"));
            self.world.fail_over(shard, kept);
        }
    }

    fn cut_power(&mut self) {
        let host = self.dice.below(HOSTS.len());
        self.tell(|| format!("power cut on {}", HOSTS[host]));
        self.processes.retain(|process| process.host != host);
        self.world.cut_power(|folder| folder == HOSTS[host]);
    }

    /// The server drops a claim for lack of room, and counts it.
    fn evict(&mut self) {
        let memory = &self.world.shards[0].memory;
        let keys = memory.contents.len() + memory.payments.len();
        if self.dropped.is_some() || keys == 0 {
            return;
        }
        let index = self.dice.below(keys);
        let memory = Arc::make_mut(&mut self.world.shards[0].memory);
        let dropped = match memory.contents.keys().nth(index).copied() {
            Some(key) => {
                let beside = memory.payments.get(&key.0).filter(|payment| payment.content == key.1).cloned();
                Dropped::Content(key, memory.contents.remove(&key).expect("it was found above"), beside)
            }
            None => {
                let place = index - memory.contents.len();
                let (key, payment) = memory.payments.iter().nth(place).expect("keys were counted");
                let (key, payment) = (*key, payment.clone());
                memory.payments.remove(&key);
                Dropped::Payment(key, payment)
            }
        };
        self.evictions += 1;
        self.tell(|| "the server drops a key".to_owned());
        self.dropped = Some(dropped);
    }

    /// The operator puts back what was dropped, once nobody is at work who began before.
    fn put_back(&mut self) {
        if self.dropped.is_some() && self.processes.is_empty() && self.ghosts.is_empty() {
            let dropped = self.dropped.take().expect("it was looked at");
            self.tell(|| "the operator puts it back".to_owned());
            let memory = Arc::make_mut(&mut self.world.shards[0].memory);
            match dropped {
                Dropped::Content(key, marker, beside) => {
                    memory.contents.insert(key, marker);
                    // Somebody may have taken the entry over, because its claim was gone.
                    memory.payments.extend(beside.map(|payment| (key.0, payment)));
                }
                Dropped::Payment(key, payment) => drop(memory.payments.insert(key, payment)),
            }
            // Whoever puts claims back waits for the replicas.
            self.world.shards[0].unconfirmed.clear();
        } else if self.dropped.is_some() {
            // No more happens to the others than that they end.
            self.ghosts.clear();
        }
    }

    /// What must never be: a record in two outputs, or nowhere although an output says that it is somewhere.
    fn check(&self) -> Result<(), String> {
        for payment in &self.payments {
            if let Some(what) = self.world.wrong_with(payment, !self.reverting.is_empty()) {
                return Err(format!("{payment}: {what}"));
            }
        }
        Ok(())
    }

    /// Every process dies, every call under way arrives or does not.
    fn end_chaos(&mut self) -> Result<(), String> {
        self.processes.clear();
        while !self.ghosts.is_empty() {
            self.deliver_a_ghost();
            self.check()?;
        }
        self.put_back();
        Ok(())
    }

    fn recover(&mut self) -> Result<(), String> {
        self.tell(|| "peace".to_owned());
        for _ in 0..REPETITIONS_MAX {
            let mut is_open = false;
            for command in 0..self.commands.len() {
                if let Command::Revert { run } = &self.commands[command]
                    && !self.reverting.contains(run)
                {
                    continue;
                }
                let ended = self.run_in_peace(command);
                self.end(command, &ended);
                match ended {
                    Next::Published(record) => {
                        // What was handed out of it is ingested: here by the feed's next pass.
                        let is_handed_out = self.world.released.iter().any(|(released, _)| *released == record.run);
                        is_open |= is_handed_out || record.counts[Decision::Held.index()] > 0;
                    }
                    // What it had is free: the commands before it are repeated.
                    Next::TakenBack(_) => is_open = true,
                    Next::Halted(_) if matches!(self.commands[command], Command::Revert { .. }) => is_open = true,
                    Next::Halted(halt) => return Err(format!("command {command} is stuck: {halt:?}")),
                    Next::Call(_) => unreachable!("a process in peace comes to its end"),
                }
            }
            self.check()?;
            if !is_open {
                return self.check_all_accepted();
            }
        }
        Err("held for good".to_owned())
    }

    fn check_all_accepted(&self) -> Result<(), String> {
        for payment in &self.payments {
            if self.world.accepted(payment).len() != 1 {
                return Err(format!("{payment} is accepted nowhere when all commands are repeated"));
            }
        }
        Ok(())
    }

    /// Runs a command to its end, on the host where it can go on.
    fn run_in_peace(&mut self, command: usize) -> Next {
        let mut ended = Next::Halted(Halt::Failed);
        for (host, name) in HOSTS.iter().enumerate() {
            self.world.expire_all();
            let job = self.job(command, host, false);
            ended = run_to_end(&job, |call, last| {
                self.tell(|| format!("command {command} on {name}: {call:?}").chars().take(300).collect());
                self.perform(call, command, host, last, self.evictions)
            });
            if !ended.is_elsewhere() {
                break;
            }
        }
        ended
    }
}

/// A feed that takes some of the payments of the world, some of them twice, and some in another version.
fn feed_of(feed: usize, payments: usize, dice: &mut Dice) -> Command {
    let run = RunId::parse(&format!("r{feed}")).unwrap();
    let rows = 1 + dice.below(payments + 1);
    let records = (0..rows).map(|row| claim(dice.below(payments), usize::from(dice.is(25)), row)).collect();
    Command::Ingest { run, records }
}

/// The payments of a feed.
fn payments_of(command: &Command) -> Vec<IdentityHash> {
    match command {
        Command::Ingest { records, .. } => records.iter().map(|claim| claim.identity).collect(),
        Command::Revert { .. } => Vec::new(),
    }
}

/// The first seed of `seeds` that goes wrong, and how; on two threads.
fn first_failure(seeds: u64, flaw: Option<Flaw>) -> Option<(u64, String)> {
    let (at, failed) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = at.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds || seed > failed.load(Ordering::Relaxed) {
                        return;
                    }
                    if Simulation::new(seed, flaw, false).run().is_err() {
                        failed.fetch_min(seed, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let seed = failed.into_inner();
    (seed != u64::MAX).then(|| (seed, story_of(seed, flaw)))
}

fn story_of(seed: u64, flaw: Option<Flaw>) -> String {
    let mut simulation = Simulation::new(seed, flaw, true);
    let outcome = simulation.run();
    format!("{}\n{outcome:?}", simulation.story.unwrap_or_default().join("\n"))
}

#[test]
fn no_seed_loses_a_record_or_accepts_it_twice() {
    if let Ok(seed) = std::env::var("FEEDS_SEED") {
        tell(&story_of(seed.parse().unwrap(), None));
        return;
    }
    let seeds = if is_long() { SEEDS_LONG } else { SEEDS };
    if let Some((seed, story)) = first_failure(seeds, None) {
        panic!("FEEDS_SEED={seed}:\n{story}");
    }
}

#[test]
fn every_planted_bug_is_found() {
    let mut found = BTreeMap::new();
    for flaw in Flaw::OF_SIMULATOR {
        let (seed, _) = first_failure(SEEDS_FOR_FLAW, Some(flaw)).unwrap_or_else(|| panic!("{flaw:?} is not found"));
        found.insert(seed, flaw);
        tell(&format!("{flaw:?} is found by seed {seed}"));
    }
}

#[expect(clippy::print_stderr, reason = "shown with --nocapture, and when the test fails")]
fn tell(text: &str) {
    eprintln!("{text}");
}
