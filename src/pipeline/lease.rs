//! Renews a run's lease by a timer, whatever its progress: a run that waits for its store or its disk is not dead.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::error::IngestError;
use crate::domain::RunId;
use crate::run::ProtocolStop;
use crate::store::Store;

/// Renewals within the time of a lease: one may fail.
const RENEWALS_PER_LEASE: u32 = 3;

/// Keeps a lease from its making until it is dropped.
#[derive(Debug)]
pub(super) struct LeaseKeeper {
    run: RunId,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: Mutex<bool>,
    over: Condvar,
    /// Whether the store said that the run is no longer ours.
    is_lost: AtomicBool,
}

impl LeaseKeeper {
    /// Keeps the lease of `run`, which lasts `lease` already, through a handle of its own on the store.
    pub(super) fn start(mut store: Box<dyn Store>, run: RunId, epoch: u32, lease: Duration) -> Self {
        let shared = Arc::new(Shared::default());
        let (for_thread, run_for_thread) = (Arc::clone(&shared), run.clone());
        let thread = thread::spawn(move || {
            while !for_thread.wait(lease / RENEWALS_PER_LEASE) {
                // A renewal that fails is no reason to stop: the next one may come through, and the claims tell more.
                if store.renew_lease(&run_for_thread, epoch, lease).is_ok_and(|is_ours| !is_ours) {
                    for_thread.is_lost.store(true, Ordering::Release);
                    return;
                }
            }
        });
        Self { run, shared, thread: Some(thread) }
    }

    /// Fails once the run is fenced, reverted, or another worker's.
    pub(super) fn check(&self) -> Result<(), IngestError> {
        if self.shared.is_lost.load(Ordering::Acquire) {
            return Err(ProtocolStop::Overtaken { run: self.run.clone() }.into());
        }
        Ok(())
    }
}

impl Shared {
    /// Waits for `time`; true at once when it is over.
    fn wait(&self, time: Duration) -> bool {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.over.wait_timeout_while(is_over, time, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for LeaseKeeper {
    /// Whoever gives the lease up afterwards must not find it renewed.
    fn drop(&mut self) {
        *self.shared.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.over.notify_all();
        if let Some(thread) = self.thread.take() {
            // A renewal that panicked has told why.
            let _ = thread.join();
        }
    }
}
