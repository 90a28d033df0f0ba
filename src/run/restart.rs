//! From what is found at the start: begin, go on, or refuse. Pure.

use std::fmt;
use std::time::Duration;

use crate::domain::{Digest, KnownRun, Lease, RunId, RunRecord, RunState};

/// A run that might be the one to go on with: its id, its pass, and what is known of it if there is a record.
#[derive(Debug)]
pub(super) struct Found {
    pub run: RunId,
    pub pass: u32,
    pub known: Option<KnownRun>,
}

/// How a run starts.
#[derive(Debug, PartialEq, Eq)]
pub enum Start {
    /// Nobody has run it.
    Begin { run: RunId, pass: u32 },
    /// An earlier attempt did not publish: its claims are ours. Unless it is known to be dead, its lease must be over
    /// when ours begins.
    GoOn { left: Box<RunRecord>, lease_over: bool },
    /// An earlier attempt died between its renames: they are all that is left to do.
    Publish(Box<RunRecord>),
    /// It is published: the next pass has to be looked at.
    NextPass,
}

/// Why a run may not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartRefusal {
    /// The run of this name is over another feed.
    OtherFeed { run: RunId, feed_name: String },
    /// The run of this name read the feed with another profile.
    OtherProfile { run: RunId },
    /// Another worker has it, and is not known to be dead.
    Running { run: RunId, host: String, pid: u32, since: String, lease_left: Option<Duration> },
    /// It is being published on another host or in another folder, and only there can it go on.
    PublishingElsewhere { run: RunId, host: String, folder: String },
}

impl fmt::Display for StartRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherFeed { run, feed_name } => {
                write!(f, "run `{run}` is over another feed, which was `{feed_name}`")
            }
            Self::OtherProfile { run } => write!(f, "run `{run}` read the feed with another profile"),
            Self::Running { run, host, pid, since, .. } => {
                write!(f, "the feed is being ingested already, as run `{run}` by process {pid} on {host} since {since}")
            }
            Self::PublishingElsewhere { run, host, folder } => {
                write!(f, "run `{run}` is being published on `{host}` in `{folder}`")
            }
        }
    }
}

/// Where a run would go on: its feed's digest and meaning, its host and folder, and the kernel lock that is ours.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub feed: &'a Digest,
    pub meaning: &'a Digest,
    pub host: &'a str,
    pub folder: &'a str,
    pub lock: &'a str,
}

/// What to do about `found` at `place`.
pub(super) fn plan_start(found: Found, place: Place<'_>) -> Result<Start, StartRefusal> {
    let Some(KnownRun { record, lease }) = found.known else {
        return Ok(Start::Begin { run: found.run, pass: found.pass });
    };
    if record.feed_digest != *place.feed {
        return Err(StartRefusal::OtherFeed { run: record.run, feed_name: record.feed_name });
    }
    if record.meaning != *place.meaning {
        return Err(StartRefusal::OtherProfile { run: record.run });
    }
    // Whoever has the lock of a worker knows that the worker is dead; of others only the lease tells.
    let is_dead = record.host == place.host && record.lock == place.lock;
    let is_left = is_dead || lease == Lease::Over;
    match record.state {
        RunState::Fenced => Ok(Start::GoOn { left: Box::new(record), lease_over: false }),
        // Nothing is renamed before `PUBLISHING`: what was sealed is decided anew from the same claims.
        RunState::Open | RunState::Sealed if is_left => {
            Ok(Start::GoOn { left: Box::new(record), lease_over: !is_dead })
        }
        RunState::Open | RunState::Sealed => Err(running(record, lease)),
        RunState::Publishing if record.host != place.host || record.folder != place.folder => {
            let RunRecord { run, host, folder, .. } = record;
            Err(StartRefusal::PublishingElsewhere { run, host, folder })
        }
        RunState::Publishing if is_left => Ok(Start::Publish(Box::new(record))),
        RunState::Publishing => Err(running(record, lease)),
        RunState::Published | RunState::Reverted => Ok(Start::NextPass),
    }
}

fn running(record: RunRecord, lease: Lease) -> StartRefusal {
    let lease_left = match lease {
        Lease::Running { left } => Some(left),
        Lease::Unknown | Lease::Over => None,
    };
    let RunRecord { run, host, pid, opened_at, .. } = record;
    StartRefusal::Running { run, host, pid, since: opened_at, lease_left }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What follows from a run in `state` that was left on `db1` in `/out`, seen from `host` with `lock`.
    fn check(state: RunState, lease: Lease, feed: &[u8], meaning: &[u8], host: &str, lock: &str) -> String {
        let known =
            Some(KnownRun { record: RunRecord { meaning: Digest::of(b""), ..RunRecord::sample("r-1", state) }, lease });
        let found = Found { run: RunId::parse("r-1").unwrap(), pass: 1, known };
        let (feed, meaning) = (&Digest::of(feed), &Digest::of(meaning));
        match plan_start(found, Place { feed, meaning, host, folder: "/out", lock }) {
            Ok(Start::Begin { .. }) => "begin".into(),
            Ok(Start::GoOn { lease_over: false, .. }) => "go on".into(),
            Ok(Start::GoOn { lease_over: true, .. }) => "go on, lease over".into(),
            Ok(Start::Publish(_)) => "publish".into(),
            Ok(Start::NextPass) => "next pass".into(),
            Err(StartRefusal::OtherFeed { .. }) => "other feed".into(),
            Err(StartRefusal::OtherProfile { .. }) => "other profile".into(),
            Err(StartRefusal::Running { .. }) => "running".into(),
            Err(StartRefusal::PublishingElsewhere { .. }) => "publishing elsewhere".into(),
        }
    }

    #[test]
    fn every_state_has_its_way_on() {
        let running = Lease::Running { left: Duration::from_secs(1) };
        // Seen with the worker's lock; without it while the lease lasts; when it is over; from another host then.
        for (state, dead, alive, over, elsewhere) in [
            (RunState::Open, "go on", "running", "go on, lease over", "go on, lease over"),
            (RunState::Sealed, "go on", "running", "go on, lease over", "go on, lease over"),
            (RunState::Publishing, "publish", "running", "publish", "publishing elsewhere"),
            (RunState::Published, "next pass", "next pass", "next pass", "next pass"),
            (RunState::Fenced, "go on", "go on", "go on", "go on"),
            (RunState::Reverted, "next pass", "next pass", "next pass", "next pass"),
        ] {
            assert_eq!(check(state, running, b"feed", b"", "db1", "1:2"), dead, "{state:?}");
            assert_eq!(check(state, Lease::Unknown, b"feed", b"", "db1", "1:2"), dead, "{state:?}");
            assert_eq!(check(state, running, b"feed", b"", "db1", "3:4"), alive, "{state:?}");
            assert_eq!(check(state, Lease::Unknown, b"feed", b"", "db1", "3:4"), alive, "{state:?}");
            assert_eq!(check(state, Lease::Over, b"feed", b"", "db1", "3:4"), over, "{state:?}");
            assert_eq!(check(state, Lease::Over, b"feed", b"", "db2", "1:2"), elsewhere, "{state:?}");
            assert_eq!(check(state, running, b"another", b"", "db1", "1:2"), "other feed", "{state:?}");
            assert_eq!(check(state, running, b"feed", b"semicolons", "db1", "1:2"), "other profile", "{state:?}");
        }
    }
}
