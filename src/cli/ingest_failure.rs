//! What ends a run early, in the operator's words: exit code, causes, hint.

use std::error::Error as _;

use super::failure::{ExitCode, Failure, REPEAT_TO_GO_ON};
use super::summary;
use crate::input::InputError;
use crate::output::OutputError;
use crate::pipeline::IngestError;
use crate::run::{FeedLockError, GateFailure, Names, ProtocolStop, StartRefusal};

/// What stands after a failure that leaves the run open.
const GOES_ON: &str = "nothing of this feed is published: mend the cause and repeat the command, the run goes on";

impl From<IngestError> for Failure {
    fn from(error: IngestError) -> Self {
        let words = error.to_string();
        let source = error.source().map(ToString::to_string);
        let failure = match error {
            IngestError::Store(error) => return Self::from(error),
            IngestError::Input(error) => of_input(&error, words),
            IngestError::Output(error) => of_output(&error, words),
            IngestError::Journal(error) => Self::new(ExitCode::of_write_error(&error.source), words).hint(GOES_ON),
            IngestError::Lock(error) => of_lock(&error, words),
            IngestError::Protocol(stop) => of_protocol(&stop, words),
            IngestError::Gate(stop) => {
                let hint = match stop.failure {
                    GateFailure::Conflicts { .. } => {
                        "nothing is published and no claim is kept: repeat the command with `--dry-run` and \
                         `--conflict-limit 100` to see what differs"
                    }
                    GateFailure::Records { .. } | GateFailure::Total { .. } | GateFailure::Rejects { .. } => {
                        "nothing is published and no claim is kept: correct the feed, the profile or the expectation"
                    }
                };
                let failure = Self::unfit_feed(words).hint(hint);
                let reject = stop.first_reject.iter().map(|note| summary::reject_line(&stop.feed, note));
                let conflict = stop.first_conflict.iter().map(|note| summary::conflict_line(&stop.feed, note));
                reject.chain(conflict).fold(failure, Self::caused_by)
            }
            IngestError::Interrupted { signal, .. } => {
                Self::new(ExitCode::of_signal(signal), words).hint(REPEAT_TO_GO_ON)
            }
            IngestError::Unfinished(error) => return of_unfinished(*error),
            IngestError::ControlTotals | IngestError::Panicked | IngestError::WriterGone => {
                Self::new(ExitCode::Bug, words)
                    .hint("nothing of this feed is published: please report this with the feed's size and format")
            }
        };
        source.into_iter().fold(failure, Self::caused_by)
    }
}

/// A failure behind the seal, where it is not true any more that nothing is published.
fn of_unfinished(error: IngestError) -> Failure {
    if matches!(error, IngestError::Protocol(ProtocolStop::Overtaken { .. })) {
        // The run is not ours to go on with.
        return Failure::from(error);
    }
    let needs_a_person = matches!(
        error,
        IngestError::Protocol(ProtocolStop::Stuck { .. }) | IngestError::Output(OutputError::Occupied { .. })
    );
    let failure = Failure::from(error);
    let failure = match (needs_a_person, failure.exit) {
        (true, _) => failure,
        (false, ExitCode::StoreForgot) => failure.hint("put the newest copy of the store back and repeat the command"),
        (false, _) => failure.hint("repeat the command, it goes on with publishing"),
    };
    failure.hinted("the run is sealed, and its files are not to be used before its `summary.json` is there")
}

fn of_protocol(stop: &ProtocolStop, words: String) -> Failure {
    match stop {
        ProtocolStop::Refused(refusal) => of_refusal(refusal, words),
        ProtocolStop::Overtaken { .. } => Failure::new(ExitCode::TryLater, words)
            .hint("nothing was published by this process: let the other worker finish, then repeat the command"),
        ProtocolStop::TakenBack { files: None, .. } => Failure::new(ExitCode::TryLater, words)
            .hint("nothing of it is published: repeat the command, and its records are decided anew"),
        ProtocolStop::TakenBack { files: Some(Names { folder, stem }), .. } => {
            Failure::new(ExitCode::TryLater, words).hint(format!(
                "its files must not be posted: move those of `{stem}.*` out of `{folder}`, and repeat the command, which \
                 decides its records anew"
            ))
        }
        ProtocolStop::Ended { .. } => Failure::new(ExitCode::TryLater, words)
            .hint("it is published: nothing is left to do"),
        ProtocolStop::RecordGone { .. } => Failure::new(ExitCode::StoreForgot, words).hint(
            "nothing of this input is published: put the newest copy of the store back before anything is ingested again",
        ),
        ProtocolStop::Unsettled { .. } => {
            Failure::new(ExitCode::TryLater, words).hint(REPEAT_TO_GO_ON)
        }
        ProtocolStop::Stuck { run, .. } => Failure::new(ExitCode::StoreForgot, words).hint(format!(
            "put the files of the run back into its folder as they were, and repeat the command; or say what became of \
             them with `feeddedup resolve {run} --published` or `--lost`"
        )),
    }
}

fn of_refusal(refusal: &StartRefusal, words: String) -> Failure {
    match refusal {
        StartRefusal::OtherFeed { .. } => Failure::usage(words).hint("give another `--run-id`, or none"),
        StartRefusal::OtherProfile { .. } => {
            Failure::usage(words).hint("give the profile of the run, or another `--run-id`, or none")
        }
        StartRefusal::Running { lease_left: Some(left), .. } => Failure::new(ExitCode::TryLater, words).hint(format!(
            "let it finish; if its worker is dead, repeat the command in {} s, when its lease is over",
            left.as_secs() + 1
        )),
        StartRefusal::Running { lease_left: None, .. } => Failure::new(ExitCode::TryLater, words)
            .hint("let it finish; whether its worker is alive is not known: repeat the command on that host"),
        StartRefusal::PublishingElsewhere { run, .. } => Failure::new(ExitCode::TryLater, words).hint(format!(
            "repeat the command there, with the same output folder; if that is gone, say what became of its files with \
             `feeddedup resolve {run} --published` or `--lost`"
        )),
    }
}

fn of_input(error: &InputError, words: String) -> Failure {
    match error {
        InputError::CannotOpen { .. } => Failure::new(ExitCode::NoInput, words),
        InputError::Read { .. } => Failure::new(ExitCode::InputOutput, words).hint(GOES_ON),
        InputError::Unreadable { hint, .. } => {
            let failure = Failure::unfit_feed(words);
            match hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        }
        InputError::Changed { .. } => Failure::unfit_feed(words).hint(
            "nothing is published and the claims are freed: repeat the command once the feed is complete and nobody \
             writes to it",
        ),
    }
}

fn of_output(error: &OutputError, words: String) -> Failure {
    match error {
        OutputError::CannotCreate { .. } => Failure::new(ExitCode::CannotCreate, words)
            .hint("nothing of this feed is published: give a folder that can be written to with `--out-dir`"),
        OutputError::Write { source, .. } => Failure::new(ExitCode::of_write_error(source), words).hint(GOES_ON),
        OutputError::Occupied { .. } => Failure::new(ExitCode::CannotCreate, words)
            .hint("move the file away and repeat the command, the run goes on"),
    }
}

fn of_lock(error: &FeedLockError, words: String) -> Failure {
    match error {
        FeedLockError::Held { .. } => {
            Failure::new(ExitCode::TryLater, words).hint("let it finish: the feed is decided there")
        }
        FeedLockError::Io { source, .. } => Failure::new(ExitCode::of_write_error(source), words),
    }
}
