//! What an operator does with a run: takes it back, or says what became of one whose host is gone.

use super::claimer::fence_if_expired;
use crate::domain::{Expected, KnownRun, Lease, Lineage, RunId, RunRecord, RunState, RunStore};

/// The runs that suppressed records because of another one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dependents {
    /// Their outputs stand, and hold records nowhere else: these would be lost.
    pub published: Vec<RunRecord>,
    /// They may still be published so.
    pub unpublished: Vec<RunRecord>,
    /// Open ones whose lease is over: they may be barred from sealing, and decide anew when they are repeated.
    pub abandoned: Vec<RunRecord>,
}

impl Dependents {
    fn add(&mut self, KnownRun { record, lease }: KnownRun, run: &RunId) {
        if !record.suppressed_against.contains(run) {
            return;
        }
        match record.state {
            RunState::Published => self.published.push(record),
            RunState::Open if lease == Lease::Over => self.abandoned.push(record),
            RunState::Open | RunState::Sealed | RunState::Publishing => self.unpublished.push(record),
            // It will decide anew, or never.
            RunState::Fenced | RunState::Reverted => {}
        }
    }
}

/// Why nothing, or not all, was done.
#[derive(Debug, PartialEq, Eq)]
pub enum TakeBackStop<E> {
    Store(E),
    /// The store knows no such run.
    Unknown {
        run: RunId,
    },
    /// It is in a state in which this cannot be done.
    WrongState {
        record: Box<RunRecord>,
    },
    /// Its worker has shown itself lately.
    Running {
        record: Box<RunRecord>,
    },
    /// Another worker changed it in the meantime.
    Overtaken {
        run: RunId,
    },
    /// Another server took over in the meantime: it may lack what was read or written before it did.
    Unsettled {
        run: RunId,
    },
    /// Published runs suppressed records because of it.
    Needed {
        run: RunId,
        by: Vec<RunRecord>,
    },
    /// Runs that may be published at any time suppress records because of it.
    NeededSoon {
        run: RunId,
        by: Vec<RunRecord>,
    },
}

impl<E> From<E> for TakeBackStop<E> {
    fn from(error: E) -> Self {
        Self::Store(error)
    }
}

/// A run that was taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenBack {
    pub record: RunRecord,
    /// How many claims were freed, by this call.
    pub freed: u64,
    pub dependents: Dependents,
    /// Whether an earlier call had taken it back already.
    pub was_reverted: bool,
}

/// What became of a run that was left between its renames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// Its outputs reached whoever posts them.
    Published,
    /// Nobody has seen them, nor ever will.
    Lost,
}

/// The runs that suppress records because of `run`.
pub fn dependents_of<S: RunStore + ?Sized>(store: &mut S, run: &RunId) -> Result<Dependents, S::Error> {
    let mut dependents = Dependents::default();
    store.each_run(&mut |known| dependents.add(known, run))?;
    Ok(dependents)
}

/// The same, once those are barred from sealing whose worker is gone: nobody may ever repeat them.
fn bar_abandoned<S: RunStore + ?Sized>(store: &mut S, run: &RunId) -> Result<Dependents, S::Error> {
    let mut dependents = dependents_of(store, run)?;
    let abandoned = std::mem::take(&mut dependents.abandoned);
    for record in &abandoned {
        let record = fence_if_expired(store, KnownRun { record: record.clone(), lease: Lease::Over })?;
        // One that woke up counts as running.
        dependents.add(KnownRun { record, lease: Lease::Unknown }, run);
    }
    if !abandoned.is_empty() {
        store.confirm()?;
    }
    Ok(dependents)
}

/// The record of `run`, if it can be taken back: it is sealed or published, or was taken back already.
pub fn find_revertible<S: RunStore + ?Sized>(store: &mut S, run: &RunId) -> Result<RunRecord, TakeBackStop<S::Error>> {
    let record = known(store, run)?.record;
    match record.state {
        RunState::Sealed | RunState::Published | RunState::Reverted => Ok(record),
        RunState::Open | RunState::Publishing | RunState::Fenced => {
            Err(TakeBackStop::WrongState { record: Box::new(record) })
        }
    }
}

/// Takes `run` back: it counts as never published, and its claims are free.
///
/// Refused while other runs suppress records because of it, which would be in no accepted output then; those that are
/// published already are passed over if their records are to be handed out again. May be repeated after a crash.
pub fn revert<S: RunStore + ?Sized>(
    store: &mut S,
    run: &RunId,
    release_suppressed: bool,
) -> Result<TakenBack, TakeBackStop<S::Error>> {
    let lineage = store.lineage()?;
    let record = find_revertible(store, run)?;
    let was_reverted = record.state == RunState::Reverted;
    if !was_reverted {
        let Dependents { published, unpublished, .. } = bar_abandoned(store, run)?;
        if !unpublished.is_empty() {
            return Err(TakeBackStop::NeededSoon { run: run.clone(), by: unpublished });
        }
        if !published.is_empty() && !release_suppressed {
            return Err(TakeBackStop::Needed { run: run.clone(), by: published });
        }
    }
    let record = take_back(store, record, false, &lineage)?;
    let freed = store.release_run(run)?;
    // Once more: a run that wrote down our name before the state changed may not have looked at the state again.
    let dependents = bar_abandoned(store, run)?;
    settle(store, run, &lineage)?;
    Ok(TakenBack { record, freed, dependents, was_reverted })
}

/// Ends a run that was left between its renames, as the operator knows it ended. May be repeated after a crash.
pub fn resolve<S: RunStore + ?Sized>(
    store: &mut S,
    run: &RunId,
    resolution: Resolution,
) -> Result<TakenBack, TakeBackStop<S::Error>> {
    let lineage = store.lineage()?;
    let KnownRun { record, lease } = known(store, run)?;
    let was_reverted = record.state == RunState::Reverted;
    let as_wanted = match resolution {
        Resolution::Published => record.state == RunState::Published,
        Resolution::Lost => was_reverted,
    };
    if record.state != RunState::Publishing && !as_wanted {
        return Err(TakeBackStop::WrongState { record: Box::new(record) });
    }
    if record.state == RunState::Publishing && matches!(lease, Lease::Running { .. }) {
        return Err(TakeBackStop::Running { record: Box::new(record) });
    }
    // A worker may take it up again at any time: then the lease runs, and what was true of it is true no more.
    let lease_over = lease == Lease::Over;
    let (record, freed) = match resolution {
        Resolution::Published => {
            let record = change(store, record, RunState::Published, lease_over)?;
            settle(store, run, &lineage)?;
            (record, 0)
        }
        Resolution::Lost => (take_back(store, record, lease_over, &lineage)?, store.release_run(run)?),
    };
    Ok(TakenBack { record, freed, dependents: Dependents::default(), was_reverted })
}

fn known<S: RunStore + ?Sized>(store: &mut S, run: &RunId) -> Result<KnownRun, TakeBackStop<S::Error>> {
    store.run_record(run)?.ok_or_else(|| TakeBackStop::Unknown { run: run.clone() })
}

/// Before any claim is freed the replicas know that the run is taken back: otherwise it might come to life again.
fn take_back<S: RunStore + ?Sized>(
    store: &mut S,
    record: RunRecord,
    lease_over: bool,
    lineage: &Lineage,
) -> Result<RunRecord, TakeBackStop<S::Error>> {
    let record = change(store, record, RunState::Reverted, lease_over)?;
    settle(store, &record.run, lineage)?;
    Ok(record)
}

/// Waits until the replicas know all that was written for `run`, in the history `lineage` in which it was read.
fn settle<S: RunStore + ?Sized>(store: &mut S, run: &RunId, lineage: &Lineage) -> Result<(), TakeBackStop<S::Error>> {
    store.confirm()?;
    // A server that took over may lack what was written, and have the run come to life again.
    match store.lineage()? == *lineage {
        true => Ok(()),
        false => Err(TakeBackStop::Unsettled { run: run.clone() }),
    }
}

fn change<S: RunStore + ?Sized>(
    store: &mut S,
    record: RunRecord,
    state: RunState,
    lease_over: bool,
) -> Result<RunRecord, TakeBackStop<S::Error>> {
    if record.state == state {
        return Ok(record);
    }
    assert!(super::may_follow(record.state, state, false), "{:?} is never followed by {state:?}", record.state);
    let expected = Expected { state: record.state, epoch: record.epoch, lease_over };
    let changed = RunRecord { state, ..record };
    match store.write_run(Some(expected), &changed, None)? {
        true => Ok(changed),
        false => Err(TakeBackStop::Overtaken { run: changed.run }),
    }
}
