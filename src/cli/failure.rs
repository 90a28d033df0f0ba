//! Kind of failure to exit code; error, causes and hint to text.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use crate::domain::InterruptSignal;
use crate::store::StoreError;

/// What stands after an interruption, of a dry run too.
pub(super) const REPEAT_TO_GO_ON: &str = "nothing of this feed is published: repeat the command to go on";

/// How a run of the program ended. The numbers are promises: codes are added, never altered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCode {
    Done,
    Bug,
    Usage,
    NeedsPerson,
    UnfitFeed,
    NoInput,
    CannotCreate,
    InputOutput,
    TryLater,
    StoreForgot,
    Settings,
    HungUp,
    Interrupted,
    Terminated,
}

impl ExitCode {
    /// Every code, in the order of its number.
    pub const ALL: [Self; 14] = [
        Self::Done,
        Self::Bug,
        Self::Usage,
        Self::NeedsPerson,
        Self::UnfitFeed,
        Self::NoInput,
        Self::CannotCreate,
        Self::InputOutput,
        Self::TryLater,
        Self::StoreForgot,
        Self::Settings,
        Self::HungUp,
        Self::Interrupted,
        Self::Terminated,
    ];

    /// The code as the operating system sees it.
    pub fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Bug => 1,
            Self::Usage => 2,
            Self::NeedsPerson => 3,
            Self::UnfitFeed => 65,
            Self::NoInput => 66,
            Self::CannotCreate => 73,
            Self::InputOutput => 74,
            Self::TryLater => 75,
            Self::StoreForgot => 76,
            Self::Settings => 78,
            Self::HungUp => 129,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }

    /// The code of a command that a signal ended: 128 and its number, as a shell has it.
    pub fn of_signal(signal: InterruptSignal) -> Self {
        match signal {
            InterruptSignal::HungUp => Self::HungUp,
            InterruptSignal::Interrupted => Self::Interrupted,
            InterruptSignal::Terminated => Self::Terminated,
        }
    }

    /// What the code means, in one line.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done: all records accepted or suppressed",
            Self::Bug => "a bug: please report it",
            Self::Usage => "wrong command line",
            Self::NeedsPerson => "done and published, but some records wait for a person",
            Self::UnfitFeed => "not a feed the profile can read, or a control total does not hold",
            Self::NoInput => "no such input",
            Self::CannotCreate => "an output cannot be made",
            Self::InputOutput => "disk full, or an input/output error",
            Self::TryLater => "try again later: nothing is published, a repeated run goes on",
            Self::StoreForgot => "the store lost claims, or its version is another one: a person must look",
            Self::Settings => "settings, credentials, or a store that is set up so that it would lose claims",
            Self::HungUp => "hung up: a repeated run goes on",
            Self::Interrupted => "interrupted: a repeated run goes on",
            Self::Terminated => "terminated: a repeated run goes on",
        }
    }

    /// The place in the order in which the codes of several inputs win over one another: the lowest is told.
    fn rank(self) -> u8 {
        match self {
            Self::HungUp => 0,
            Self::Interrupted => 1,
            Self::Terminated => 2,
            Self::Bug => 3,
            Self::StoreForgot => 4,
            Self::Settings => 5,
            Self::Usage => 6,
            Self::InputOutput => 7,
            Self::CannotCreate => 8,
            Self::UnfitFeed => 9,
            Self::NoInput => 10,
            Self::TryLater => 11,
            Self::NeedsPerson => 12,
            Self::Done => 13,
        }
    }

    /// The code that stands for two inputs that ended in `self` and `other`.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        if other.rank() < self.rank() { other } else { self }
    }

    /// The code for an output that could not be written: a lack of room or a broken disk, or else a wrong place.
    pub fn of_write_error(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let wrong_place = matches!(
            error.kind(),
            Kind::NotFound
                | Kind::PermissionDenied
                | Kind::AlreadyExists
                | Kind::NotADirectory
                | Kind::IsADirectory
                | Kind::ReadOnlyFilesystem
                | Kind::InvalidFilename
                | Kind::InvalidInput
        );
        if wrong_place { Self::CannotCreate } else { Self::InputOutput }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.number())
    }
}

/// Why a command ended early: what could not be done, its causes, what to do, and the exit code.
///
/// It travels in `anyhow::Error`; whatever else arrives there at the end is a bug.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub exit: ExitCode,
    pub error: String,
    pub causes: Vec<String>,
    pub hint: Option<String>,
}

impl Failure {
    /// A failure without causes and hint.
    pub fn new(exit: ExitCode, error: impl Into<String>) -> Self {
        Self { exit, error: error.into(), causes: Vec::new(), hint: None }
    }

    /// A command line that cannot be carried out.
    pub fn usage(error: impl Into<String>) -> Self {
        Self::new(ExitCode::Usage, error)
    }

    /// A setting or a credential that cannot be used.
    pub fn settings(error: impl Into<String>) -> Self {
        Self::new(ExitCode::Settings, error)
    }

    /// A feed that the profile cannot read, or a gate that does not hold.
    pub fn unfit_feed(error: impl Into<String>) -> Self {
        Self::new(ExitCode::UnfitFeed, error)
    }

    /// An input that could not be opened or read.
    pub fn input(path: &Path, error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let is_out_of_reach = matches!(
            error.kind(),
            Kind::NotFound | Kind::PermissionDenied | Kind::NotADirectory | Kind::IsADirectory | Kind::InvalidFilename
        );
        let exit = if is_out_of_reach { ExitCode::NoInput } else { ExitCode::InputOutput };
        Self::new(exit, format!("could not read `{}`", path.display())).caused_by(error)
    }

    /// An output that could not be made or written.
    pub fn output(path: &Path, error: &io::Error) -> Self {
        let failure = Self::new(ExitCode::of_write_error(error), format!("could not write `{}`", path.display()));
        let failure = failure.caused_by(error);
        match error.kind() == io::ErrorKind::StorageFull {
            true => failure.hint("free some space and repeat the command"),
            false => failure,
        }
    }

    /// Adds a cause, the nearest first.
    #[must_use]
    pub fn caused_by(mut self, cause: impl fmt::Display) -> Self {
        self.causes.push(cause.to_string());
        self
    }

    /// Sets what stands, in front of what to do.
    #[must_use]
    pub fn hinted(self, stands: &str) -> Self {
        let hint = self.hint.as_ref().map_or_else(|| stands.to_owned(), |hint| format!("{stands}: {hint}"));
        self.hint(hint)
    }

    /// Sets what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The failure in `error`; what carries none is a bug, because every error of the world is mapped to one.
    pub fn of(error: anyhow::Error) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(failure) => return failure,
            Err(error) => error,
        };
        match error.downcast::<StoreError>() {
            Ok(store) => Self::from(store),
            Err(error) => {
                let failure = Self::new(ExitCode::Bug, error.to_string());
                let failure = error.chain().skip(1).fold(failure, |failure, cause| failure.caused_by(cause));
                failure.hint("this is a bug in feeddedup: please report it with these lines")
            }
        }
    }

    /// Writes the failure as the operator sees it; `color` is for the word `error:` alone.
    pub fn render(&self, color: bool, out: &mut dyn Write) -> io::Result<()> {
        let (red, plain) = if color { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
        writeln!(out, "{red}error:{plain} {}", one_line(&self.error))?;
        let mut told = vec![one_line(&self.error)];
        for cause in self.causes.iter().map(|cause| one_line(cause)) {
            if !told.contains(&cause) {
                writeln!(out, "  caused by: {cause}")?;
                told.push(cause);
            }
        }
        match &self.hint {
            Some(hint) => writeln!(out, "  hint: {}", one_line(hint)),
            None => Ok(()),
        }
    }
}

/// `text` on one line and without control characters: causes and names come from outside.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|c| !c.is_control()).collect()
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl std::error::Error for Failure {}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let (exit, hint) = match &error {
            StoreError::Unreachable { .. } => (
                ExitCode::TryLater,
                "nothing of this input is published: start the store and repeat the command, it goes on where it stopped",
            ),
            StoreError::Interrupted { signal, .. } => (ExitCode::of_signal(*signal), REPEAT_TO_GO_ON),
            StoreError::Busy { .. } => (
                ExitCode::TryLater,
                "nothing of this input is published: repeat the command once the store takes writes again",
            ),
            StoreError::Denied { .. } => (
                ExitCode::Settings,
                "check `username`, the password (`password_file` or FEEDDEDUP_REDIS_PASSWORD), and that the user may \
                     run the commands that the manual lists",
            ),
            StoreError::Unfit { hint, .. } => (ExitCode::Settings, hint.as_str()),
            StoreError::Missing { .. } => (
                ExitCode::Settings,
                "set `store` to the store that is in use, or give `--create-store true` once to begin a new one",
            ),
            StoreError::Forgotten { .. } => (
                ExitCode::StoreForgot,
                "nothing of this input is published: put the newest copy of the store back before anything is ingested \
                 again; what was taken in since that copy is accepted again",
            ),
            StoreError::OtherVersion { .. } => (
                ExitCode::StoreForgot,
                "nothing was written: use the version of feeddedup that wrote the store; under another `key_prefix` all that was \
                 taken in would be accepted again",
            ),
            StoreError::Corrupt { .. } => (
                ExitCode::StoreForgot,
                "nothing of this input is published: keep a copy of the store, then put the newest sound copy back; what \
                 was taken in since that copy is accepted again",
            ),
            StoreError::Io { source, .. } => (
                ExitCode::of_write_error(source),
                "nothing of this input is published: mend the cause and repeat the command, it goes on where it stopped",
            ),
        };
        let failure = Self::new(exit, error.to_string()).hint(hint);
        match error.cause() {
            Some(cause) => failure.caused_by(cause),
            None => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(failure: &Failure, color: bool) -> String {
        let mut out = Vec::new();
        failure.render(color, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn codes_stand_in_the_order_of_their_numbers() {
        assert!(ExitCode::ALL.is_sorted_by_key(|code| code.number()));
        assert!(ExitCode::ALL.iter().all(|code| !code.meaning().is_empty()));
    }

    #[test]
    fn of_several_inputs_the_gravest_code_is_told() {
        let order = [129, 130, 143, 1, 76, 78, 2, 74, 73, 65, 66, 75, 3, 0];
        let code = |number: u8| *ExitCode::ALL.iter().find(|code| code.number() == number).unwrap();
        for (place, graver) in order.iter().enumerate() {
            for lighter in &order[place..] {
                assert_eq!(code(*graver).merge(code(*lighter)), code(*graver), "{graver} and {lighter}");
                assert_eq!(code(*lighter).merge(code(*graver)), code(*graver), "{lighter} and {graver}");
            }
        }
    }

    #[test]
    fn a_failure_is_told_in_three_parts_with_each_cause_once() {
        let failure =
            Failure::usage("a\nb").caused_by("refused").caused_by("refused").caused_by("x\x1b[2J").hint("do this");
        let expected = "error: a b\n  caused by: refused\n  caused by: x[2J\n  hint: do this\n";
        assert_eq!(text(&failure, false), expected);
        assert!(text(&failure, true).starts_with("\x1b[1;31merror:\x1b[0m a b\n"));
    }

    #[test]
    fn every_error_of_a_store_has_its_code() {
        let address = || "redis://db1".to_owned();
        let cause = || "why".to_owned();
        let io = |kind: io::ErrorKind| StoreError::Io { path: "/s".into(), source: kind.into() };
        for (error, expected) in [
            (StoreError::Unreachable { address: address(), cause: cause() }, 75),
            (StoreError::Busy { address: address(), cause: cause() }, 75),
            (StoreError::Interrupted { address: address(), cause: cause(), signal: InterruptSignal::HungUp }, 129),
            (StoreError::Denied { address: address(), cause: cause() }, 78),
            (StoreError::Unfit { address: address(), cause: cause(), hint: "fix it".into() }, 78),
            (StoreError::Missing { address: address() }, 78),
            (StoreError::Forgotten { address: address(), cause: cause() }, 76),
            (StoreError::OtherVersion { address: address(), found: "2".into(), expected: "1".into() }, 76),
            (StoreError::Corrupt { address: address(), cause: cause() }, 76),
            (io(io::ErrorKind::StorageFull), 74),
            (io(io::ErrorKind::Other), 74),
            (io(io::ErrorKind::PermissionDenied), 73),
        ] {
            let failure = Failure::of(error.into());
            assert_eq!(failure.exit.number(), expected, "{failure:?}");
            assert!(failure.hint.is_some(), "{failure:?}");
        }
    }

    #[test]
    fn what_is_no_failure_is_a_bug() {
        let failure = Failure::of(anyhow::anyhow!("below").context("above"));
        assert_eq!(failure.exit, ExitCode::Bug);
        assert_eq!(failure.causes, ["below"]);
        assert_eq!(Failure::of(Failure::usage("x").into()), Failure::usage("x"));
    }
}
