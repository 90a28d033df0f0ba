//! Signals: the first asks the work to end in order, the second ends the process at once.

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use super::failure::ExitCode;
use super::terminal::Terminal;
use crate::domain::{Interrupt, InterruptSignal};

/// What tells of the process itself, on Linux.
const STATUS_FILE: &str = "/proc/self/status";

/// Signals nearer to the first than this are the same wish: `timeout`, and a terminal that closes, signal a process and
/// its group.
const SAME_WISH: Duration = Duration::from_millis(50);

/// Catches the signals that ask for an early end, from now on. What the parent had ignored, as `nohup` does with SIGHUP,
/// stays ignored.
pub(super) fn watch(terminal: Terminal) -> Interrupt {
    let interrupt = Interrupt::default();
    let asking = interrupt.clone();
    let watched = Signals::new(caught(ignored())).and_then(|signals| {
        let watcher = thread::Builder::new().name("signals".to_owned());
        watcher.spawn(move || hand_on(signals, &asking, terminal))
    });
    if let Err(error) = watched {
        // As if nobody watched: a run is gone on with after that as well.
        terminal.warn(&format!("the first signal ends the program at once: {error}"));
    }
    interrupt
}

/// Waits for signals as long as the process lives.
fn hand_on(mut signals: Signals, interrupt: &Interrupt, terminal: Terminal) {
    let mut first: Option<Instant> = None;
    for signal in signals.forever().filter_map(signal_of) {
        match first {
            None => first = Some(Instant::now()),
            Some(first) if first.elapsed() < SAME_WISH => {}
            Some(_) => {
                terminal.clear_line();
                low_level::exit(ExitCode::of_signal(signal).number().into());
            }
        }
        interrupt.ask(signal);
    }
}

/// The signals to catch, those left out that the parent had ignored.
fn caught(ignored: io::Result<u64>) -> Vec<i32> {
    match ignored {
        Ok(mask) => [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| mask >> (signal - 1) & 1 == 0).collect(),
        // Where nobody says what is ignored, SIGHUP is left alone: caught, it would end what `nohup` is to keep alive.
        Err(_) => vec![SIGINT, SIGTERM],
    }
}

/// The signals that the process ignores, a bit each.
fn ignored() -> io::Result<u64> {
    let status = fs::read_to_string(STATUS_FILE)?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).ok_or(io::ErrorKind::InvalidData.into())
}

fn signal_of(number: i32) -> Option<InterruptSignal> {
    match number {
        SIGHUP => Some(InterruptSignal::HungUp),
        SIGINT => Some(InterruptSignal::Interrupted),
        SIGTERM => Some(InterruptSignal::Terminated),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_parent_ignored_stays_ignored() {
        assert_eq!(caught(Ok(0)), [SIGHUP, SIGINT, SIGTERM]);
        assert_eq!(caught(Ok(0b1)), [SIGINT, SIGTERM]);
        assert_eq!(caught(Ok(0b10)), [SIGHUP, SIGTERM]);
        assert_eq!(caught(Ok(u64::MAX)), Vec::<i32>::new());
        assert_eq!(caught(Err(io::ErrorKind::NotFound.into())), [SIGINT, SIGTERM]);
    }
}
