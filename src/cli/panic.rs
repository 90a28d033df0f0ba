//! A panic, in whatever thread, ends the program with one line and the exit code of a bug.

use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::atomic::{AtomicBool, Ordering};

use super::failure::{ExitCode, Failure};
use super::terminal::Terminal;

static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

/// Runs `work`; a panic in it, or in a thread that it started, is told and counts as a bug.
pub(super) fn caught(terminal: Terminal, work: impl FnOnce() -> ExitCode) -> ExitCode {
    panic::set_hook(Box::new(move |info| {
        // One panic brings others with it, and only the first says why.
        if !HAS_PANICKED.swap(true, Ordering::SeqCst) {
            terminal.show(&failure(info));
        }
    }));
    let exit = panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or(ExitCode::Bug);
    if HAS_PANICKED.load(Ordering::SeqCst) { exit.merge(ExitCode::Bug) } else { exit }
}

fn failure(info: &PanicHookInfo<'_>) -> Failure {
    let place = info.location().map_or_else(String::new, |place| format!(" at `{}:{}`", place.file(), place.line()));
    // A message that was put together may hold customer data; a literal cannot.
    let message = info.payload().downcast_ref::<&'static str>().map_or_else(String::new, |text| format!(": {text}"));
    Failure::new(
        ExitCode::Bug,
        format!(
            "this is a bug in feeddedup{place}{message}; please report it with this line and `feeddedup --version`"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::terminal::Verbosity;

    #[test]
    fn a_panic_of_any_thread_is_a_bug_unless_something_graver_happened() {
        let terminal = Terminal {
            stdout_is_terminal: false,
            stderr_is_terminal: false,
            color: false,
            verbosity: Verbosity::Quiet,
        };
        let in_thread = |exit| {
            move || {
                assert!(std::thread::spawn(|| panic!("a panic that this test wants")).join().is_err());
                exit
            }
        };
        let codes = [
            caught(terminal, || panic!("a panic that this test wants")),
            caught(terminal, in_thread(ExitCode::Done)),
            caught(terminal, in_thread(ExitCode::Interrupted)),
        ];
        drop(panic::take_hook());
        assert_eq!(codes, [ExitCode::Bug, ExitCode::Bug, ExitCode::Interrupted]);
    }
}
