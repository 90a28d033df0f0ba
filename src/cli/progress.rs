//! What the operator sees while a long feed is read: how far, how fast, how long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::number::grouped;
use super::terminal::Terminal;
use crate::pipeline::Progress;

/// Feeds below this size are done before anybody could look.
const SHOWN_FROM_BYTES: u64 = 4 * 1024 * 1024;

/// A bar on a terminal, and nothing elsewhere.
#[derive(Debug)]
pub(super) struct Bar {
    bar: ProgressBar,
    is_shown: bool,
    records: AtomicU64,
    started: Instant,
}

impl Bar {
    /// A bar for the streams of `terminal`.
    pub(super) fn new(terminal: &Terminal) -> Self {
        let is_shown = terminal.shows_progress();
        Self { bar: ProgressBar::hidden(), is_shown, records: AtomicU64::new(0), started: Instant::now() }
    }
}

impl Progress for Bar {
    fn start(&self, feed: &str, bytes: u64) {
        if !self.is_shown || bytes < SHOWN_FROM_BYTES {
            return;
        }
        let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent:>3}% {msg} left {eta}");
        self.bar.set_style(style.expect("the template is well-formed"));
        self.bar.set_prefix(feed.to_owned());
        self.bar.set_length(bytes);
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
    }

    fn advance(&self, bytes: u64, records: u64) {
        let records = self.records.fetch_add(records, Ordering::Relaxed) + records;
        let millis = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        self.bar.set_message(format!("{} records/s", grouped(records.saturating_mul(1_000) / millis)));
        self.bar.inc(bytes);
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
