//! The engine, one call at a time.
//!
//! What the engine does next depends only on the answers that it has had. So a worker is the list of these answers: to
//! learn its next call, the engine is run from its start, is told them in order, and stops where they end.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use feeddedup::domain::{
    Adoption, Bid, Claim, ClaimOutcome, Decision, Digest, Expected, FeedNote, KnownRun, Lineage, OutputRecord,
    RunCounts, RunId, RunRecord, RunState, RunStore, decide,
};
use feeddedup::run::{
    ClaimBatch, Completed, Names, ProtocolStop, RunPlan, TakeBackStop, TakeClaims, TakenBack, Work, execute, revert,
};
use serde_json::Value;

use super::flaw::Flaw;

/// A call of the engine to the world.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Claim(Bid, Vec<Claim>),
    Adopt(Vec<Adoption>),
    LookUp(Vec<Claim>),
    Release(RunId, u32, Vec<Claim>),
    ReleaseRun(RunId),
    CheckIntact,
    Lineage,
    Confirm,
    RunRecord(RunId),
    WriteRun(Option<Expected>, Box<RunRecord>, Option<Duration>),
    RenewLease(RunId, u32, Duration),
    EachRun,
    FeedNote(Digest, Digest),
    WriteFeedNote(Digest, Digest, FeedNote),
    /// Clears away what earlier attempts left, and begins this one.
    Begin(RunId, u32),
    /// Writes the temporaries of an attempt.
    Write(RunId, u32, Vec<Decided>),
    SyncTemporaries(RunId, u32),
    IsWaiting(RunId, u32, usize),
    IsStanding(RunId, u32, usize),
    Rename(RunId, u32, usize),
    SyncNames,
    Abandon(RunId, u32),
}

/// The world's answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Outcomes(Vec<ClaimOutcome>),
    Flags(Vec<bool>),
    Number(u64),
    Lineage(Lineage),
    Known(Option<Box<KnownRun>>),
    Flag(bool),
    Runs(Vec<KnownRun>),
    Note(Option<FeedNote>),
    Done,
    /// The call was made again because its first answer was lost.
    AskedAgain(Box<Answer>),
    /// The store or the disk fails: the process ends.
    Failed,
}

impl Answer {
    /// The same answer to a call that was made a second time, as a program with `flaw` takes it.
    pub(crate) fn asked_again(self, flaw: Option<Flaw>) -> Self {
        match self {
            Self::Failed => Self::Failed,
            answer if flaw == Some(Flaw::LostAnswersForgotten) => answer,
            answer => Self::AskedAgain(Box::new(answer)),
        }
    }
}

/// What a run has decided on a record.
pub(crate) type Decided = (Claim, Decision);

/// Why the engine stops.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Halt {
    /// It waits for an answer.
    Waiting,
    /// The world failed.
    Failed,
    /// The rules say so.
    Protocol(String),
    /// The run's own gate does not hold.
    Gate,
}

impl From<ProtocolStop> for Halt {
    fn from(stop: ProtocolStop) -> Self {
        Self::Protocol(format!("{stop:?}"))
    }
}

/// What a process does.
#[derive(Debug, Clone)]
pub(crate) enum Job {
    Ingest {
        plan: Box<RunPlan>,
        /// The claims of the feed's records.
        records: Vec<Claim>,
        /// Claims in one batch.
        batch: usize,
        /// Outputs that are renamed one after another.
        outputs: usize,
        /// Whether a gate stops the run.
        is_gated: bool,
        /// Whether calls that a model need not tell apart are answered without the world.
        is_terse: bool,
    },
    Revert(RunId),
}

/// What a process does next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Next {
    Call(Box<Call>),
    /// It has ended: its last run's record.
    Published(Box<RunRecord>),
    /// It has taken a run back; the runs that suppressed against it.
    TakenBack(Vec<RunId>),
    Halted(Halt),
}

/// A point from which on a process need not remember how it came there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Milestone {
    kind: MilestoneKind,
    /// The run's record.
    record: RunRecord,
    /// Attempts that the process began.
    attempts: u32,
    /// The history of the store that the process relies on.
    lineage: Option<Lineage>,
    /// Answers that were lost in this attempt.
    answers_lost: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum MilestoneKind {
    /// A pass over the feed begins: which one of the attempt.
    Pass(u32),
    Sealed,
    /// An output is about to be published.
    Output(usize),
}

/// The last milestone of a process, and how many answers it had had by then.
pub(crate) type Passed = Option<(Milestone, usize)>;

/// What `job` does after it has had these answers.
pub(crate) fn next(job: &Job, answers: &[Answer]) -> Next {
    next_and_passed(job, answers).0
}

/// What `job` does after it has had these answers, and what it needs to remember of them.
pub(crate) fn next_and_passed(job: &Job, answers: &[Answer]) -> (Next, Passed) {
    let port = Port::new(answers);
    let ended = match job {
        Job::Ingest { plan, records, batch, outputs, is_gated, is_terse } => {
            let settings = Settings { batch: *batch, outputs: *outputs, is_gated: *is_gated, is_terse: *is_terse };
            let mut work = FeedWork { port: &port, plan, records, settings, decided: Vec::new() };
            execute(plan, &mut PortStore { port: &port, is_terse: *is_terse }, &mut work)
                .map_or_else(Next::Halted, |record| Next::Published(Box::new(record)))
        }
        Job::Revert(run) => match revert(&mut PortStore { port: &port, is_terse: false }, run, true) {
            Ok(TakenBack { dependents, .. }) => {
                let all = dependents.published.into_iter().chain(dependents.unpublished);
                Next::TakenBack(all.map(|record| record.run).collect())
            }
            Err(TakeBackStop::Store(halt)) => Next::Halted(halt),
            Err(stop) => Next::Halted(Halt::Protocol(format!("{stop:?}"))),
        },
    };
    let next = match port.pending.into_inner() {
        Some(call) => Next::Call(Box::new(call)),
        None => {
            assert_eq!(port.at.get(), answers.len(), "the engine had more answers than it asked for");
            ended
        }
    };
    (next, port.passed.into_inner())
}

/// Runs `job` to its end, its calls answered by `answer`, which is told the call before as well.
pub(crate) fn run_to_end(job: &Job, mut answer: impl FnMut(&Call, Option<&Call>) -> Answer) -> Next {
    let (mut answers, mut last) = (Vec::new(), None);
    loop {
        match next(job, &answers) {
            Next::Call(call) => {
                answers.push(answer(&call, last.as_deref()));
                last = Some(call);
            }
            ended => return ended,
        }
    }
}

impl Next {
    /// Whether the job can go on on another host only.
    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Halted(Halt::Protocol(why)) if why.contains("PublishingElsewhere"))
    }
}

/// Tells the engine what it was told before, and keeps the first call that is new.
struct Port<'a> {
    answers: &'a [Answer],
    at: Cell<usize>,
    pending: RefCell<Option<Call>>,
    /// The last history that it began to rely on, and how many answers it had had by then.
    lineage: RefCell<(Option<Lineage>, usize)>,
    /// Whether a confirmation was waited for since a history was asked for.
    is_confirmed: Cell<bool>,
    attempts: Cell<u32>,
    passes: Cell<u32>,
    answers_lost: Cell<u64>,
    /// Those that were lost before this attempt.
    lost_before: Cell<u64>,
    passed: RefCell<Passed>,
}

impl<'a> Port<'a> {
    fn new(answers: &'a [Answer]) -> Self {
        Self {
            answers,
            at: Cell::new(0),
            pending: RefCell::new(None),
            lineage: RefCell::new((None, 0)),
            is_confirmed: Cell::new(false),
            attempts: Cell::new(0),
            passes: Cell::new(0),
            answers_lost: Cell::new(0),
            lost_before: Cell::new(0),
            passed: RefCell::new(None),
        }
    }

    /// Notes that a milestone is passed, after which only what was answered since `from` counts.
    fn pass(&self, kind: MilestoneKind, record: &RunRecord, from: usize) {
        if self.pending.borrow().is_some() {
            return;
        }
        let lineage = self.lineage.borrow().0.clone();
        let (attempts, answers_lost) = (self.attempts.get(), self.answers_lost.get() - self.lost_before.get());
        let milestone = Milestone { kind, record: record.clone(), attempts, lineage, answers_lost };
        *self.passed.borrow_mut() = Some((milestone, from));
    }

    fn ask(&self, call: impl FnOnce() -> Call) -> Result<Answer, Halt> {
        if self.pending.borrow().is_some() {
            return Err(Halt::Waiting);
        }
        match self.answers.get(self.at.get()) {
            None => {
                *self.pending.borrow_mut() = Some(call());
                Err(Halt::Waiting)
            }
            Some(answer) => {
                self.at.set(self.at.get() + 1);
                match answer {
                    Answer::Failed => Err(Halt::Failed),
                    Answer::AskedAgain(answer) => {
                        self.answers_lost.set(self.answers_lost.get() + 1);
                        Ok((**answer).clone())
                    }
                    answer => Ok(answer.clone()),
                }
            }
        }
    }
}

/// Takes the one kind of answer that a call can have.
macro_rules! expect {
    ($port:expr, $call:expr, $pattern:pat => $value:expr) => {
        match $port.ask(|| $call)? {
            $pattern => Ok::<_, Halt>($value),
            other => unreachable!("{other:?}"),
        }
    };
}

struct PortStore<'a> {
    port: &'a Port<'a>,
    is_terse: bool,
}

impl RunStore for PortStore<'_> {
    type Error = Halt;

    fn claims_per_call(&self) -> usize {
        1_000
    }

    fn claim(&mut self, bid: &Bid, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, Halt> {
        expect!(self.port, Call::Claim(bid.clone(), claims.to_vec()), Answer::Outcomes(outcomes) => outcomes)
    }

    fn answers_lost(&self) -> u64 {
        self.port.answers_lost.get()
    }

    fn adopt(&mut self, adoptions: &[Adoption]) -> Result<Vec<bool>, Halt> {
        expect!(self.port, Call::Adopt(adoptions.to_vec()), Answer::Flags(flags) => flags)
    }

    fn look_up(&mut self, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, Halt> {
        expect!(self.port, Call::LookUp(claims.to_vec()), Answer::Outcomes(outcomes) => outcomes)
    }

    fn release(&mut self, run: &RunId, epoch: u32, claims: &[Claim]) -> Result<u64, Halt> {
        expect!(self.port, Call::Release(run.clone(), epoch, claims.to_vec()), Answer::Number(freed) => freed)
    }

    fn release_run(&mut self, run: &RunId) -> Result<u64, Halt> {
        expect!(self.port, Call::ReleaseRun(run.clone()), Answer::Number(freed) => freed)
    }

    fn check_intact(&mut self) -> Result<(), Halt> {
        if self.is_terse {
            return Ok(());
        }
        expect!(self.port, Call::CheckIntact, Answer::Done => ())
    }

    fn lineage(&mut self) -> Result<Lineage, Halt> {
        let lineage = expect!(self.port, Call::Lineage, Answer::Lineage(lineage) => lineage)?;
        // One that is asked for behind a confirmation is compared, and not relied on from there on.
        if !self.port.is_confirmed.replace(false) {
            *self.port.lineage.borrow_mut() = (Some(lineage.clone()), self.port.at.get());
        }
        Ok(lineage)
    }

    fn confirm(&mut self) -> Result<(), Halt> {
        expect!(self.port, Call::Confirm, Answer::Done => ())?;
        self.port.is_confirmed.set(true);
        Ok(())
    }

    fn run_record(&mut self, run: &RunId) -> Result<Option<KnownRun>, Halt> {
        expect!(self.port, Call::RunRecord(run.clone()), Answer::Known(known) => known.map(|known| *known))
    }

    fn write_run(
        &mut self,
        expected: Option<Expected>,
        record: &RunRecord,
        lease: Option<Duration>,
    ) -> Result<bool, Halt> {
        let call = || Call::WriteRun(expected, Box::new(record.clone()), lease);
        let stands = expect!(self.port, call(), Answer::Flag(stands) => stands)?;
        if stands && record.state == RunState::Sealed {
            self.port.pass(MilestoneKind::Sealed, record, self.port.at.get());
        }
        Ok(stands)
    }

    fn renew_lease(&mut self, run: &RunId, epoch: u32, lease: Duration) -> Result<bool, Halt> {
        expect!(self.port, Call::RenewLease(run.clone(), epoch, lease), Answer::Flag(is_ours) => is_ours)
    }

    fn each_run(&mut self, act: &mut dyn FnMut(KnownRun)) -> Result<(), Halt> {
        let runs = expect!(self.port, Call::EachRun, Answer::Runs(runs) => runs)?;
        runs.into_iter().for_each(act);
        Ok(())
    }

    fn feed_note(&mut self, feed: &Digest, meaning: &Digest) -> Result<Option<FeedNote>, Halt> {
        if self.is_terse {
            return Ok(None);
        }
        expect!(self.port, Call::FeedNote(*feed, *meaning), Answer::Note(note) => note)
    }

    fn write_feed_note(&mut self, feed: &Digest, meaning: &Digest, note: &FeedNote) -> Result<(), Halt> {
        if self.is_terse {
            return Ok(());
        }
        expect!(self.port, Call::WriteFeedNote(*feed, *meaning, note.clone()), Answer::Done => ())
    }
}

#[derive(Clone, Copy)]
struct Settings {
    batch: usize,
    outputs: usize,
    is_gated: bool,
    is_terse: bool,
}

struct FeedWork<'a> {
    port: &'a Port<'a>,
    plan: &'a RunPlan,
    records: &'a [Claim],
    settings: Settings,
    decided: Vec<Decided>,
}

impl FeedWork<'_> {
    /// A call that only a world with files that can be lost tells from none.
    fn ask_unless_terse(&self, call: impl FnOnce() -> Call) -> Result<(), Halt> {
        if self.settings.is_terse {
            return Ok(());
        }
        expect!(self.port, call(), Answer::Done => ())
    }

    fn index_of(output: &OutputRecord) -> usize {
        output.name.parse().expect("outputs are named by their place")
    }
}

impl Work for FeedWork<'_> {
    type Error = Halt;

    fn names(&mut self, _left: Option<&RunRecord>) -> Result<Names, Halt> {
        Ok(Names { folder: self.plan.folder.clone(), stem: "feed".into() })
    }

    fn begin(&mut self, record: &RunRecord) -> Result<bool, Halt> {
        self.port.attempts.set(self.port.attempts.get() + 1);
        self.port.passes.set(0);
        self.port.lost_before.set(self.port.answers_lost.get());
        self.ask_unless_terse(|| Call::Begin(record.run.clone(), record.epoch))?;
        Ok(true)
    }

    fn resume(&mut self, _record: &RunRecord) -> Result<(), Halt> {
        Ok(())
    }

    fn decide(&mut self, record: &RunRecord, claim: &mut ClaimBatch<'_, Halt>) -> Result<(), Halt> {
        self.decided.clear();
        self.port.passes.set(self.port.passes.get() + 1);
        let since_lineage = self.port.lineage.borrow().1;
        self.port.pass(MilestoneKind::Pass(self.port.passes.get()), record, since_lineage);
        for batch in self.records.chunks(self.settings.batch) {
            let settled = claim(batch)?;
            for (claim, outcome) in batch.iter().zip(settled.outcomes) {
                let decided = decide(&record.run, claim.row, outcome, |run| settled.views.view(run)).decision;
                self.decided.push((*claim, decided));
            }
        }
        Ok(())
    }

    fn complete(&mut self, record: &RunRecord) -> Result<Completed, Halt> {
        if self.settings.is_gated {
            return Err(Halt::Gate);
        }
        let (run, epoch) = (record.run.clone(), record.epoch);
        expect!(self.port, Call::Write(run.clone(), epoch, self.decided.clone()), Answer::Done => ())?;
        self.ask_unless_terse(|| Call::SyncTemporaries(run, epoch))?;
        let mut counts = RunCounts::default();
        self.decided.iter().for_each(|(_, decision)| counts[decision.index()] += 1);
        let digest = Digest::of(format!("{:?}", self.decided).as_bytes());
        let output = |place: usize| OutputRecord { name: place.to_string(), bytes: 1, sha256: digest };
        Ok(Completed { counts, outputs: (0..self.settings.outputs).map(output).collect(), audit_chain: digest })
    }

    fn check_waiting(&mut self, _record: &RunRecord) -> Result<(), Halt> {
        Ok(())
    }

    fn is_waiting(&mut self, record: &RunRecord, output: &OutputRecord) -> Result<bool, Halt> {
        self.port.pass(MilestoneKind::Output(Self::index_of(output)), record, self.port.at.get());
        let (run, epoch) = (record.run.clone(), record.epoch);
        expect!(self.port, Call::IsWaiting(run, epoch, Self::index_of(output)), Answer::Flag(flag) => flag)
    }

    fn is_standing(&mut self, record: &RunRecord, output: &OutputRecord) -> Result<bool, Halt> {
        let (run, epoch) = (record.run.clone(), record.epoch);
        expect!(self.port, Call::IsStanding(run, epoch, Self::index_of(output)), Answer::Flag(flag) => flag)
    }

    fn rename(&mut self, record: &RunRecord, output: &OutputRecord) -> Result<(), Halt> {
        let (run, epoch) = (record.run.clone(), record.epoch);
        expect!(self.port, Call::Rename(run, epoch, Self::index_of(output)), Answer::Done => ())
    }

    fn sync_names(&mut self, _record: &RunRecord) -> Result<(), Halt> {
        self.ask_unless_terse(|| Call::SyncNames)
    }

    fn note(&mut self, _event: &str, _fields: Value) -> Result<(), Halt> {
        Ok(())
    }

    fn were_published(&mut self, _record: &RunRecord) -> Result<bool, Halt> {
        // Nobody takes files away here.
        Ok(false)
    }

    fn all_claims(&mut self, take: &mut TakeClaims<'_, Halt>) -> Result<(), Halt> {
        self.records.chunks(self.settings.batch).try_for_each(take)
    }

    fn let_lease_go(&mut self) {}

    fn abandon(&mut self, record: &RunRecord, _error: &Halt) {
        let _ = self.ask_unless_terse(|| Call::Abandon(record.run.clone(), record.epoch));
    }

    fn is_of_the_feed(&self, error: &Halt) -> bool {
        *error == Halt::Gate
    }

    fn is_of_the_store(&self, error: &Halt) -> bool {
        *error == Halt::Failed
    }

    fn unfinished(error: Halt) -> Halt {
        error
    }
}
