//! What a marker says, as the text that stands in a shared store.
//!
//! Ours are `<run id>:<row>|<ISO time>|<epoch>`. Two fields that end in an ISO time are another writer's. Anything else
//! is unreadable: somebody claimed the hash, and nobody can say who.

use std::sync::Arc;

use crate::domain::{Marker, Owner, RunId, is_iso_instant};

/// The markers of one owner: everything but the row is spelled once.
#[derive(Debug)]
pub(super) struct MarkerTemplate {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl MarkerTemplate {
    /// The template of `owner`, whose time and epoch must be such that the markers can be read back.
    pub(super) fn new(owner: &Owner) -> Self {
        assert!(is_iso_instant(owner.seen_at.as_bytes()), "the time of an owner is an ISO 8601 instant");
        assert!(owner.epoch > 0, "epochs count from 1");
        let mut tail = vec![b'|'];
        tail.extend_from_slice(owner.seen_at.as_bytes());
        tail.push(b'|');
        tail.extend_from_slice(itoa::Buffer::new().format(owner.epoch).as_bytes());
        Self { head: head_of(&owner.run), tail }
    }

    /// How long the marker is whose row has `row_digits` digits.
    pub(super) fn len(&self, row_digits: usize) -> usize {
        self.head.len() + row_digits + self.tail.len()
    }

    /// Appends the marker of the row that is spelled `row`.
    pub(super) fn write(&self, row: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        out.extend_from_slice(row);
        out.extend_from_slice(&self.tail);
    }

    /// The row of `marker`, if it is one of this template.
    fn row_of(&self, marker: &[u8]) -> Option<u64> {
        parse_number(marker.strip_prefix(self.head.as_slice())?.strip_suffix(self.tail.as_slice())?)
    }
}

/// What a marker of `run` begins with, before its row.
pub(super) fn head_of(run: &RunId) -> Vec<u8> {
    let mut head = run.as_str().as_bytes().to_vec();
    head.push(b':');
    head
}

/// Reads markers; neighbours of one owner share it.
///
/// Only the last owner is kept: a replay finds a million markers of one run, one after another.
#[derive(Debug, Default)]
pub(super) struct Owners {
    last: Option<(MarkerTemplate, Arc<Owner>)>,
}

impl Owners {
    /// What `marker` says.
    pub(super) fn read(&mut self, marker: &[u8]) -> Marker {
        if let Some((template, owner)) = &self.last
            && let Some(row) = template.row_of(marker)
        {
            return Marker::Run { owner: Arc::clone(owner), row };
        }
        if let Some((owner, row)) = parse_own(marker) {
            let owner = Arc::new(owner);
            self.last = Some((MarkerTemplate::new(&owner), Arc::clone(&owner)));
            return Marker::Run { owner, row };
        }
        match parse_other_writer(marker) {
            Some(trace_and_time) => Marker::OtherWriter(Arc::new(trace_and_time)),
            None => Marker::Unreadable,
        }
    }
}

/// Owner and row of a marker of ours.
fn parse_own(marker: &[u8]) -> Option<(Owner, u64)> {
    let mut fields = std::str::from_utf8(marker).ok()?.split('|');
    let (trace, seen_at, epoch) = (fields.next()?, fields.next()?, fields.next()?);
    if fields.next().is_some() || !is_iso_instant(seen_at.as_bytes()) {
        return None;
    }
    let (run, row) = trace.split_once(':')?;
    let epoch = u32::try_from(parse_number(epoch.as_bytes())?).ok()?;
    let owner = Owner { run: RunId::parse(run).ok()?, epoch, seen_at: seen_at.to_owned() };
    Some((owner, parse_number(row.as_bytes())?))
}

/// Trace and time of another writer's marker.
fn parse_other_writer(marker: &[u8]) -> Option<(String, String)> {
    let (trace, time) = std::str::from_utf8(marker).ok()?.split_once('|')?;
    (!trace.is_empty() && is_iso_instant(time.as_bytes())).then(|| (trace.to_owned(), time.to_owned()))
}

/// A number from 1 in its only spelling: two spellings of one row would be two owners of one record.
fn parse_number(digits: &[u8]) -> Option<u64> {
    if !matches!(digits.first(), Some(b'1'..=b'9')) {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, digit| {
        let value = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn owner(run: &str, epoch: u32, seen_at: &str) -> Arc<Owner> {
        Arc::new(Owner { run: RunId::parse(run).unwrap(), epoch, seen_at: seen_at.to_owned() })
    }

    fn spelled(owner: &Owner, row: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let digits = row.to_string();
        let template = MarkerTemplate::new(owner);
        template.write(digits.as_bytes(), &mut out);
        assert_eq!(out.len(), template.len(digits.len()));
        out
    }

    #[test]
    fn a_marker_is_spelled_as_the_contract_says() {
        let owner = owner("r-0715", 3, "2026-07-15T09:03:00+00:00");
        assert_eq!(spelled(&owner, 17), b"r-0715:17|2026-07-15T09:03:00+00:00|3");
    }

    #[test]
    fn markers_of_others_are_told_from_ours_and_from_nonsense() {
        let other = |trace: &str, time: &str| Marker::OtherWriter(Arc::new((trace.to_owned(), time.to_owned())));
        let time = "2026-07-15T09:03:00Z";
        for (text, expected) in [
            ("webhook-9|2026-07-15T09:03:00Z", other("webhook-9", time)),
            ("r-1:7|2026-07-15T09:03:00Z", other("r-1:7", time)),
            ("é:ü|2026-07-15T09:03:00.123456", other("é:ü", "2026-07-15T09:03:00.123456")),
            ("t|2026-07-15T09:03:00.5+0200", other("t", "2026-07-15T09:03:00.5+0200")),
            ("|2026-07-15T09:03:00Z", Marker::Unreadable),
            ("t|2026-13-15T09:03:00Z", Marker::Unreadable),
            ("t|2026-07-15", Marker::Unreadable),
            ("t|2026-07-15T09:03:00.Z", Marker::Unreadable),
            ("t|2026-07-15T09:03:00Zulu", Marker::Unreadable),
            ("t|2026-07-15T09:03:00+2:00", Marker::Unreadable),
            ("a|b|2026-07-15T09:03:00Z", Marker::Unreadable),
            ("r-1:7|2026-07-15T09:03:00Z|0", Marker::Unreadable),
            ("r-1:7|2026-07-15T09:03:00Z|01", Marker::Unreadable),
            ("r-1:7|2026-07-15T09:03:00Z|4294967296", Marker::Unreadable),
            ("r-1:7|2026-07-15T09:03:00Z|1|", Marker::Unreadable),
            ("r-1:07|2026-07-15T09:03:00Z|1", Marker::Unreadable),
            ("r-1:0|2026-07-15T09:03:00Z|1", Marker::Unreadable),
            ("r-1:18446744073709551616|2026-07-15T09:03:00Z|1", Marker::Unreadable),
            ("r 1:7|2026-07-15T09:03:00Z|1", Marker::Unreadable),
            ("r-1:7|noon|1", Marker::Unreadable),
            ("1", Marker::Unreadable),
            ("", Marker::Unreadable),
        ] {
            assert_eq!(Owners::default().read(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(Owners::default().read(b"\xff|2026-07-15T09:03:00Z"), Marker::Unreadable);
    }

    #[test]
    fn neighbours_of_one_owner_share_it() {
        let (first, second) = (owner("r-1", 1, "2026-07-15T09:03:00Z"), owner("r-1", 2, "2026-07-15T09:03:00Z"));
        let mut owners = Owners::default();
        let mut read = |owner: &Owner, row| match owners.read(&spelled(owner, row)) {
            Marker::Run { owner: found, row: found_row } => {
                assert_eq!((&*found, found_row), (owner, row));
                found
            }
            other @ (Marker::OtherWriter(_) | Marker::Unreadable) => panic!("{other:?}"),
        };
        let once = read(&first, 1);
        assert!(Arc::ptr_eq(&once, &read(&first, 2_000_000)));
        assert!(!Arc::ptr_eq(&once, &read(&second, 3)));
    }

    proptest! {
        #[test]
        fn a_marker_comes_back_whatever_was_read_before(
            rows in proptest::collection::vec((0_usize..3, 1_u64..=u64::MAX), 0..20)
        ) {
            // One run id is the beginning of another, and one epoch the end of another.
            let all = [
                owner("r-1", 1, "2026-07-15T09:03:00Z"),
                owner("r-1", 11, "2026-07-15T09:03:00Z"),
                owner("r-11", 1, "2026-07-15T09:03:00.5+00:00"),
            ];
            let mut owners = Owners::default();
            for (index, row) in rows {
                let marker = owners.read(&spelled(&all[index], row));
                prop_assert_eq!(marker, Marker::Run { owner: all[index].clone(), row });
            }
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            Owners::default().read(&bytes);
        }
    }
}
