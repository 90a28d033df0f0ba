//! What each call does in each world, and what each answer makes of each process, worked out once.
//!
//! A search comes to one world by many ways, and to one process in many worlds. Both have numbers here, so that a state
//! is a few numbers and a step that was taken before is looked up.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use feeddedup::domain::{IdentityHash, RunId, RunState};

use super::flaw::Flaw;
use super::replay::{Answer, Call, Halt, Job, Milestone, Next, Passed, next_and_passed};
use super::world::{Caller, World};

pub(super) const HOSTS: [&str; 2] = ["h1", "h2"];

/// A command that may be given some times.
pub(super) struct Command {
    pub(super) run: RunId,
    pub(super) job_on: [Job; 2],
    pub(super) starts_max: u8,
    /// How many of the hosts it may be given on.
    pub(super) hosts: usize,
}

impl Command {
    pub(super) fn is_revert(&self) -> bool {
        matches!(self.job_on[0], Job::Revert(_))
    }
}

/// A world by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WorldId(u32);

/// A process that waits for the answer to its next call, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ProcessId(std::num::NonZeroU32);

/// What a command does on a host after all answers that it has had.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) command: usize,
    pub(super) host: usize,
    pub(super) call: Call,
    /// The call before.
    last: Option<Call>,
    /// All answers that it has had.
    answers: Vec<u32>,
    /// Other answers after which it does the same, for good.
    others: Vec<Vec<u32>>,
    /// What it does after each answer that it was given so far.
    answered: Vec<(u32, Then)>,
}

/// What a process is known by: its command and host, its last milestone, the answers since, the call before.
type Identity = (usize, usize, Option<Milestone>, Vec<u32>, Option<Call>);

/// What becomes of a process once it is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Then {
    Waits(ProcessId),
    Ended(Arc<Next>),
}

/// The world after a call, and the process that made it.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) world: WorldId,
    pub(super) then: Then,
    answer: u32,
}

/// What can happen to a world that is no step of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Change {
    /// The lease of a run ends: its place among the runs of the world.
    LeaseEnds(usize),
    AllLeasesEnd,
    /// A server takes over that lacks all unconfirmed writes but the first few.
    FailsOver {
        shard: usize,
        kept: usize,
    },
    /// No server fails any more: what was not confirmed is as good as confirmed.
    Settles,
    /// The call of a process arrives that nobody waits for.
    Arrives(ProcessId),
}

/// What is to be known of a world.
#[derive(Debug)]
pub(super) struct Facts {
    /// What must never be: while no run is being taken back, and while one is.
    pub(super) wrong: [Option<String>; 2],
    /// Places of the runs whose lease may still end in a way that matters.
    pub(super) leases: Vec<usize>,
    /// Unconfirmed writes of each server.
    pub(super) unconfirmed: Vec<usize>,
}

/// Values that have numbers, each once.
#[derive(Debug)]
struct Numbered<T> {
    numbers: HashMap<Arc<T>, u32>,
    values: Vec<Arc<T>>,
}

impl<T: Hash + Eq> Numbered<T> {
    fn new() -> Self {
        Self { numbers: HashMap::new(), values: Vec::new() }
    }

    /// The number of `value`, and whether it is new.
    fn add(&mut self, value: T) -> (u32, bool) {
        if let Some(number) = self.numbers.get(&value) {
            return (*number, false);
        }
        let (number, value) = (u32::try_from(self.values.len()).unwrap(), Arc::new(value));
        self.values.push(Arc::clone(&value));
        self.numbers.insert(value, number);
        (number, true)
    }

    fn get(&self, number: u32) -> &Arc<T> {
        &self.values[number as usize]
    }
}

pub(super) struct Table<'a> {
    commands: &'a [Command],
    payment: IdentityHash,
    flaw: Option<Flaw>,
    /// How many histories of a process are followed besides its first.
    others_max: usize,
    worlds: Numbered<World>,
    facts: Vec<Facts>,
    answers: Numbered<Answer>,
    processes: Vec<Process>,
    identities: HashMap<Identity, ProcessId>,
    starts: HashMap<(usize, usize), Then>,
    steps: HashMap<(WorldId, ProcessId, bool), Step>,
    changes: HashMap<(WorldId, Change), WorldId>,
}

impl<'a> Table<'a> {
    /// The table for what `commands` do about `payment`, by a program with `flaw`.
    pub(super) fn new(commands: &'a [Command], payment: IdentityHash, flaw: Option<Flaw>, others_max: usize) -> Self {
        Self {
            commands,
            payment,
            flaw,
            others_max,
            worlds: Numbered::new(),
            facts: Vec::new(),
            answers: Numbered::new(),
            processes: Vec::new(),
            identities: HashMap::new(),
            starts: HashMap::new(),
            steps: HashMap::new(),
            changes: HashMap::new(),
        }
    }

    pub(super) fn add_world(&mut self, world: World) -> WorldId {
        let (number, is_new) = self.worlds.add(world);
        if is_new {
            self.facts.push(self.facts_of(self.worlds.get(number)));
        }
        WorldId(number)
    }

    pub(super) fn world(&self, WorldId(number): WorldId) -> &World {
        self.worlds.get(number)
    }

    pub(super) fn facts(&self, WorldId(number): WorldId) -> &Facts {
        &self.facts[number as usize]
    }

    /// How often the record is accepted in outputs that count.
    pub(super) fn accepted(&self, world: WorldId) -> usize {
        self.world(world).accepted(&self.payment).len()
    }

    pub(super) fn process(&self, ProcessId(number): ProcessId) -> &Process {
        &self.processes[number.get() as usize - 1]
    }

    fn facts_of(&self, world: &World) -> Facts {
        let can_end = |(_, run): &(usize, &RunId)| {
            let is_running = world.runs().leases.get(*run).is_some_and(|end| !end.is_zero());
            let can_matter =
                matches!(world.state_of(run), Some((RunState::Open | RunState::Sealed | RunState::Publishing, _)));
            is_running && can_matter
        };
        Facts {
            wrong: [false, true].map(|is_reverting| world.wrong_with(&self.payment, is_reverting)),
            leases: world.runs().runs.keys().enumerate().filter(can_end).map(|(place, _)| place).collect(),
            unconfirmed: world.shards.iter().map(|shard| shard.unconfirmed.len()).collect(),
        }
    }

    /// What `command` does first on `host`.
    pub(super) fn start(&mut self, command: usize, host: usize) -> Then {
        if let Some(then) = self.starts.get(&(command, host)) {
            return then.clone();
        }
        let then = self.add_process(command, host, Vec::new(), None);
        self.starts.insert((command, host), then.clone());
        then
    }

    /// What `command` does on `host` after `answers`, the call before them being `last`.
    fn add_process(&mut self, command: usize, host: usize, answers: Vec<u32>, last: Option<Call>) -> Then {
        let (next, passed) = self.replay(command, host, &answers);
        let call = match next {
            Next::Call(call) => *call,
            ended => return Then::Ended(Arc::new(ended)),
        };
        let (milestone, from) = passed.map_or((None, 0), |(milestone, from)| (Some(milestone), from));
        let identity = (command, host, milestone, answers[from..].to_vec(), last.clone());
        if let Some(known) = self.identities.get(&identity) {
            let known = *known;
            self.add_other(known, &call, answers);
            return Then::Waits(known);
        }
        self.processes.push(Process { command, host, call, last, answers, others: Vec::new(), answered: Vec::new() });
        let number = u32::try_from(self.processes.len()).unwrap();
        let id = ProcessId(number.try_into().expect("there is a process"));
        self.identities.insert(identity, id);
        Then::Waits(id)
    }

    fn replay(&self, command: usize, host: usize, answers: &[u32]) -> (Next, Passed) {
        let answers: Vec<Answer> = answers.iter().map(|answer| (**self.answers.get(*answer)).clone()).collect();
        next_and_passed(&self.commands[command].job_on[host], &answers)
    }

    /// Notes that the process `known` may have had `answers` instead, and holds it to what follows from them.
    fn add_other(&mut self, known: ProcessId, call: &Call, answers: Vec<u32>) {
        assert_eq!(*call, self.process(known).call, "a milestone forgets what matters");
        if self.process(known).others.len() >= self.others_max || self.process(known).answers == answers {
            return;
        }
        let ProcessId(number) = known;
        self.processes[number.get() as usize - 1].others.push(answers.clone());
        for (answer, then) in self.process(known).answered.clone() {
            self.hold_to(known, &answers, answer, &then);
        }
    }

    /// Looks that `answer`, after `answers`, has the process `known` do what was worked out.
    fn hold_to(&mut self, known: ProcessId, answers: &[u32], answer: u32, then: &Then) {
        let Process { command, host, .. } = *self.process(known);
        let call = self.process(known).call.clone();
        let answers: Vec<u32> = answers.iter().copied().chain([answer]).collect();
        let then_too = self.add_process(command, host, answers, Some(call));
        assert_eq!(then_too, *then, "a milestone forgets what matters");
    }

    /// Lets `process` make its call in `world`; `is_again` says that it was made before and the answer was lost.
    pub(super) fn step(&mut self, world: WorldId, process: ProcessId, is_again: bool) -> Step {
        if let Some(step) = self.steps.get(&(world, process, is_again)) {
            return step.clone();
        }
        let mut reached = self.world(world).clone();
        let Process { command, last, .. } = self.process(process);
        let command = *command;
        let answer = self.perform(&mut reached, process, last.as_ref());
        let answer = if is_again { answer.asked_again(self.flaw) } else { answer };
        let (answer, _) = self.answers.add(answer);
        let then = self.answer(process, answer);
        if let Then::Ended(ended) = &then
            && let Next::TakenBack(dependents) = &**ended
        {
            reached.hand_out(&self.commands[command].run, dependents);
        }
        let step = Step { world: self.add_world(reached), then, answer };
        self.steps.insert((world, process, is_again), step.clone());
        step
    }

    /// What `process` does once it has had `answer`.
    fn answer(&mut self, process: ProcessId, answer: u32) -> Then {
        let Process { command, host, call, answers, others, answered, .. } = self.process(process);
        if let Some((_, then)) = answered.iter().find(|(known, _)| *known == answer) {
            return then.clone();
        }
        let all = answers.iter().copied().chain([answer]).collect();
        let (command, host, call, others) = (*command, *host, call.clone(), others.clone());
        let then = self.add_process(command, host, all, Some(call));
        let ProcessId(number) = process;
        self.processes[number.get() as usize - 1].answered.push((answer, then.clone()));
        for other in others {
            self.hold_to(process, &other, answer, &then);
        }
        then
    }

    fn perform(&self, world: &mut World, process: ProcessId, last: Option<&Call>) -> Answer {
        let Process { command, host, call, .. } = self.process(process);
        let run = &self.commands[*command].run;
        let folder = format!("{run} on {}", HOSTS[*host]);
        world.perform(call, &Caller { run, folder: &folder, last, outputs: 1 }, self.flaw)
    }

    /// Lets `change` happen to `world`.
    pub(super) fn change(&mut self, world: WorldId, change: Change) -> WorldId {
        if let Some(reached) = self.changes.get(&(world, change)) {
            return *reached;
        }
        let mut reached = self.world(world).clone();
        match change {
            Change::LeaseEnds(place) => {
                let run = self.run_at(world, place);
                reached.expire(&run);
            }
            Change::AllLeasesEnd => reached.expire_all(),
            Change::FailsOver { shard, kept } => reached.fail_over(shard, kept),
            Change::Settles => reached.shards.iter_mut().for_each(|shard| shard.unconfirmed.clear()),
            Change::Arrives(process) => {
                self.perform(&mut reached, process, None);
            }
        }
        let reached = self.add_world(reached);
        self.changes.insert((world, change), reached);
        reached
    }

    fn run_at(&self, world: WorldId, place: usize) -> RunId {
        self.world(world).runs().runs.keys().nth(place).expect("runs are counted from their list").clone()
    }

    /// Whether a run stays half taken back when the process that took it back has `ended`.
    pub(super) fn is_left_reverting(&self, world: WorldId, command: usize, ended: &Next) -> bool {
        matches!(ended, Next::Halted(_)) && self.world(world).reverted.contains(&self.commands[command].run)
    }

    /// Runs a command to its end, on the host where it can go on.
    pub(super) fn run_in_peace(&mut self, mut world: WorldId, command: usize) -> (WorldId, Arc<Next>) {
        let mut ended = Arc::new(Next::Halted(Halt::Failed));
        for host in 0..HOSTS.len() {
            world = self.change(world, Change::AllLeasesEnd);
            let mut then = self.start(command, host);
            while let Then::Waits(process) = then {
                let step = self.step(world, process, false);
                (world, then) = (step.world, step.then);
            }
            if let Then::Ended(at_last) = then {
                ended = at_last;
            }
            if !ended.is_elsewhere() {
                break;
            }
        }
        (world, ended)
    }

    /// What a step is, for people.
    pub(super) fn told_step(&mut self, world: WorldId, process: ProcessId, is_again: bool) -> String {
        let answer = self.step(world, process, is_again).answer;
        let answer = format!("{:?}", self.answers.get(answer)).chars().take(400).collect::<String>();
        format!("{}: {} -> {answer}", self.name(process), told_call(&self.process(process).call))
    }

    /// What a change is, for people.
    pub(super) fn told_change(&self, world: WorldId, change: Change) -> String {
        match change {
            Change::LeaseEnds(place) => format!("the lease of {} ends", self.run_at(world, place)),
            Change::AllLeasesEnd => "all leases end".to_owned(),
            Change::FailsOver { shard, kept } => {
                let lost = self.facts(world).unconfirmed[shard] - kept;
                format!("server {shard} fails over and {lost} writes are lost")
            }
            Change::Settles => "replicas have all".to_owned(),
            Change::Arrives(process) => format!("a late call arrives: {}", told_call(&self.process(process).call)),
        }
    }

    /// A process, for people.
    pub(super) fn name(&self, process: ProcessId) -> String {
        let Process { command, host, .. } = self.process(process);
        let run = &self.commands[*command].run;
        match self.commands[*command].is_revert() {
            true => format!("revert {run}"),
            false => format!("{run} on {}", HOSTS[*host]),
        }
    }
}

pub(super) fn told_call(call: &Call) -> String {
    match call {
        Call::WriteRun(_, record, _) => {
            format!("write {} as {:?} in epoch {}", record.run, record.state, record.epoch)
        }
        Call::Claim(bid, _) => format!("claim for {} in epoch {}", bid.run, bid.epoch),
        Call::RunRecord(run) => format!("read {run}"),
        other => format!("{other:?}"),
    }
}
