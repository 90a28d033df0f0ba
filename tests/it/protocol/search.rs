//! Goes through all states that a scenario can come to.

use std::collections::HashSet;

use feeddedup::domain::{Decision, IdentityHash};
use feeddedup::store::MemoryLayout;

use super::flaw::Flaw;
use super::replay::{Call, Next};
use super::table::{Change, Command, HOSTS, ProcessId, Table, Then, WorldId, told_call};
use super::world::World;

/// States of one scenario after which something is wrong with it.
const STATES_MAX: usize = 30_000_000;

/// How often all commands are repeated until nothing is held any more.
const REPETITIONS_MAX: u32 = 6;

const COMMANDS_MAX: usize = 3;

/// What may happen in a search.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) commands: Vec<Command>,
    pub(super) shards: usize,
    pub(super) layout: MemoryLayout,
    pub(super) crashes_max: u8,
    pub(super) failovers_max: u8,
    /// Calls that arrive late, or once more.
    pub(super) ghosts_max: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    world: WorldId,
    /// What each command does on each host.
    processes: [[Option<ProcessId>; HOSTS.len()]; COMMANDS_MAX],
    starts: [u8; COMMANDS_MAX],
    crashes: u8,
    failovers: u8,
    ghosts: u8,
    /// A process whose call is under way, and that does not wait for it.
    in_flight: Option<ProcessId>,
    /// Whether a run is being taken back, or was left halfway.
    is_reverting: bool,
}

/// What leads from one state to the next.
#[derive(Debug, Clone, Copy)]
enum Event {
    Begins,
    Starts { command: usize, host: usize },
    Steps { process: ProcessId, is_again: bool },
    Dies { process: ProcessId, is_under_way: bool },
    Changes(Change),
}

/// A record that was lost or accepted twice, and how it came to that.
pub(super) struct Violation {
    pub(super) what: String,
    pub(super) story: Vec<String>,
}

pub(super) struct Search<'a> {
    scenario: &'a Scenario,
    table: Table<'a>,
    seen: HashSet<State>,
    recovered: HashSet<(WorldId, bool)>,
    /// All states in the order in which they were reached, from which other, and by what.
    reached: Vec<(State, usize, Event)>,
}

impl<'a> Search<'a> {
    pub(super) fn new(scenario: &'a Scenario, payment: IdentityHash, flaw: Option<Flaw>, others_max: usize) -> Self {
        let table = Table::new(&scenario.commands, payment, flaw, others_max);
        Self { scenario, table, seen: HashSet::new(), recovered: HashSet::new(), reached: Vec::new() }
    }

    /// Looks at every state; returns how many there are, or the first violation.
    pub(super) fn run(mut self) -> Result<usize, Violation> {
        let first = State {
            world: self.table.add_world(World::new(self.scenario.shards, self.scenario.layout)),
            processes: Default::default(),
            starts: [0; COMMANDS_MAX],
            crashes: 0,
            failovers: 0,
            ghosts: 0,
            in_flight: None,
            is_reverting: false,
        };
        self.reach(first, 0, Event::Begins)?;
        let mut at = 0;
        while at < self.reached.len() {
            self.follow(at)?;
            assert!(self.reached.len() < STATES_MAX, "{}: too many states", self.scenario.name);
            at += 1;
        }
        Ok(self.reached.len())
    }

    /// Notes a state that was reached by `event`, unless it was seen before.
    fn reach(&mut self, mut state: State, from: usize, event: Event) -> Result<(), Violation> {
        self.settle(&mut state);
        if !self.seen.insert(state) {
            return Ok(());
        }
        self.reached.push((state, from, event));
        match &self.table.facts(state.world).wrong[usize::from(state.is_reverting)] {
            Some(what) => Err(self.violation(what.clone(), self.reached.len() - 1)),
            None => Ok(()),
        }
    }

    /// Makes all calls that nobody else can notice, and that notice nobody: in whatever order they come, the same follows.
    fn settle(&mut self, state: &mut State) {
        let is_one_history = state.failovers == self.scenario.failovers_max;
        loop {
            if is_one_history {
                state.world = self.table.change(state.world, Change::Settles);
            }
            let is_private = |process: &ProcessId| match self.table.process(*process).call {
                Call::Write(..) | Call::IsWaiting(..) => true,
                Call::Confirm => {
                    is_one_history || self.table.facts(state.world).unconfirmed.iter().all(|count| *count == 0)
                }
                Call::Lineage => is_one_history,
                _ => false,
            };
            let Some(process) = state.processes.iter().flatten().flatten().copied().find(is_private) else { return };
            self.take_step(state, process, false);
        }
    }

    /// Lets `process` make its call, and be answered; `is_again` says that it was made before and the answer was lost.
    fn take_step(&mut self, state: &mut State, process: ProcessId, is_again: bool) {
        let step = self.table.step(state.world, process, is_again);
        let (command, host) = self.slot_of(process);
        state.world = step.world;
        self.put(state, command, host, step.then);
    }

    fn slot_of(&self, process: ProcessId) -> (usize, usize) {
        let process = self.table.process(process);
        (process.command, process.host)
    }

    fn put(&self, state: &mut State, command: usize, host: usize, then: Then) {
        state.processes[command][host] = match then {
            Then::Waits(process) => Some(process),
            Then::Ended(ended) => {
                if self.scenario.commands[command].is_revert() {
                    state.is_reverting = self.table.is_left_reverting(state.world, command, &ended);
                }
                None
            }
        };
    }

    fn follow(&mut self, at: usize) -> Result<(), Violation> {
        let state = self.reached[at].0;
        self.start_processes(state, at)?;
        for process in state.processes.into_iter().flatten().flatten() {
            self.step(state, at, process)?;
            self.crash(state, at, process)?;
        }
        if let Some(process) = state.in_flight {
            self.change(State { in_flight: None, ..state }, at, Change::Arrives(process))?;
        }
        for place in self.table.facts(state.world).leases.clone() {
            self.change(state, at, Change::LeaseEnds(place))?;
        }
        self.fail_over(state, at)?;
        let is_quiet = state.processes.iter().flatten().all(Option::is_none) && state.in_flight.is_none();
        if is_quiet && self.recovered.insert((state.world, state.is_reverting)) {
            self.recover(state).map_err(|what| self.violation(what, at))?;
        }
        Ok(())
    }

    fn start_processes(&mut self, state: State, at: usize) -> Result<(), Violation> {
        for (index, command) in self.scenario.commands.iter().enumerate() {
            for host in 0..command.hosts {
                // The kernel lock on a feed keeps a second process of one host away.
                let is_locked = state.processes[index][host].is_some();
                // The hosts are alike until one of them was used.
                let is_mirrored = host > 0 && state.starts[index] == 0;
                if is_locked || is_mirrored || state.starts[index] == command.starts_max {
                    continue;
                }
                let mut reached = state;
                reached.starts[index] += 1;
                reached.is_reverting |= command.is_revert();
                let then = self.table.start(index, host);
                self.put(&mut reached, index, host, then);
                self.reach(reached, at, Event::Starts { command: index, host })?;
            }
        }
        Ok(())
    }

    /// Whether the call of `process` may arrive late, or once more.
    fn may_come_again(&self, state: &State, process: ProcessId) -> bool {
        state.ghosts < self.scenario.ghosts_max
            && state.in_flight.is_none()
            && changes_the_store(&self.table.process(process).call)
    }

    fn step(&mut self, state: State, at: usize, process: ProcessId) -> Result<(), Violation> {
        let mut reached = state;
        self.take_step(&mut reached, process, false);
        self.reach(reached, at, Event::Steps { process, is_again: false })?;
        if self.may_come_again(&state, process) {
            let mut again = State { ghosts: state.ghosts + 1, in_flight: Some(process), ..state };
            self.take_step(&mut again, process, true);
            self.reach(again, at, Event::Steps { process, is_again: true })?;
        }
        Ok(())
    }

    fn crash(&mut self, state: State, at: usize, process: ProcessId) -> Result<(), Violation> {
        if state.crashes == self.scenario.crashes_max {
            return Ok(());
        }
        let (command, host) = self.slot_of(process);
        let mut reached = state;
        reached.crashes += 1;
        reached.processes[command][host] = None;
        if self.may_come_again(&state, process) {
            let late = State { ghosts: state.ghosts + 1, in_flight: Some(process), ..reached };
            self.reach(late, at, Event::Dies { process, is_under_way: true })?;
        }
        self.reach(reached, at, Event::Dies { process, is_under_way: false })
    }

    fn fail_over(&mut self, state: State, at: usize) -> Result<(), Violation> {
        if state.failovers == self.scenario.failovers_max {
            return Ok(());
        }
        for (shard, unconfirmed) in self.table.facts(state.world).unconfirmed.clone().into_iter().enumerate() {
            for kept in 0..=unconfirmed {
                let reached = State { failovers: state.failovers + 1, ..state };
                self.change(reached, at, Change::FailsOver { shard, kept })?;
            }
        }
        Ok(())
    }

    fn change(&mut self, mut state: State, at: usize, change: Change) -> Result<(), Violation> {
        state.world = self.table.change(state.world, change);
        self.reach(state, at, Event::Changes(change))
    }

    /// Repeats all commands in peace; then the record must be accepted exactly once.
    fn recover(&mut self, State { mut world, mut is_reverting, .. }: State) -> Result<(), String> {
        let mut open = true;
        for _ in 0..REPETITIONS_MAX {
            open = false;
            for (index, command) in self.scenario.commands.iter().enumerate() {
                if command.is_revert() && !is_reverting {
                    continue;
                }
                let ended;
                (world, ended) = self.table.run_in_peace(world, index);
                match &*ended {
                    Next::Published(record) => open |= record.counts[Decision::Held.index()] > 0,
                    Next::TakenBack(_) => {
                        is_reverting = false;
                        // What it had is free: the commands before it are repeated.
                        open = true;
                    }
                    // Whoever needs the run that is taken back is repeated first.
                    Next::Halted(_) if command.is_revert() => open = true,
                    Next::Halted(halt) => return Err(format!("stuck: {halt:?}")),
                    Next::Call(_) => unreachable!("a process in peace comes to its end"),
                }
            }
            if let Some(what) = &self.table.facts(world).wrong[usize::from(is_reverting)] {
                return Err(format!("{what}, when all commands are repeated"));
            }
            if !open {
                break;
            }
        }
        let accepted = self.table.accepted(world);
        match (open, accepted) {
            (false, 1) => Ok(()),
            (true, _) => Err("held for good".to_owned()),
            (false, _) => Err(format!("accepted {accepted} times when all commands are repeated")),
        }
    }

    /// What is wrong with the state at `at`, and how it came to that.
    fn violation(&mut self, what: String, mut at: usize) -> Violation {
        let mut story = Vec::new();
        loop {
            let (_, from, event) = self.reached[at];
            story.push(self.told(self.reached[from].0.world, event));
            if matches!(event, Event::Begins) {
                break;
            }
            at = from;
        }
        story.reverse();
        Violation { what, story }
    }

    /// An event in `world`, for people.
    fn told(&mut self, world: WorldId, event: Event) -> String {
        match event {
            Event::Begins => "nothing has happened".to_owned(),
            Event::Starts { command, host } => {
                format!("{} starts on {}", self.scenario.commands[command].run, HOSTS[host])
            }
            Event::Steps { process, is_again } => self.table.told_step(world, process, is_again),
            Event::Dies { process, is_under_way } => {
                let name = self.table.name(process);
                let call = told_call(&self.table.process(process).call);
                match is_under_way {
                    true => format!("{name} dies with its call under way: {call}"),
                    false => format!("{name} dies"),
                }
            }
            Event::Changes(change) => self.table.told_change(world, change),
        }
    }
}

/// Whether a call changes the store, so that it matters when it arrives.
fn changes_the_store(call: &Call) -> bool {
    matches!(call, Call::Claim(..) | Call::Adopt(_) | Call::WriteRun(..) | Call::Release(..) | Call::ReleaseRun(_))
}
