//! Wall-clock time as display data; nothing is decided by it.

use chrono::{DateTime, SecondsFormat, Utc};

/// The present instant as `2026-07-15T09:03:00+00:00`.
pub fn now_text() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Secs, false)
}

/// How many seconds ago `instant` was, by this machine's clock; none if it cannot be read. Negative if it is to come.
pub fn seconds_since(instant: &str) -> Option<i64> {
    let instant = DateTime::parse_from_rfc3339(instant).ok()?;
    Some(Utc::now().signed_duration_since(instant).num_seconds())
}
