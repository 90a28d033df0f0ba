//! What keeps a run from being taken back or resolved, in the operator's words: exit code, causes, hint.

use std::error::Error as _;

use super::failure::{ExitCode, Failure};
use super::used_store;
use crate::domain::{RunRecord, RunState};
use crate::input::InputError;
use crate::output::OutputError;
use crate::pipeline::{IngestError, ReleaseError, TakeBackError};
use crate::run::TakeBackStop;
use crate::store::StoreError;

/// Most runs that the operator is told of by name.
const RUNS_TOLD_MAX: usize = 10;

/// What was to be done with the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Revert,
    Resolve,
}

/// `error`, which kept `deed` from being done.
pub(super) fn failure(error: TakeBackError, deed: Deed) -> Failure {
    match error {
        TakeBackError::Stop(stop) => of_stop(stop, deed),
        TakeBackError::Lock(error) => Failure::from(IngestError::Lock(error)),
        TakeBackError::Release(error) => of_release(error).hinted("nothing was changed in the store"),
    }
}

/// The failure of a command that names a run which the store does not know.
pub(super) fn unknown(run: &crate::domain::RunId) -> Failure {
    Failure::usage(format!("the store knows no run `{run}`")).hint("`feeddedup runs` lists those that it knows")
}

/// Published runs that stand in the way. The command line has to say something else, and so it is a wrong one: status 3
/// would pass for done, and 75 for a thing that mends itself.
pub(super) fn needed(run: &crate::domain::RunId, by: &[RunRecord]) -> Failure {
    Failure::usage(format!("published runs suppressed records because of run `{run}`: {}", names(by)))
        .hint("nothing was changed: with `--release-suppressed` those records are written to files for ingestion")
}

/// Runs in the way that are not published yet.
pub(super) fn needed_soon(run: &crate::domain::RunId, by: &[RunRecord]) -> Failure {
    Failure::new(
        ExitCode::TryLater,
        format!("runs that are not published yet suppress records because of run `{run}`: {}", names(by)),
    )
    .hint("nothing was changed: bring them to their end by repeating their commands, then repeat this one")
}

/// The run is taken back, and runs that were about to be published when its state changed may be published still.
pub(super) fn not_done_yet(run: &crate::domain::RunId, by: &[RunRecord]) -> Failure {
    Failure::new(
        ExitCode::TryLater,
        format!(
            "run `{run}` is taken back, but runs that are not published yet suppress records because of it: {}",
            names(by)
        ),
    )
    .hint(
        "bring them to their end by repeating their commands, then repeat this one with `--release-suppressed`, which \
         hands out what they suppressed",
    )
}

/// The run is taken back, and nobody said what is to become of what others suppressed because of it.
pub(super) fn not_released(run: &crate::domain::RunId, by: &[RunRecord]) -> Failure {
    Failure::usage(format!(
        "run `{run}` is taken back, and published runs suppressed records because of it: {}",
        names(by)
    ))
    .hint("repeat the command with `--release-suppressed`, which writes those records to files for ingestion")
}

/// The run is taken back, and what was suppressed because of it could not be handed out.
pub(super) fn late(error: ReleaseError) -> Failure {
    of_release(error).hinted("the run is taken back: mend the cause and repeat the command")
}

/// `a`, `b`, and how many more.
pub(super) fn names(runs: &[RunRecord]) -> String {
    let named = runs.iter().take(RUNS_TOLD_MAX).map(|record| format!("`{}`", record.run));
    let rest = runs.len().saturating_sub(RUNS_TOLD_MAX);
    let rest = (rest > 0).then(|| format!("and {rest} more"));
    named.chain(rest).collect::<Vec<_>>().join(", ")
}

fn of_stop(stop: TakeBackStop<StoreError>, deed: Deed) -> Failure {
    match stop {
        TakeBackStop::Store(error) => used_store::failure(error),
        TakeBackStop::Unknown { run } => unknown(&run),
        TakeBackStop::WrongState { record } => wrong_state(&record, deed),
        TakeBackStop::Running { record } => {
            let RunRecord { run, host, pid, .. } = *record;
            Failure::new(
                ExitCode::TryLater,
                format!("run `{run}` is being published by process {pid} on {host}, whose lease is not over"),
            )
            .hint("let it finish; if its worker is dead, `feeddedup runs` says when its lease is over: repeat then")
        }
        TakeBackStop::Overtaken { run } => {
            Failure::new(ExitCode::TryLater, format!("another worker changed run `{run}` in the meantime"))
                .hint("repeat the command")
        }
        TakeBackStop::Unsettled { run } => Failure::new(
            ExitCode::TryLater,
            format!("another server took over while the state of run `{run}` was being changed"),
        )
        .hint("repeat the command: it may have been done in part, and finds what stands"),
        TakeBackStop::Needed { run, by } => needed(&run, &by),
        TakeBackStop::NeededSoon { run, by } => needed_soon(&run, &by),
    }
}

fn wrong_state(record: &RunRecord, deed: Deed) -> Failure {
    let RunRecord { run, state, feed_name, host, folder, .. } = record;
    let can_be = match deed {
        Deed::Revert => "only a sealed or published run can be taken back",
        Deed::Resolve => "only a run in the middle of its publishing can be resolved so",
    };
    let failure = Failure::usage(format!("run `{run}` is {}, and {can_be}", state.name()));
    failure.hint(match state {
        RunState::Open | RunState::Sealed => {
            format!("nothing of it is published: repeat its command over `{feed_name}` to bring it to its end")
        }
        RunState::Fenced => format!(
            "nothing of it is published, and its claims are free or may be taken over: repeat its command over \
             `{feed_name}`, or leave it"
        ),
        RunState::Publishing => format!(
            "repeat its command over `{feed_name}` on {host} with the folder `{folder}`; if that is gone, say what \
             became of its files with `feeddedup resolve {run} --published` or `--lost`"
        ),
        RunState::Published => format!("to take it back, use `feeddedup revert {run}`"),
        RunState::Reverted => "it counts as never published: its feed may be ingested again".to_owned(),
    })
}

fn of_release(error: ReleaseError) -> Failure {
    let words = error.to_string();
    let source = error.source().map(ToString::to_string);
    let failure = match error {
        ReleaseError::OtherProfile { run, .. } => Failure::usage(words).hint(format!(
            "give the profile of run `{run}` with `--profile`; where runs have different profiles, repeat the command \
             with each"
        )),
        ReleaseError::Missing { run, host, .. } => Failure::new(ExitCode::NoInput, words).hint(format!(
            "put the audit log and the suppressed file of run `{run}` back where they were published, on {host}, and \
             repeat the command there"
        )),
        ReleaseError::Changed { run, .. } | ReleaseError::Uneven { run, .. } => {
            Failure::unfit_feed(words).hint(format!("put the files back as run `{run}` published them"))
        }
        ReleaseError::Read { .. } => Failure::new(ExitCode::InputOutput, words),
        ReleaseError::Input(InputError::CannotOpen { .. }) => Failure::new(ExitCode::NoInput, words),
        ReleaseError::Input(InputError::Read { .. }) => Failure::new(ExitCode::InputOutput, words),
        ReleaseError::Input(InputError::Unreadable { .. } | InputError::Changed { .. }) => Failure::unfit_feed(words),
        ReleaseError::Output(OutputError::CannotCreate { .. } | OutputError::Occupied { .. }) => {
            Failure::new(ExitCode::CannotCreate, words).hint("give a folder that can be written to with `--out-dir`")
        }
        ReleaseError::Output(OutputError::Write { source, .. }) => {
            Failure::new(ExitCode::of_write_error(&source), words)
        }
    };
    source.into_iter().fold(failure, Failure::caused_by)
}
