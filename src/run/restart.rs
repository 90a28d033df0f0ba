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
    /// The run of this name read the feed with another profile.
    OtherProfile { run: RunId },
    /// It is being published on another host or in another folder, and only there can it go on.
    PublishingElsewhere { run: RunId, host: String, folder: String },
}

/// Where a run would go on: its feed's digest and meaning, its host and folder.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub feed: &'a Digest,
    pub meaning: &'a Digest,
    pub host: &'a str,
    pub folder: &'a str,
}

/// What to do about `found` at `place`.
pub fn plan_start(found: Found, place: Place<'_>) -> Result<Start, StartRefusal> {
    let Some(record) = found.record else {
        return Ok(Start::Begin { run: found.run, pass: found.pass });
    };
    if record.feed_digest != *place.feed {
        return Err(StartRefusal::OtherFeed { run: record.run, feed_name: record.feed_name });
    }
    if record.meaning != *place.meaning {
        return Err(StartRefusal::OtherProfile { run: record.run });
    }
    match record.state {
        // Nothing is renamed before `PUBLISHING`: what was sealed is decided anew from the same claims.
        RunState::Open | RunState::Sealed | RunState::Fenced => Ok(Start::GoOn(Box::new(record))),
        RunState::Publishing if record.host == place.host && record.folder == place.folder => {
            Ok(Start::Publish(Box::new(record)))
        }
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

    /// What follows from a run in `state` that was left on `db1` in `/out`, seen from elsewhere or from there.
    fn check(state: RunState, feed: &[u8], meaning: &[u8], host: &str) -> String {
        let found = Found { run: RunId::parse("r-1").unwrap(), pass: 1, record: Some(record(state)) };
        let (feed, meaning) = (&Digest::of(feed), &Digest::of(meaning));
        match plan_start(found, Place { feed, meaning, host, folder: "/out" }) {
            Ok(Start::Begin { .. }) => "begin".into(),
            Ok(Start::GoOn(_)) => "go on".into(),
            Ok(Start::Publish(_)) => "publish".into(),
            Ok(Start::NextPass) => "next pass".into(),
            Err(StartRefusal::OtherFeed { .. }) => "other feed".into(),
            Err(StartRefusal::OtherProfile { .. }) => "other profile".into(),
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
            assert_eq!(check(state, b"feed", b"", "db1"), here, "{state:?}");
            assert_eq!(check(state, b"feed", b"", "db2"), elsewhere, "{state:?}");
            assert_eq!(check(state, b"another", b"", "db1"), "other feed", "{state:?}");
            assert_eq!(check(state, b"feed", b"semicolons", "db1"), "other profile", "{state:?}");
        }
    }
}
