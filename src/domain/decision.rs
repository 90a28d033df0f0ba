//! What becomes of a record, and by which rule.

use std::sync::Arc;

use super::{ClaimOutcome, Content, Marker, Original, Owner, RunId, RunState};

/// What becomes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Decision {
    Accepted,
    Suppressed,
    Conflict,
    Held,
    Rejected,
    Unverified,
}

impl Decision {
    /// Every decision, in the order of summaries.
    pub const ALL: [Self; 6] =
        [Self::Accepted, Self::Suppressed, Self::Conflict, Self::Held, Self::Rejected, Self::Unverified];

    /// The decision on the wire: `match_decision` of the audit log.
    pub fn wire_name(self) -> &'static str {
        match self {
            Self::Accepted => "ACCEPTED",
            Self::Suppressed => "DUPLICATE_SUPPRESSED",
            Self::Conflict => "IDEMPOTENCY_CONFLICT",
            Self::Held => "HELD",
            Self::Rejected => "REJECTED",
            Self::Unverified => "REDIS_UNAVAILABLE",
        }
    }

    /// The decision in sentences: `970 accepted`.
    pub fn adjective(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Suppressed => "suppressed",
            Self::Conflict => "conflicting",
            Self::Held => "held",
            Self::Rejected => "rejected",
            Self::Unverified => "unverified",
        }
    }

    /// The middle of the name of the file that its records go to.
    pub fn file_kind(self) -> &'static str {
        match self {
            Self::Accepted | Self::Unverified => "accepted",
            Self::Suppressed => "suppressed",
            Self::Conflict => "conflicts",
            Self::Held => "held",
            Self::Rejected => "rejected",
        }
    }

    /// Its place in `ALL`.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Whether a person must look at records of this kind.
    pub fn waits_for_a_person(self) -> bool {
        match self {
            Self::Accepted | Self::Suppressed => false,
            Self::Conflict | Self::Held | Self::Rejected | Self::Unverified => true,
        }
    }
}

/// What is known of the run that owns a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunView {
    pub state: RunState,
    /// The attempt that published, or the latest one.
    pub epoch: u32,
    pub feed_name: String,
}

/// The earlier sight of a record that its decision rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Basis {
    /// An earlier row, of this run or another.
    Row { owner: Arc<Owner>, row: u64, feed: Option<Arc<RunView>> },
    /// Another writer: its trace and its time.
    OtherWriter(Arc<(String, String)>),
    /// A marker that nobody can read.
    Unreadable,
}

/// A decision and what it rests on; an accepted record rests on nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    pub decision: Decision,
    pub basis: Option<Basis>,
    /// What stands for the payment, where it is not what the record says.
    pub original: Option<Box<Content>>,
}

impl Decided {
    /// A decision that rests on no earlier sight of the record.
    pub fn on_nothing(decision: Decision) -> Self {
        Self { decision, basis: None, original: None }
    }
}

/// What the state of a foreign run says of a record that it has claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// A published output holds the record.
    Stand,
    /// The run may still publish it.
    Hold,
    /// The run cannot publish it any more, or did not: the claim may be taken over.
    TakeOver,
}

/// Judges a marker of `epoch` by what is known of its run.
///
/// A marker of an earlier epoch than the published one is of an attempt that died: what was published had taken over
/// every claim it accepted. A marker of a later epoch than the record's says that the store forgot the record.
pub fn judge(epoch: u32, view: Option<&RunView>) -> Judgement {
    let Some(view) = view.filter(|view| epoch <= view.epoch) else { return Judgement::Hold };
    match view.state {
        RunState::Published if epoch == view.epoch => Judgement::Stand,
        RunState::Published | RunState::Fenced | RunState::Reverted => Judgement::TakeOver,
        RunState::Open | RunState::Sealed | RunState::Publishing => Judgement::Hold,
    }
}

/// Decides one record of run `run` by the store's answer; `view` tells what is known of another run.
///
/// Only what a published attempt accepted suppresses, or conflicts; what might be taken over and was not is held.
pub fn decide(
    run: &RunId,
    row: u64,
    outcome: ClaimOutcome,
    view: impl FnOnce(&RunId) -> Option<Arc<RunView>>,
) -> Decided {
    let (marker, original) = match outcome {
        ClaimOutcome::Novel => return Decided::on_nothing(Decision::Accepted),
        ClaimOutcome::Found(marker) => (marker, None),
        ClaimOutcome::Differs(differing) => {
            let Original { marker, content } = *differing;
            (marker, Some(Box::new(content)))
        }
    };
    let known = if original.is_some() { Decision::Conflict } else { Decision::Suppressed };
    let (decision, basis) = match marker {
        Marker::Unreadable => (Decision::Held, Basis::Unreadable),
        Marker::OtherWriter(writer) => (known, Basis::OtherWriter(writer)),
        Marker::Run { owner, row: first } if owner.run == *run => {
            if first == row && original.is_none() {
                // Our own claim, seen again: an answer that was lost, or an attempt that died.
                return Decided::on_nothing(Decision::Accepted);
            }
            (known, Basis::Row { owner, row: first, feed: None })
        }
        Marker::Run { owner, row: first } => {
            let feed = view(&owner.run);
            let decision = match judge(owner.epoch, feed.as_deref()) {
                Judgement::Stand => known,
                Judgement::Hold | Judgement::TakeOver => Decision::Held,
            };
            (decision, Basis::Row { owner, row: first, feed })
        }
    };
    Decided { decision, basis: Some(basis), original }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(run: &str) -> Arc<Owner> {
        Arc::new(Owner { run: RunId::parse(run).unwrap(), epoch: 1, seen_at: "2026-07-15T09:03:00+00:00".into() })
    }

    fn check(outcome: ClaimOutcome, state: Option<RunState>) -> Decision {
        check_epoch(outcome, state, 1)
    }

    fn check_epoch(outcome: ClaimOutcome, state: Option<RunState>, epoch: u32) -> Decision {
        let view = |_: &RunId| state.map(|state| Arc::new(RunView { state, epoch, feed_name: "june.csv".into() }));
        decide(&RunId::parse("r-july").unwrap(), 7, outcome, view).decision
    }

    #[test]
    fn only_a_published_run_suppresses() {
        let foreign = || ClaimOutcome::Found(Marker::Run { owner: owner("r-june"), row: 7 });
        for state in RunState::ALL {
            let expected = if state == RunState::Published { Decision::Suppressed } else { Decision::Held };
            assert_eq!(check(foreign(), Some(state)), expected, "{state:?}");
        }
        assert_eq!(check(foreign(), None), Decision::Held, "a run without a record may still publish");
        let orphaned = check_epoch(foreign(), Some(RunState::Published), 2);
        assert_eq!(orphaned, Decision::Held, "the attempt that published did not accept it");
    }

    #[test]
    fn a_claim_is_taken_over_where_its_attempt_cannot_publish_any_more() {
        use Judgement::{Hold, Stand, TakeOver};
        for (state, earlier, same, later) in [
            (RunState::Open, Hold, Hold, Hold),
            (RunState::Sealed, Hold, Hold, Hold),
            (RunState::Publishing, Hold, Hold, Hold),
            (RunState::Published, TakeOver, Stand, Hold),
            (RunState::Fenced, TakeOver, TakeOver, Hold),
            (RunState::Reverted, TakeOver, TakeOver, Hold),
        ] {
            let view = RunView { state, epoch: 2, feed_name: String::new() };
            assert_eq!([1, 2, 3].map(|epoch| judge(epoch, Some(&view))), [earlier, same, later], "{state:?}");
        }
        assert_eq!(judge(1, None), Hold);
    }

    #[test]
    fn our_own_marker_accepts_its_row_and_suppresses_the_others() {
        let own = |row| ClaimOutcome::Found(Marker::Run { owner: owner("r-july"), row });
        assert_eq!(check(own(7), None), Decision::Accepted);
        assert_eq!(check(own(3), None), Decision::Suppressed);
    }

    #[test]
    fn another_writer_is_final_and_an_unreadable_marker_is_not() {
        let writer = Marker::OtherWriter(Arc::new(("webhook-1".into(), "2026-07-15T09:03:00Z".into())));
        assert_eq!(check(ClaimOutcome::Found(writer), None), Decision::Suppressed);
        assert_eq!(check(ClaimOutcome::Found(Marker::Unreadable), None), Decision::Held);
    }

    #[test]
    fn another_content_of_the_payment_conflicts_where_the_same_one_would_suppress() {
        let content = Content::from_bytes([7; Content::LEN]);
        let differing = |marker| ClaimOutcome::Differs(Box::new(Original { marker, content }));
        let run = |name: &str, row| Marker::Run { owner: owner(name), row };
        for state in RunState::ALL {
            let expected = if state == RunState::Published { Decision::Conflict } else { Decision::Held };
            assert_eq!(check(differing(run("r-june", 7)), Some(state)), expected, "{state:?}");
        }
        assert_eq!(check(differing(run("r-june", 7)), None), Decision::Held);
        assert_eq!(check(differing(run("r-july", 3)), None), Decision::Conflict, "an earlier row of the feed");
        let writer = Marker::OtherWriter(Arc::new(("webhook-1".into(), "2026-07-15T09:03:00Z".into())));
        assert_eq!(check(differing(writer), None), Decision::Conflict);
        assert_eq!(check(differing(Marker::Unreadable), None), Decision::Held);
        let decided = decide(&RunId::parse("r-july").unwrap(), 7, differing(run("r-july", 3)), |_| None);
        assert_eq!(decided.original.as_deref(), Some(&content));
    }

    #[test]
    fn places_and_spellings_are_distinct() {
        for (index, decision) in Decision::ALL.into_iter().enumerate() {
            assert_eq!(decision.index(), index);
            let same = Decision::ALL.into_iter().filter(|other| other.wire_name() == decision.wire_name()).count();
            assert_eq!(same, 1);
        }
    }
}
