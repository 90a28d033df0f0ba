//! From what is found at the start: begin, go on, or refuse. Pure.

use crate::domain::{Digest, RunId, RunRecord, RunState};

/// A run that might be the one to go on with: its id, its pass, and its record if there is one.
#[derive(Debug)]
pub struct Found {
    pub run: RunId,
    pub pass: u32,
    pub record: Option<RunRecord>,
}

/// How a run starts.
#[derive(Debug, PartialEq, Eq)]
pub enum Start {
    /// Nobody has run it.
    Begin { run: RunId, pass: u32 },
    /// An earlier attempt did not publish: its claims are ours.
    GoOn(Box<RunRecord>),
    /// An earlier attempt died between its renames: they are all that is left to do.
    Publish(Box<RunRecord>),
    /// It is published: the next pass has to be looked at.
    NextPass,
}

/// Why a run may not start.
#[derive(Debug, PartialEq, Eq)]
pub enum StartRefusal {
    /// The run of this name is over another feed.
    OtherFeed { run: RunId, feed_name: String },
    /// It is being published on another host or in another folder, and only there can it go on.
    PublishingElsewhere { run: RunId, host: String, folder: String },
}

/// What to do about `found`, for a feed of digest `feed` whose outputs go to `folder` on `host`.
pub fn plan_start(found: Found, feed: &Digest, host: &str, folder: &str) -> Result<Start, StartRefusal> {
    let Some(record) = found.record else {
        return Ok(Start::Begin { run: found.run, pass: found.pass });
    };
    if record.feed_digest != *feed {
        return Err(StartRefusal::OtherFeed { run: record.run, feed_name: record.feed_name });
    }
    match record.state {
        // Nothing is renamed before `PUBLISHING`: what was sealed is decided anew from the same claims.
        RunState::Open | RunState::Sealed | RunState::Fenced => Ok(Start::GoOn(Box::new(record))),
        RunState::Publishing if record.host == host && record.folder == folder => Ok(Start::Publish(Box::new(record))),
        RunState::Publishing => {
            let RunRecord { run, host, folder, .. } = record;
            Err(StartRefusal::PublishingElsewhere { run, host, folder })
        }
        RunState::Published | RunState::Reverted => Ok(Start::NextPass),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(state: RunState) -> RunRecord {
        RunRecord {
            run: RunId::parse("r-1").unwrap(),
            state,
            epoch: 1,
            pass: 1,
            feed_digest: Digest::of(b"feed"),
            feed_name: "july.csv".into(),
            meaning: Digest::of(b""),
            opened_at: String::new(),
            host: "db1".into(),
            pid: 1,
            folder: "/out".into(),
            stem: "july".into(),
            counts: [0; 6],
            outputs: Vec::new(),
            audit_chain: None,
        }
    }

    /// What follows from a run in `state` that was left on `db1` in `/out`, seen from `host` with another `feed` or not.
    fn check(state: RunState, feed: &[u8], host: &str) -> String {
        let found = Found { run: RunId::parse("r-1").unwrap(), pass: 1, record: Some(record(state)) };
        match plan_start(found, &Digest::of(feed), host, "/out") {
            Ok(Start::Begin { .. }) => "begin".into(),
            Ok(Start::GoOn(_)) => "go on".into(),
            Ok(Start::Publish(_)) => "publish".into(),
            Ok(Start::NextPass) => "next pass".into(),
            Err(StartRefusal::OtherFeed { .. }) => "other feed".into(),
            Err(StartRefusal::PublishingElsewhere { .. }) => "publishing elsewhere".into(),
        }
    }

    #[test]
    fn every_state_has_its_way_on() {
        for (state, here, elsewhere) in [
            (RunState::Open, "go on", "go on"),
            (RunState::Sealed, "go on", "go on"),
            (RunState::Publishing, "publish", "publishing elsewhere"),
            (RunState::Published, "next pass", "next pass"),
            (RunState::Fenced, "go on", "go on"),
            (RunState::Reverted, "next pass", "next pass"),
        ] {
            assert_eq!(check(state, b"feed", "db1"), here, "{state:?}");
            assert_eq!(check(state, b"feed", "db2"), elsewhere, "{state:?}");
            assert_eq!(check(state, b"another", "db1"), "other feed", "{state:?}");
        }
    }
}
