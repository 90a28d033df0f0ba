//! Wall-clock time as display data; nothing is decided by it.

use chrono::{SecondsFormat, Utc};

/// The present instant as `2026-07-15T09:03:00+00:00`.
pub fn now_text() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Secs, false)
}
