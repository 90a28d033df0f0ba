//! Which state of a run may follow which. Pure.

use crate::domain::RunState;

/// How a run record may change: from a state, to a state, and whether a new attempt begins with it.
const TRANSITIONS: [(RunState, RunState, bool); 11] = [
    // Nothing is renamed before `PUBLISHING`: what was open, sealed or fenced is decided anew by the next attempt.
    (RunState::Open, RunState::Open, true),
    (RunState::Sealed, RunState::Open, true),
    (RunState::Fenced, RunState::Open, true),
    // The runs that it suppresses against are written down before the seal.
    (RunState::Open, RunState::Open, false),
    (RunState::Open, RunState::Sealed, false),
    (RunState::Open, RunState::Fenced, false),
    (RunState::Sealed, RunState::Publishing, false),
    (RunState::Publishing, RunState::Published, false),
    // By the operator.
    (RunState::Sealed, RunState::Reverted, false),
    (RunState::Published, RunState::Reverted, false),
    (RunState::Publishing, RunState::Reverted, false),
];

/// Whether a run in state `from` may go to `to`, within its attempt or, with `is_new_attempt`, in the next one.
pub fn may_follow(from: RunState, to: RunState, is_new_attempt: bool) -> bool {
    TRANSITIONS.contains(&(from, to, is_new_attempt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_state_is_allowed_or_not() {
        // A row a state: what may follow within the attempt, and what in the next one.
        for (from, within, next) in [
            (RunState::Open, "OPEN SEALED FENCED", "OPEN"),
            (RunState::Sealed, "PUBLISHING REVERTED", "OPEN"),
            (RunState::Publishing, "PUBLISHED REVERTED", ""),
            (RunState::Published, "REVERTED", ""),
            (RunState::Fenced, "", "OPEN"),
            (RunState::Reverted, "", ""),
        ] {
            let names = |is_new_attempt| {
                let following = RunState::ALL.into_iter().filter(|to| may_follow(from, *to, is_new_attempt));
                following.map(RunState::name).collect::<Vec<_>>().join(" ")
            };
            assert_eq!((names(false).as_str(), names(true).as_str()), (within, next), "{from:?}");
        }
    }
}
