//! The wish that the work ends early. Whoever works looks for it between two steps, and nobody is torn out of one.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A signal by which the operator or the system asks for an early end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterruptSignal {
    HungUp,
    Interrupted,
    Terminated,
}

impl InterruptSignal {
    /// Every signal.
    pub const ALL: [Self; 3] = [Self::HungUp, Self::Interrupted, Self::Terminated];

    /// The name that the operating system gives it.
    pub fn name(self) -> &'static str {
        match self {
            Self::HungUp => "SIGHUP",
            Self::Interrupted => "SIGINT",
            Self::Terminated => "SIGTERM",
        }
    }

    /// What stands for it in an atomic; 0 stands for none.
    fn code(self) -> u8 {
        match self {
            Self::HungUp => 1,
            Self::Interrupted => 2,
            Self::Terminated => 3,
        }
    }
}

impl fmt::Display for InterruptSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether an early end was asked for. Clones share one answer, which is never taken back.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    asked: AtomicU8,
    /// Held while `asked` changes: without it, a wait could begin between the change and its announcement.
    changing: Mutex<()>,
    changed: Condvar,
}

impl Interrupt {
    /// The signal that asked first, if any did.
    pub fn asked(&self) -> Option<InterruptSignal> {
        let code = self.0.asked.load(Ordering::Acquire);
        InterruptSignal::ALL.into_iter().find(|signal| signal.code() == code)
    }

    /// Asks for an early end; who asks later is not heard.
    pub fn ask(&self, signal: InterruptSignal) {
        let _changing = self.lock();
        let _ = self.0.asked.compare_exchange(0, signal.code(), Ordering::AcqRel, Ordering::Acquire);
        self.0.changed.notify_all();
    }

    /// Waits for `duration`, or until somebody asks; says whether somebody did.
    pub fn wait(&self, duration: Duration) -> bool {
        let is_unasked = |(): &mut ()| self.asked().is_none();
        let waited = self.0.changed.wait_timeout_while(self.lock(), duration, is_unasked);
        drop(waited);
        self.asked().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        // It guards nothing that a panic could leave half done.
        self.0.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_is_the_one_that_counts_for_every_clone() {
        for first in InterruptSignal::ALL {
            let interrupt = Interrupt::default();
            let clone = interrupt.clone();
            assert_eq!(clone.asked(), None);
            interrupt.ask(first);
            InterruptSignal::ALL.into_iter().for_each(|later| interrupt.ask(later));
            assert_eq!(clone.asked(), Some(first));
        }
    }

    #[test]
    fn a_wait_ends_when_somebody_asks() {
        let interrupt = Interrupt::default();
        assert!(!interrupt.wait(Duration::ZERO));
        let asker = interrupt.clone();
        let asking = std::thread::spawn(move || asker.ask(InterruptSignal::Terminated));
        // Were it not woken, nobody would wait for the end of this test.
        assert!(interrupt.wait(Duration::from_secs(3_600)));
        asking.join().unwrap();
        assert!(interrupt.wait(Duration::from_secs(3_600)), "asked before, it does not wait at all");
    }
}
