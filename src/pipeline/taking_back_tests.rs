//! The rules of taking runs back, over a store in memory: who is in the way before and after, what is refused, and
//! that everything may be repeated.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::{
    Canonicalizer, ClaimScope, Digest, Lease, Marker, Owner, RawRecord, RunId, RunRecord, RunState, RunStore,
};
use crate::run::{Resolution, TakeBackStop, dependents_of, resolve, revert};
use crate::store::Memory;

fn id(run: &str) -> RunId {
    RunId::parse(run).unwrap()
}

/// A run in `state` that suppressed records because of each of `against`.
fn record(run: &str, state: RunState, against: &[&str]) -> RunRecord {
    RunRecord {
        epoch: 2,
        feed_digest: Digest::of(run.as_bytes()),
        suppressed_against: against.iter().map(|run| id(run)).collect(),
        ..RunRecord::sample(run, state)
    }
}

/// A store that knows `runs`, each with a lease that lasts; the first has two claims, of two attempts.
fn memory(runs: &[RunRecord]) -> Memory {
    let mut memory = Memory { now: Duration::from_secs(1_000), ..Memory::default() };
    for record in runs {
        memory.runs.insert(record.run.clone(), record.clone());
        memory.leases.insert(record.run.clone(), Duration::from_secs(1_060));
    }
    let mut canonicalizer = Canonicalizer::default();
    for (bank_txn_id, epoch, row) in [("1", 1, 1), ("2", 2, 2)] {
        let raw = RawRecord { account_id: "A", bank_txn_id, amount: "1", currency: "EUR", posted_at: "2026-07-01" };
        let form = canonicalizer.form(&raw).unwrap();
        let claim = form.claim(ClaimScope::Payment, row);
        let bid = Arc::new(Owner { run: runs[0].run.clone(), epoch, seen_at: String::new() });
        memory.claim(&bid, &[claim]).unwrap();
    }
    memory
}

fn end_lease(memory: &mut Memory, run: &str) {
    memory.leases.insert(id(run), Duration::ZERO);
}

fn names(records: &[RunRecord]) -> Vec<&str> {
    records.iter().map(|record| record.run.as_str()).collect()
}

fn state(memory: &Memory, run: &str) -> RunState {
    memory.runs[&id(run)].state
}

#[test]
fn only_sealed_and_published_runs_are_taken_back() {
    for state_before in RunState::ALL {
        let mut memory = memory(&[record("r-1", state_before, &[])]);
        let before = memory.clone();
        match (state_before, revert(&mut memory, &id("r-1"), false)) {
            (RunState::Sealed | RunState::Published, Ok(taken)) => {
                assert_eq!((taken.freed, taken.was_reverted), (2, false));
            }
            (RunState::Reverted, Ok(taken)) => assert_eq!((taken.freed, taken.was_reverted), (2, true)),
            (RunState::Open | RunState::Publishing | RunState::Fenced, Err(TakeBackStop::WrongState { .. })) => {
                assert_eq!(memory, before);
                continue;
            }
            (_, outcome) => panic!("{state_before:?}: {outcome:?}"),
        }
        assert_eq!((state(&memory, "r-1"), memory.contents.len()), (RunState::Reverted, 0));
        let again = revert(&mut memory, &id("r-1"), false).unwrap();
        assert_eq!((again.freed, again.was_reverted), (0, true));
    }
    let mut memory = memory(&[record("r-1", RunState::Published, &[])]);
    assert!(matches!(revert(&mut memory, &id("r-2"), false), Err(TakeBackStop::Unknown { .. })));
}

#[test]
fn the_claims_of_others_stay() {
    let mut memory = memory(&[record("r-1", RunState::Published, &[]), record("r-2", RunState::Published, &[])]);
    assert_eq!(revert(&mut memory, &id("r-2"), false).unwrap().freed, 0);
    let is_of_first = |marker: &Marker| matches!(marker, Marker::Run { owner, .. } if owner.run == id("r-1"));
    assert!(memory.contents.len() == 2 && memory.contents.values().all(is_of_first));
}

#[test]
fn dependents_are_told_apart_by_what_may_become_of_them() {
    let all = RunState::ALL.map(|state| record(&format!("r-{}", state.name()), state, &["r-1"]));
    let mut runs = vec![record("r-1", RunState::Published, &[]), record("r-other", RunState::Published, &["r-2"])];
    runs.extend(all);
    let mut memory = memory(&runs);
    let found = dependents_of(&mut memory, &id("r-1")).unwrap();
    assert_eq!(names(&found.published), ["r-PUBLISHED"]);
    assert_eq!(names(&found.unpublished), ["r-OPEN", "r-PUBLISHING", "r-SEALED"]);
    assert_eq!(names(&found.abandoned), [""; 0]);
    for state in RunState::ALL {
        end_lease(&mut memory, &format!("r-{}", state.name()));
    }
    let found = dependents_of(&mut memory, &id("r-1")).unwrap();
    assert_eq!(names(&found.unpublished), ["r-PUBLISHING", "r-SEALED"], "what is sealed may be adopted");
    assert_eq!(names(&found.abandoned), ["r-OPEN"]);
}

#[test]
fn published_dependents_are_passed_over_only_if_their_records_are_handed_out() {
    let runs = [record("r-1", RunState::Published, &[]), record("r-2", RunState::Published, &["r-1"])];
    let mut memory = memory(&runs);
    let before = memory.clone();
    match revert(&mut memory, &id("r-1"), false) {
        Err(TakeBackStop::Needed { by, .. }) => assert_eq!(names(&by), ["r-2"]),
        other => panic!("{other:?}"),
    }
    assert_eq!(memory, before);
    let taken = revert(&mut memory, &id("r-1"), true).unwrap();
    assert_eq!((taken.freed, names(&taken.dependents.published)), (2, vec!["r-2"]));
    // Repeated without the word, it tells of them again: whether they were handed out is not known here.
    assert_eq!(names(&revert(&mut memory, &id("r-1"), false).unwrap().dependents.published), ["r-2"]);
}

#[test]
fn a_run_waits_for_dependents_that_may_be_published_and_bars_those_that_were_left() {
    for unpublished in [RunState::Open, RunState::Sealed, RunState::Publishing] {
        let runs = [record("r-1", RunState::Published, &[]), record("r-2", unpublished, &["r-1"])];
        let mut memory = memory(&runs);
        let before = memory.clone();
        for release_suppressed in [false, true] {
            match revert(&mut memory, &id("r-1"), release_suppressed) {
                Err(TakeBackStop::NeededSoon { by, .. }) => assert_eq!(names(&by), ["r-2"], "{unpublished:?}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(memory, before);
        end_lease(&mut memory, "r-2");
        let outcome = revert(&mut memory, &id("r-1"), false);
        let is_barred = unpublished == RunState::Open;
        assert_eq!((outcome.is_ok(), state(&memory, "r-2") == RunState::Fenced), (is_barred, is_barred));
    }
}

/// As a run does that judged a record by the reverted one, and wrote its name down after it was looked for.
#[test]
fn a_dependent_that_comes_to_light_afterwards_is_told_of() {
    for (found, published, unpublished) in [
        (RunState::Published, vec!["r-2"], vec![]),
        (RunState::Sealed, vec![], vec!["r-2"]),
        (RunState::Open, vec![], vec!["r-2"]),
    ] {
        let mut memory = memory(&[record("r-1", RunState::Reverted, &[]), record("r-2", found, &["r-1"])]);
        let taken = revert(&mut memory, &id("r-1"), false).unwrap();
        assert_eq!(
            (names(&taken.dependents.published), names(&taken.dependents.unpublished)),
            (published, unpublished)
        );
        assert_eq!(taken.freed, 2, "the claims of a reverted run are free, whoever is in the way");
    }
}

#[test]
fn a_publishing_run_is_resolved_once_its_lease_is_over_or_unknown() {
    for (resolution, end, freed) in
        [(Resolution::Published, RunState::Published, 0), (Resolution::Lost, RunState::Reverted, 2)]
    {
        for lease in [Lease::Over, Lease::Unknown] {
            let mut memory = memory(&[record("r-1", RunState::Publishing, &[])]);
            let before = memory.clone();
            assert!(matches!(resolve(&mut memory, &id("r-1"), resolution), Err(TakeBackStop::Running { .. })));
            assert_eq!(memory, before);
            if lease == Lease::Over {
                end_lease(&mut memory, "r-1");
            } else {
                memory.leases.clear();
            }
            let taken = resolve(&mut memory, &id("r-1"), resolution).unwrap();
            assert_eq!((state(&memory, "r-1"), taken.freed, memory.contents.len()), (end, freed, 2 - freed as usize));
            let resolved = memory.clone();
            assert_eq!(resolve(&mut memory, &id("r-1"), resolution).unwrap().freed, 0, "it may be repeated");
            assert_eq!(memory, resolved);
        }
    }
}

#[test]
fn only_a_publishing_run_is_resolved() {
    for state_before in RunState::ALL {
        for (resolution, end) in [(Resolution::Published, RunState::Published), (Resolution::Lost, RunState::Reverted)]
        {
            let mut memory = memory(&[record("r-1", state_before, &[])]);
            end_lease(&mut memory, "r-1");
            let outcome = resolve(&mut memory, &id("r-1"), resolution);
            let is_resolved = state_before == RunState::Publishing || state_before == end;
            assert_eq!(outcome.is_ok(), is_resolved, "{state_before:?}");
            assert_eq!(state(&memory, "r-1"), if is_resolved { end } else { state_before });
        }
    }
}
