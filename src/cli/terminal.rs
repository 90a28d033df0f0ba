//! What stands at the other end of standard output and standard error, and how much is said there.

use std::io::{self, IsTerminal, Write};

use super::environment::Environment;
use super::failure::{ExitCode, Failure};

/// When text is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always, whatever stands at the other end.
    Always,
    /// Never.
    Never,
}

/// How much is said on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Errors and warnings.
    Quiet,
    /// On a terminal, also what was done.
    Normal,
    /// Everything, terminal or not.
    Verbose,
}

/// The two streams for people and for data.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    pub stdout_is_terminal: bool,
    pub stderr_is_terminal: bool,
    /// Whether standard error is coloured.
    pub color: bool,
    pub verbosity: Verbosity,
}

/// The reader of standard output went away; the program ends quietly and well.
#[derive(Debug)]
pub struct ClosedPipe;

impl std::fmt::Display for ClosedPipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the reader of standard output went away")
    }
}

impl std::error::Error for ClosedPipe {}

impl Terminal {
    /// The streams of this process.
    pub fn of_process(choice: ColorChoice, verbosity: Verbosity, environment: &Environment) -> Self {
        let stderr_is_terminal = io::stderr().is_terminal();
        Self {
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal,
            color: is_colored(choice, stderr_is_terminal, environment),
            verbosity,
        }
    }

    /// Whether progress may be drawn.
    pub fn shows_progress(&self) -> bool {
        self.stderr_is_terminal && self.verbosity != Verbosity::Quiet
    }

    /// Says what was done: on a terminal, or where everything is asked for. Cron mails whatever is said without one.
    pub fn note(&self, line: &str) {
        let is_said = match self.verbosity {
            Verbosity::Quiet => false,
            Verbosity::Normal => self.stderr_is_terminal,
            Verbosity::Verbose => true,
        };
        if is_said {
            self.say(line);
        }
    }

    /// Says what the operator must not miss.
    pub fn warn(&self, line: &str) {
        self.say(&format!("warning: {line}"));
    }

    /// Writes a line to standard error, whatever the verbosity.
    pub fn say(&self, line: &str) {
        // Nobody is left to tell if standard error is gone.
        let _ = writeln!(io::stderr().lock(), "{line}");
    }

    /// Takes away what progress left on its line, where the program ends without drawing once more.
    pub fn clear_line(&self) {
        if self.shows_progress() {
            let _ = io::stderr().lock().write_all(b"\r\x1b[K");
        }
    }

    /// Shows a failure on standard error.
    pub fn show(&self, failure: &Failure) {
        let _ = failure.render(self.color, &mut io::stderr().lock());
    }

    /// Writes `data` to standard output; that its reader went away is no failure.
    pub fn print(&self, data: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(data).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(output_failure(&error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// What an error of standard output means to a command that writes it bit by bit: `ClosedPipe` or a `Failure`.
pub fn stdout_error(error: &io::Error) -> anyhow::Error {
    match error.kind() == io::ErrorKind::BrokenPipe {
        true => ClosedPipe.into(),
        false => output_failure(error).into(),
    }
}

fn output_failure(error: &io::Error) -> Failure {
    Failure::new(ExitCode::InputOutput, "could not write to standard output").caused_by(error)
}

fn is_colored(choice: ColorChoice, is_terminal: bool, environment: &Environment) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            let is_dumb = environment.variable("TERM").is_some_and(|term| term == "dumb");
            is_terminal && !is_dumb && environment.variable("NO_COLOR").is_none()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_needs_a_terminal_and_no_objection() {
        let plain = Environment::default();
        let mut objecting = Environment::default();
        objecting.variables.insert("NO_COLOR".into(), "1".into());
        let mut dumb = Environment::default();
        dumb.variables.insert("TERM".into(), "dumb".into());
        assert!(is_colored(ColorChoice::Auto, true, &plain));
        assert!(!is_colored(ColorChoice::Auto, false, &plain));
        assert!(!is_colored(ColorChoice::Auto, true, &objecting));
        assert!(!is_colored(ColorChoice::Auto, true, &dumb));
        assert!(is_colored(ColorChoice::Always, false, &objecting));
        assert!(!is_colored(ColorChoice::Never, true, &plain));
    }

    #[test]
    fn a_closed_pipe_is_told_from_a_full_disk() {
        assert!(stdout_error(&io::ErrorKind::BrokenPipe.into()).is::<ClosedPipe>());
        assert_eq!(Failure::of(stdout_error(&io::ErrorKind::StorageFull.into())).exit, ExitCode::InputOutput);
    }
}
