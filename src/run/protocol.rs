//! The life of a run, step by step: chosen, opened, decided, sealed, published. Every rule that keeps a record from
//! being lost or accepted twice stands here, and none of it touches a disk, a socket or a clock by itself.
//!
//! A pass over the feed does all that can be needed before the seal: it claims, finds the run's own claims again, takes
//! over, asks held records anew and writes the files in the feed's order. So whatever moves while a pass goes on, the
//! answer is another pass.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::claimer::{Claimer, Pass, Views};
use super::identity::{derived_run_id, nth_pass};
use super::restart::{Found, Place, Start, plan_start};
use super::state::may_follow;
use super::work::{Completed, Names, ProtocolStop, Work};
use crate::domain::{
    Bid, Claim, Decision, Digest, Expected, FeedNote, KnownRun, Lease, Lineage, OutputRecord, RunCounts, RunId,
    RunRecord, RunState, RunStore, RunView,
};

/// Passes of one attempt over its feed. After the last one what is held stays held.
const PASSES_MAX: u32 = 3;

/// Attempts of one process: each further one answers to a store whose history changed behind the seal, or to claims
/// whose answers were lost.
const ATTEMPTS_MAX: u32 = 4;

/// What is to be run, by whom.
#[derive(Debug, Clone)]
pub struct RunPlan {
    pub feed: Digest,
    /// SHA-256 over all settings that change what the feed's lines mean.
    pub meaning: Digest,
    /// The feed's file name, for people.
    pub feed_name: String,
    /// The operator's name for the run.
    pub name: Option<RunId>,
    pub key_prefix: String,
    pub host: String,
    pub pid: u32,
    /// The kernel lock on the feed, which is ours.
    pub lock: String,
    /// The absolute folder of the outputs.
    pub folder: String,
    /// Stands as the time in records and markers; nothing is decided by it.
    pub opened_at: String,
    pub lease: Duration,
}

impl RunPlan {
    fn id_of(&self, pass: u32) -> RunId {
        match &self.name {
            Some(name) => nth_pass(name, pass),
            None => derived_run_id(&self.feed, &self.meaning, &self.key_prefix, pass),
        }
    }

    fn place(&self) -> Place<'_> {
        Place { feed: &self.feed, meaning: &self.meaning, host: &self.host, folder: &self.folder, lock: &self.lock }
    }
}

/// The run to do: the first pass over the feed that is not published.
pub fn choose<S, E>(plan: &RunPlan, store: &mut S) -> Result<Start, E>
where
    S: RunStore + ?Sized,
    E: From<S::Error> + From<ProtocolStop>,
{
    let note = store.feed_note(&plan.feed, &plan.meaning)?;
    if let Some(FeedNote { run, .. }) = &note
        && store.run_record(run)?.is_none()
    {
        // Its claims would pass for those of a run that begins now.
        return Err(ProtocolStop::RecordGone { run: run.clone() }.into());
    }
    // Where the latest run over the feed is known, the passes before it need not be asked.
    let (mut run, mut pass) = match note {
        Some(FeedNote { run, pass }) if plan.name.is_none() || run == plan.id_of(pass) => (run, pass),
        Some(_) | None => (plan.id_of(1), 1),
    };
    loop {
        let known = store.run_record(&run)?;
        match plan_start(Found { run, pass, known }, plan.place()).map_err(ProtocolStop::Refused)? {
            Start::NextPass => {}
            start @ (Start::Begin { .. } | Start::GoOn { .. } | Start::Publish(_)) => return Ok(start),
        }
        pass += 1;
        run = plan.id_of(pass);
    }
}

/// Runs `plan` to its end: from its choice to published files. Returns its record.
pub fn execute<S, W>(plan: &RunPlan, store: &mut S, work: &mut W) -> Result<RunRecord, W::Error>
where
    S: RunStore + ?Sized,
    W: Work,
    W::Error: From<S::Error>,
{
    // Before anything is read: what the choice rests on must be in the history that the run then stands in.
    let lineage = store.lineage()?;
    let mut run = match choose::<S, W::Error>(plan, store)? {
        Start::Publish(record) => {
            work.resume(&record)?;
            let mut run = Run { plan, store, work, record: *record };
            let published = run.go_on_publishing();
            return run.leave(published);
        }
        Start::Begin { run, pass } => Run::open(plan, store, work, lineage, None, run, pass)?,
        Start::GoOn { left, lease_over } => {
            let (run, pass) = (left.run.clone(), left.pass);
            Run::open(plan, store, work, lineage, Some((&left, lease_over)), run, pass)?
        }
        Start::NextPass => unreachable!("`choose` goes on to the next pass"),
    };
    match run.decide_and_seal() {
        Ok(lineage) => {
            let published = run.publish(&lineage);
            run.leave(published)
        }
        Err(error) => Err(run.give_up(error)),
    }
}

/// A run that this process does: its record stands in the store, in our name.
#[derive(Debug)]
struct Run<'a, S: ?Sized, W> {
    plan: &'a RunPlan,
    store: &'a mut S,
    work: &'a mut W,
    record: RunRecord,
}

impl<'a, S, W> Run<'a, S, W>
where
    S: RunStore + ?Sized,
    W: Work,
    W::Error: From<S::Error>,
{
    /// Opens the run, or the next attempt at it where an earlier one was `left`.
    fn open(
        plan: &'a RunPlan,
        store: &'a mut S,
        work: &'a mut W,
        lineage: Lineage,
        left: Option<(&RunRecord, bool)>,
        run: RunId,
        pass: u32,
    ) -> Result<Self, W::Error> {
        let mut expected = left.map(|(left, lease_over)| Expected { state: left.state, epoch: left.epoch, lease_over });
        let epoch = left.map_or(1, |(left, _)| left.epoch + 1);
        let mut names = work.names(left.map(|(left, _)| left))?;
        loop {
            let record = first_record(plan, (run.clone(), epoch, pass), names, lineage.clone());
            write_opened::<S, W::Error>(store, expected, &record, plan.lease)?;
            if work.begin(&record)? {
                return Ok(Self { plan, store, work, record });
            }
            // Another run took the names since they were looked up.
            expected = Some(Expected { state: record.state, epoch: record.epoch, lease_over: false });
            names = work.names(None)?;
        }
    }

    /// Changes the run's state in the store, which must still be as we left it.
    fn change_state(&mut self, state: RunState) -> Result<(), W::Error> {
        let before = self.record.state;
        assert!(may_follow(before, state, false), "{before:?} is never followed by {state:?}");
        let changed = RunRecord { state, ..self.record.clone() };
        self.write(changed)
    }

    /// Writes `changed`, a record of the same attempt.
    fn write(&mut self, changed: RunRecord) -> Result<(), W::Error> {
        let expected = Expected { state: self.record.state, epoch: self.record.epoch, lease_over: false };
        if !self.store.write_run(Some(expected), &changed, None)? {
            return Err(overtaken(self.store, changed.run)?);
        }
        self.record = changed;
        Ok(())
    }

    fn note_state(&mut self) -> Result<(), W::Error> {
        let event = format!("run.{}", self.record.state.name().to_lowercase());
        self.work.note(&event, json!({ "epoch": self.record.epoch }))
    }

    fn unsettled(&self) -> W::Error {
        ProtocolStop::Unsettled { run: self.record.run.clone() }.into()
    }

    /// Decides every record, completes the outputs, and seals; returns the history that the seal stands in.
    fn decide_and_seal(&mut self) -> Result<Lineage, W::Error> {
        let RunRecord { run, pass, .. } = &self.record;
        let note = FeedNote { run: run.clone(), pass: *pass };
        self.store.write_feed_note(&self.plan.feed, &self.plan.meaning, &note)?;
        for attempt in 1..=ATTEMPTS_MAX {
            let answers_lost = self.store.answers_lost();
            let (lineage, differing) = self.decide()?;
            if !differing.is_empty() {
                // The markers of a published run are exactly what it accepted.
                self.store.release(&self.record.run, self.record.epoch, &differing)?;
            }
            let completed = self.work.complete(&self.record)?;
            // A claim that was asked again may arrive once more when its record is free again, and would pass for one
            // that this attempt accepted. The next one leaves it behind. A network that fails in every attempt must not
            // keep the run from its end.
            let may_stray = self.store.answers_lost() != answers_lost && leaves_records(&completed.counts);
            if may_stray && attempt < ATTEMPTS_MAX {
                self.open_anew()?;
                continue;
            }
            self.store.check_intact()?;
            self.seal(completed)?;
            self.store.confirm()?;
            // A server that took over in the meantime may lack claims that were made before it did.
            if self.store.lineage()? == lineage {
                self.store.check_intact()?;
                self.note_state()?;
                return Ok(lineage);
            }
            self.open_anew()?;
        }
        Err(self.unsettled())
    }

    /// Goes over the feed until nothing that a decision rests on has changed meanwhile. Returns the history that it
    /// rests on, and the claims that are to be freed.
    fn decide(&mut self) -> Result<(Lineage, Vec<Claim>), W::Error> {
        for pass in 1..=PASSES_MAX {
            let lineage = self.store.lineage()?;
            let bid: Bid = Arc::new(self.record.owner());
            let mut claimer = Claimer::new(&mut *self.store, bid, lineage.clone());
            // The records of a feed that is ingested again are mostly those of the pass before.
            if self.record.pass > 1 {
                claimer.expect(&self.plan.id_of(self.record.pass - 1))?;
            }
            self.work.decide(&self.record, &mut |claims| claimer.claim(claims))?;
            let Pass { views, taken_over, differing } = claimer.finish();
            self.note_takeovers(taken_over)?;
            self.name_suppressors(&views, pass > 1)?;
            let moved = self.moved(&views)?;
            let is_settled = match moved {
                Moved::Nothing => true,
                Moved::Holders => pass == PASSES_MAX,
                Moved::Suppressors => false,
            };
            if is_settled && self.store.lineage()? == lineage {
                return Ok((lineage, differing));
            }
        }
        Err(self.unsettled())
    }

    fn note_takeovers(&mut self, taken_over: BTreeMap<RunId, u64>) -> Result<(), W::Error> {
        for (run, claims) in taken_over {
            let fields = json!({ "epoch": self.record.epoch, "from": run.as_str(), "claims": claims });
            self.work.note("claim.taken_over", fields)?;
        }
        Ok(())
    }

    /// Writes down which published runs records are suppressed against.
    ///
    /// Before their states are read again: either we see that one was reverted, or whoever reverts it sees our name. A
    /// server that took over since the pass before may lack what was written then, so it is written `again`.
    fn name_suppressors(&mut self, views: &Views, again: bool) -> Result<(), W::Error> {
        let published = views.all().filter(|(_, view)| view.is_some_and(|view| view.state == RunState::Published));
        let suppressed_against: Vec<RunId> = published.map(|(run, _)| run.clone()).collect();
        let is_known = suppressed_against == self.record.suppressed_against;
        if is_known && (suppressed_against.is_empty() || !again) {
            return Ok(());
        }
        assert!(may_follow(self.record.state, self.record.state, false), "only an open run names its suppressors");
        self.write(RunRecord { suppressed_against, ..self.record.clone() })
    }

    /// Whether a run by which records were judged would be judged otherwise now.
    fn moved(&mut self, views: &Views) -> Result<Moved, W::Error> {
        let mut moved = Moved::Nothing;
        for (run, before) in views.all() {
            let now = self.store.run_record(run)?;
            moved = moved.max(has_moved(before, now.as_ref()));
        }
        Ok(moved)
    }

    fn seal(&mut self, completed: Completed) -> Result<(), W::Error> {
        assert!(may_follow(self.record.state, RunState::Sealed, false), "an open run is sealed");
        let Completed { counts, outputs, audit_chain } = completed;
        let audit_chain = Some(audit_chain);
        self.write(RunRecord { state: RunState::Sealed, counts, outputs, audit_chain, ..self.record.clone() })
    }

    /// Begins the next attempt at a run that is complete and must not be published: what it rests on may be lost, or
    /// claims of it may be under way.
    fn open_anew(&mut self) -> Result<(), W::Error> {
        let run = self.record.run.clone();
        let known = self.store.run_record(&run)?;
        let Some(KnownRun { record: left, .. }) = known.filter(|known| known.record.epoch == self.record.epoch) else {
            return Err(overtaken(self.store, run)?);
        };
        // The seal itself may be what was lost.
        if !matches!(left.state, RunState::Sealed | RunState::Open) {
            return Err(overtaken(self.store, run)?);
        }
        let names = Names { folder: left.folder.clone(), stem: left.stem.clone() };
        let lineage = self.store.lineage()?;
        let record = first_record(self.plan, (run.clone(), left.epoch + 1, left.pass), names, lineage);
        let expected = Expected { state: left.state, epoch: left.epoch, lease_over: false };
        write_opened::<S, W::Error>(self.store, Some(expected), &record, self.plan.lease)?;
        self.record = record;
        // The names are ours already.
        match self.work.begin(&self.record)? {
            true => Ok(()),
            false => Err(self.unsettled()),
        }
    }

    /// Renames the outputs, between the two states that say so. The seal stands in the history `lineage`.
    fn publish(&mut self, lineage: &Lineage) -> Result<(), W::Error> {
        // A folder that was taken away is noticed while another may still be given.
        self.work.check_waiting(&self.record)?;
        self.change_state(RunState::Publishing)?;
        self.note_state()?;
        let due = self.record.outputs.clone();
        self.rename_all(&due, lineage)
    }

    /// Goes on with renames that an earlier attempt began.
    fn go_on_publishing(&mut self) -> Result<(), W::Error> {
        let lineage = self.store.lineage()?;
        let known = self.store.run_record(&self.record.run)?;
        if known.is_none_or(|known| known.record != self.record) {
            return Err(overtaken(self.store, self.record.run.clone())?);
        }
        // Who resolves the run by hand must see that somebody is at it, or must have changed its state before.
        if !self.store.renew_lease(&self.record.run, self.record.epoch, self.plan.lease)? {
            return Err(overtaken(self.store, self.record.run.clone())?);
        }
        match self.work.were_published(&self.record)? {
            true => self.end(),
            false => {
                let due = self.due()?;
                self.rename_all(&due, &lineage)
            }
        }
    }

    /// The outputs that an earlier attempt left without their names. All are looked at before the first gets its own.
    fn due(&mut self) -> Result<Vec<OutputRecord>, W::Error> {
        let mut due = Vec::new();
        for output in &self.record.outputs {
            if self.work.is_waiting(&self.record, output)? {
                due.push(output.clone());
            } else if !self.work.is_standing(&self.record, output)? {
                return Err(ProtocolStop::Stuck { run: self.record.run.clone(), output: output.name.clone() }.into());
            }
        }
        Ok(due)
    }

    /// Gives the outputs in `due` their names.
    fn rename_all(&mut self, due: &[OutputRecord], lineage: &Lineage) -> Result<(), W::Error> {
        // From the first rename on nobody else may go on with the run, whatever server answers them.
        self.store.confirm()?;
        if self.store.lineage()? != *lineage {
            return Err(self.unsettled());
        }
        let (run, epoch) = (self.record.run.clone(), self.record.epoch);
        for (index, output) in due.iter().enumerate() {
            // The last name says that the files are to be used. Who slept for longer than the lease may find the run
            // taken back; from here on nobody may do so before the lease is over once more.
            let is_last = index + 1 == due.len();
            if is_last && !self.store.renew_lease(&run, epoch, self.plan.lease)? {
                return Err(overtaken(self.store, run)?);
            }
            self.work.rename(&self.record, output)?;
        }
        self.work.sync_names(&self.record)?;
        // From here on the files may be taken away: who goes on after a crash must know that they were there.
        self.work.note("files.published", json!({ "epoch": self.record.epoch }))?;
        self.end()
    }

    fn end(&mut self) -> Result<(), W::Error> {
        self.change_state(RunState::Published)?;
        // A published run is done, whether its journal says so or not.
        let _ = self.note_state();
        Ok(())
    }

    /// Leaves a sealed run, published or not. Of one that is not, the files stay as they are, and so do the claims.
    fn leave(self, published: Result<(), W::Error>) -> Result<RunRecord, W::Error> {
        let Err(error) = published else { return Ok(self.record) };
        self.work.let_lease_go();
        if self.work.is_of_the_store(&error) {
            return Err(W::unfinished(error));
        }
        // What went wrong may be what another worker did. If the store cannot say so, the error says what it can.
        if let Ok(Some(KnownRun { record: now, .. })) = self.store.run_record(&self.record.run)
            && (now.state, now.epoch) != (self.record.state, self.record.epoch)
        {
            return Err(ended_elsewhere(self.record, now.state).into());
        }
        // Whoever goes on with it, or resolves it by hand, need not wait for a worker that has ended.
        let _ = self.store.renew_lease(&self.record.run, self.record.epoch, Duration::ZERO);
        Err(W::unfinished(error))
    }

    /// Leaves a run that cannot go on: no half-written file, no lease, and no claim of a run that its feed stopped.
    fn give_up(mut self, error: W::Error) -> W::Error {
        self.work.abandon(&self.record, &error);
        if self.work.is_of_the_feed(&error) {
            return self.fence_and_free().err().unwrap_or(error);
        }
        if !self.work.is_of_the_store(&error) {
            // Whoever may go on need not wait; if this cannot be said, the lease ends by itself.
            let _ = self.store.renew_lease(&self.record.run, self.record.epoch, Duration::ZERO);
        }
        error
    }

    /// Bars the run from sealing, then frees its claims: another feed must not find them and wait.
    fn fence_and_free(&mut self) -> Result<(), W::Error> {
        self.change_state(RunState::Fenced)?;
        self.note_state()?;
        let RunRecord { run, epoch, .. } = &self.record;
        let (store, mut freed) = (&mut *self.store, 0);
        self.work.all_claims(&mut |claims| {
            freed += store.release(run, *epoch, claims)?;
            Ok(())
        })?;
        self.work.note("claims.freed", json!({ "claims": freed }))
    }
}

/// Writes the record of an attempt that begins, before its first file and its first claim: whoever finds one of them
/// finds it.
fn write_opened<S, E>(store: &mut S, expected: Option<Expected>, record: &RunRecord, lease: Duration) -> Result<(), E>
where
    S: RunStore + ?Sized,
    E: From<S::Error> + From<ProtocolStop>,
{
    if !store.write_run(expected, record, Some(lease))? {
        return Err(overtaken(store, record.run.clone())?);
    }
    store.confirm()?;
    // A server that took over in between need not have the record: nothing may stand that leads to it.
    if store.lineage()? != record.lineage {
        return Err(ProtocolStop::Unsettled { run: record.run.clone() }.into());
    }
    Ok(())
}

/// The record of an attempt that begins: run, epoch and pass, and where its outputs go.
fn first_record(
    plan: &RunPlan,
    (run, epoch, pass): (RunId, u32, u32),
    Names { folder, stem }: Names,
    lineage: Lineage,
) -> RunRecord {
    RunRecord {
        run,
        state: RunState::Open,
        epoch,
        pass,
        feed_digest: plan.feed,
        feed_name: plan.feed_name.clone(),
        meaning: plan.meaning,
        opened_at: plan.opened_at.clone(),
        host: plan.host.clone(),
        pid: plan.pid,
        lock: plan.lock.clone(),
        lineage,
        folder,
        stem,
        suppressed_against: Vec::new(),
        counts: [0; 6],
        outputs: Vec::new(),
        audit_chain: None,
    }
}

/// Why the record of `run` is not as it was left: another worker changed it, or the store forgot it.
fn overtaken<S, E>(store: &mut S, run: RunId) -> Result<E, S::Error>
where
    S: RunStore + ?Sized,
    E: From<ProtocolStop>,
{
    store.check_intact()?;
    Ok(ProtocolStop::Overtaken { run }.into())
}

/// Why the sealed run that was left as `ours` is not to be ended by us: it is in the state `now`, or in a later attempt.
fn ended_elsewhere(ours: RunRecord, now: RunState) -> ProtocolStop {
    let RunRecord { run, state, folder, stem, .. } = ours;
    match (state, now) {
        (RunState::Publishing, RunState::Reverted) => {
            ProtocolStop::TakenBack { run, files: Some(Names { folder, stem }) }
        }
        (_, RunState::Reverted) => ProtocolStop::TakenBack { run, files: None },
        (RunState::Publishing, RunState::Published) => ProtocolStop::Ended { run },
        _ => ProtocolStop::Overtaken { run },
    }
}

/// Whether records were claimed that the run did not accept.
fn leaves_records(counts: &RunCounts) -> bool {
    [Decision::Suppressed, Decision::Conflict, Decision::Held].iter().any(|decision| counts[decision.index()] > 0)
}

/// What has changed of the runs that own markers, since records were judged by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moved {
    Nothing,
    /// One that held records may be decided by now.
    Holders,
    /// One that suppressed records is not published any more.
    Suppressors,
}

fn has_moved(before: Option<&RunView>, now: Option<&KnownRun>) -> Moved {
    let state = |known: &KnownRun| (known.record.state, known.record.epoch);
    match before.map(|view| (view.state, view.epoch)) {
        Some(published @ (RunState::Published, _)) => match now.map(state) == Some(published) {
            true => Moved::Nothing,
            false => Moved::Suppressors,
        },
        // What could be taken over of it is ours.
        Some((RunState::Fenced | RunState::Reverted, _)) => Moved::Nothing,
        None | Some((RunState::Open | RunState::Sealed | RunState::Publishing, _)) => {
            match now.map(|known| (known.record.state, known.lease)) {
                Some((RunState::Open, Lease::Over)) => Moved::Holders,
                Some((RunState::Published | RunState::Fenced | RunState::Reverted, _)) => Moved::Holders,
                None | Some((RunState::Open | RunState::Sealed | RunState::Publishing, _)) => Moved::Nothing,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_a_decision_has_moved() {
        use RunState::{Fenced, Open, Published, Publishing, Reverted, Sealed};
        let mut record = RunRecord::sample("r-1", Open);
        let mut check = |before: Option<RunState>, now: Option<(RunState, Lease)>| {
            let view = before.map(|state| RunView { state, epoch: 1, feed_name: String::new() });
            let known = now.map(|(state, lease)| {
                record.state = state;
                KnownRun { record: record.clone(), lease }
            });
            has_moved(view.as_ref(), known.as_ref())
        };
        let running = Lease::Running { left: Duration::from_secs(1) };
        for state in [Open, Sealed, Publishing] {
            assert_eq!(check(Some(Published), Some((state, running))), Moved::Suppressors);
            assert_eq!(check(Some(state), Some((Open, running))), Moved::Nothing);
            assert_eq!(check(Some(state), Some((Open, Lease::Unknown))), Moved::Nothing);
            assert_eq!(check(Some(state), Some((Open, Lease::Over))), Moved::Holders);
            assert_eq!(check(Some(state), Some((Sealed, Lease::Over))), Moved::Nothing);
            assert_eq!(check(Some(state), None), Moved::Nothing);
            for end in [Published, Fenced, Reverted] {
                assert_eq!(check(Some(state), Some((end, running))), Moved::Holders);
            }
        }
        assert_eq!(check(Some(Published), Some((Published, Lease::Over))), Moved::Nothing);
        assert_eq!(check(Some(Published), Some((Reverted, running))), Moved::Suppressors);
        assert_eq!(check(Some(Published), None), Moved::Suppressors);
        assert_eq!(check(Some(Fenced), Some((Open, running))), Moved::Nothing);
        assert_eq!(check(None, Some((Published, running))), Moved::Holders);
        assert_eq!(check(None, None), Moved::Nothing);
    }
}
