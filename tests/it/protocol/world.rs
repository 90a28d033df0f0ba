//! What the calls of the engine act on: a store whose server may lose what no replica has, and files.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use feeddedup::domain::{
    Adoption, Claim, ClaimOutcome, Decision, Expected, IdentityHash, Lineage, Marker, RunId, RunState, RunStore,
};
use feeddedup::store::{Memory, MemoryLayout};

use super::flaw::Flaw;
use super::replay::{Answer, Call, Decided};

/// A primary, and how it stood before each write that no replica has confirmed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Shard {
    pub(crate) memory: Arc<Memory>,
    pub(crate) unconfirmed: Vec<Arc<Memory>>,
}

/// One output of an attempt, waiting or published.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Output {
    pub(crate) epoch: u32,
    pub(crate) decided: Arc<Vec<Decided>>,
    /// Whether the disk has it: the bytes of a temporary, the name of a published output.
    pub(crate) is_synced: bool,
    /// Whether the disk has the bytes of a published output.
    are_bytes_synced: bool,
}

/// A folder, a run and an output's place.
type Place = (String, RunId, usize);

/// A record in a published output.
#[derive(Debug, Clone)]
pub(crate) struct Found<'a> {
    place: &'a Place,
    #[expect(dead_code, reason = "shown when something is wrong")]
    epoch: u32,
    claim: Claim,
}

/// Store and files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// Of the claims, and of the run records: one and the same or not.
    pub(crate) shards: Vec<Shard>,
    pub(crate) temporaries: BTreeMap<(Place, u32), Output>,
    pub(crate) published: BTreeMap<Place, Output>,
    /// Runs that an operator has begun to take back; what they published counts no more.
    pub(crate) reverted: BTreeSet<RunId>,
    /// Runs whose suppressed records were handed out again, and because of which run.
    pub(crate) released: BTreeSet<(RunId, RunId)>,
    /// How often a server took over.
    pub(crate) failovers: u32,
}

/// Who makes a call.
#[derive(Debug, Clone)]
pub(crate) struct Caller<'a> {
    pub(crate) run: &'a RunId,
    pub(crate) folder: &'a str,
    /// The call before.
    pub(crate) last: Option<&'a Call>,
    pub(crate) outputs: usize,
}

fn sure<T>(answer: Result<T, Infallible>) -> T {
    answer.unwrap_or_else(|never| match never {})
}

impl World {
    pub(crate) fn new(shards: usize, layout: MemoryLayout) -> Self {
        let memory = Arc::new(Memory { layout, ..Memory::default() });
        Self { shards: vec![Shard { memory, unconfirmed: Vec::new() }; shards], ..Self::default() }
    }

    /// The store as it is for run records.
    pub(crate) fn runs(&self) -> &Memory {
        &self.shards.last().expect("there is a shard").memory
    }

    pub(crate) fn state_of(&self, run: &RunId) -> Option<(RunState, u32)> {
        self.runs().runs.get(run).map(|record| (record.state, record.epoch))
    }

    /// Ends the lease of every run.
    pub(crate) fn expire_all(&mut self) {
        let runs: Vec<RunId> = self.runs().runs.keys().cloned().collect();
        runs.iter().for_each(|run| self.expire(run));
    }

    /// Hands out again what `dependents` had suppressed because of `run`, which is taken back.
    pub(crate) fn hand_out(&mut self, run: &RunId, dependents: &[RunId]) {
        self.released.extend(dependents.iter().map(|released| (released.clone(), run.clone())));
    }

    /// What must never be of `payment`: two records of it accepted, or none although an output says that one is. While
    /// a run is being taken back its records are nowhere.
    pub(crate) fn wrong_with(&self, payment: &IdentityHash, is_reverting: bool) -> Option<String> {
        let accepted = self.accepted(payment);
        if accepted.len() > 1 {
            return Some(format!("accepted twice: {accepted:?}"));
        }
        if is_reverting {
            return None;
        }
        let is_same = |claim: &Claim| accepted.iter().any(|found| found.claim.source_hash == claim.source_hash);
        let suppressed = self.diverted_as(payment, Decision::Suppressed);
        if let Some(lost) = suppressed.iter().find(|found| !is_same(&found.claim)) {
            return Some(format!("lost: suppressed and accepted nowhere: {lost:?}"));
        }
        let conflicts = self.diverted_as(payment, Decision::Conflict);
        match accepted.is_empty() && !conflicts.is_empty() {
            true => Some(format!("lost: in conflict with what is accepted nowhere: {conflicts:?}")),
            false => None,
        }
    }

    /// Ends the lease of `run`.
    pub(crate) fn expire(&mut self, run: &RunId) {
        let shard = self.shards.last_mut().expect("there is a shard");
        Arc::make_mut(&mut shard.memory).leases.insert(run.clone(), Duration::ZERO);
    }

    /// Lets another server take over for `shard`, which lacks all writes from the `kept`-th unconfirmed one on.
    pub(crate) fn fail_over(&mut self, shard: usize, kept: usize) {
        self.failovers += 1;
        let shard = &mut self.shards[shard];
        if kept < shard.unconfirmed.len() {
            shard.memory = Arc::clone(&shard.unconfirmed[kept]);
        }
        shard.unconfirmed.clear();
        let lineage = format!("after {}", self.failovers);
        Arc::make_mut(&mut shard.memory).lineage = Lineage(lineage);
    }

    /// Cuts the power of the hosts whose folders `is_hit`: what the disk was not told to keep is gone.
    pub(crate) fn cut_power(&mut self, is_hit: impl Fn(&str) -> bool) {
        let lost: Vec<Place> = self
            .published
            .iter()
            .filter(|((folder, ..), output)| is_hit(folder) && !output.is_synced)
            .map(|(place, _)| place.clone())
            .collect();
        self.temporaries.retain(|((folder, ..), _), output| !is_hit(folder) || output.is_synced);
        for place in lost {
            let output = self.published.remove(&place).expect("it was found above");
            // The bytes were synced under the old name, or they are gone with it.
            if output.are_bytes_synced {
                let epoch = output.epoch;
                self.temporaries.insert((place, epoch), Output { is_synced: true, ..output });
            }
        }
    }

    /// The records of `payment` that are accepted, in outputs that count.
    pub(crate) fn accepted(&self, payment: &IdentityHash) -> Vec<Found<'_>> {
        self.decided_as(payment, Decision::Accepted)
    }

    /// Its records that runs that count published under `decision`, unless they were handed out again.
    fn diverted_as(&self, payment: &IdentityHash, decision: Decision) -> Vec<Found<'_>> {
        let is_handed_out = |run: &RunId| self.released.iter().any(|(released, _)| released == run);
        self.decided_as(payment, decision).into_iter().filter(|found| !is_handed_out(&found.place.1)).collect()
    }

    fn decided_as(&self, payment: &IdentityHash, decision: Decision) -> Vec<Found<'_>> {
        let counts = |(_, run, place): &Place| *place == 0 && !self.reverted.contains(run);
        let outputs = self.published.iter().filter(|(place, _)| counts(place));
        let found = outputs.flat_map(|(place, output)| {
            let records = output.decided.iter().map(|(claim, decided)| (claim, *decided));
            let meant = records.filter(|(claim, decided)| claim.identity == *payment && *decided == decision);
            meant.map(move |(claim, _)| Found { place, epoch: output.epoch, claim: *claim })
        });
        found.collect()
    }

    /// Carries out `call`, as a program with `flaw` does, and answers it.
    pub(crate) fn perform(&mut self, call: &Call, caller: &Caller<'_>, flaw: Option<Flaw>) -> Answer {
        let answer = self.with_flaw(call, caller, flaw);
        let answer = answer.or_else(|| self.perform_on_store(call)).or_else(|| self.perform_on_files(call, caller));
        let answer = answer.expect("every call is known");
        if let (Call::WriteRun(_, record, _), Answer::Flag(true)) = (call, &answer)
            && record.state == RunState::Reverted
        {
            self.reverted.insert(record.run.clone());
        }
        answer
    }

    /// The answer where `flaw` changes it.
    fn with_flaw(&mut self, call: &Call, caller: &Caller<'_>, flaw: Option<Flaw>) -> Option<Answer> {
        let last_state = match caller.last {
            Some(Call::WriteRun(_, record, _)) => Some(record.state),
            _ => None,
        };
        match (flaw?, call) {
            (Flaw::NoFence, Call::WriteRun(_, record, _)) if record.state == RunState::Fenced => {
                Some(Answer::Flag(true))
            }
            (Flaw::NoSealCheck, Call::WriteRun(_, record, _)) if record.state == RunState::Sealed => {
                self.write(self.shards.len() - 1, |memory| {
                    memory.runs.insert(record.run.clone(), (**record).clone());
                });
                Some(Answer::Flag(true))
            }
            (Flaw::SuppressOnOpen | Flaw::SuppressOnSealed, Call::RunRecord(_)) => {
                let Some(Answer::Known(Some(known))) = self.perform_on_store(call) else { return None };
                Some(Answer::Known(Some(Box::new(Flaw::seen(flaw, caller.run, *known)))))
            }
            (Flaw::NoWaitOnFence, Call::Confirm)
                if last_state == Some(RunState::Fenced) || matches!(caller.last, Some(Call::RunRecord(_))) =>
            {
                Some(Answer::Done)
            }
            (Flaw::NoWaitOnSeal, Call::Confirm)
                if matches!(last_state, Some(RunState::Sealed | RunState::Publishing)) =>
            {
                Some(Answer::Done)
            }
            (Flaw::NoLineageCheck, Call::Lineage) => Some(Answer::Lineage(Lineage::default())),
            (Flaw::NoReassert, Call::Claim(bid, claims)) if bid.epoch > 1 => {
                let own = |row| ClaimOutcome::Found(Marker::Run { owner: Arc::clone(bid), row });
                Some(Answer::Outcomes(claims.iter().map(|claim| own(claim.row)).collect()))
            }
            (Flaw::NoPublishingState, Call::WriteRun(expected, record, lease)) => match record.state {
                RunState::Publishing => Some(Answer::Flag(true)),
                RunState::Published => {
                    let expected = expected.map(|expected| Expected { state: RunState::Sealed, ..expected });
                    self.perform_on_store(&Call::WriteRun(expected, record.clone(), *lease))
                }
                _ => None,
            },
            (Flaw::NoEpochInMarker, Call::Claim(bid, _)) => {
                let Some(Answer::Outcomes(outcomes)) = self.perform_on_store(call) else { return None };
                let epoch_of = |run: &RunId| self.state_of(run).map_or(1, |(_, epoch)| epoch);
                let told = outcomes.into_iter().map(|outcome| Flaw::without_epoch(outcome, bid, epoch_of));
                Some(Answer::Outcomes(told.collect()))
            }
            (Flaw::NoEpochInMarker, Call::Adopt(adoptions)) => {
                let adoptions = adoptions.iter().map(|adoption| self.of_any_epoch(adoption)).collect();
                self.perform_on_store(&Call::Adopt(adoptions))
            }
            (Flaw::BlindTakeover, Call::Adopt(adoptions)) => {
                self.write(0, |memory| Flaw::take_over_blindly(memory, adoptions));
                self.perform_on_store(call)
            }
            (Flaw::ConflictClaimsLeft, Call::Release(..)) => Some(Answer::Number(0)),
            (Flaw::UnsyncedTemporaries, Call::SyncTemporaries(..)) | (Flaw::UnsyncedNames, Call::SyncNames) => {
                Some(Answer::Done)
            }
            _ => None,
        }
    }

    /// `adoption` as a program makes it that tells no attempts apart.
    fn of_any_epoch(&self, adoption: &Adoption) -> Adoption {
        let (owner, row) = &adoption.found;
        match self.standing_for(adoption) {
            Some(Marker::Run { owner: standing, row: at }) if (&standing.run, at) == (&owner.run, row) => {
                Adoption { found: (Arc::clone(standing), *row), ..adoption.clone() }
            }
            _ => adoption.clone(),
        }
    }

    /// The marker that `adoption` would compare.
    fn standing_for(&self, adoption: &Adoption) -> Option<&Marker> {
        let (claim, memory) = (&adoption.claim, &self.shards[0].memory);
        let by_content = memory.contents.get(&(claim.identity, claim.content()));
        let by_payment = memory.payments.get(&claim.identity).map(|payment| &payment.marker);
        if adoption.differing.is_some() { by_payment } else { by_content.or(by_payment) }
    }

    fn write<T>(&mut self, shard: usize, act: impl FnOnce(&mut Memory) -> T) -> T {
        let shard = &mut self.shards[shard];
        let before = Arc::clone(&shard.memory);
        let answer = act(Arc::make_mut(&mut shard.memory));
        if *shard.memory != *before {
            shard.unconfirmed.push(before);
        }
        answer
    }

    fn perform_on_store(&mut self, call: &Call) -> Option<Answer> {
        let of_runs = self.shards.len() - 1;
        Some(match call {
            Call::Claim(bid, claims) => Answer::Outcomes(sure(self.write(0, |memory| memory.claim(bid, claims)))),
            Call::Adopt(adoptions) => Answer::Flags(sure(self.write(0, |memory| memory.adopt(adoptions)))),
            Call::LookUp(claims) => Answer::Outcomes(sure(self.write(0, |memory| memory.look_up(claims)))),
            Call::Release(run, epoch, claims) => {
                Answer::Number(sure(self.write(0, |memory| memory.release(run, *epoch, claims))))
            }
            Call::ReleaseRun(run) => Answer::Number(sure(self.write(0, |memory| memory.release_run(run)))),
            Call::CheckIntact => Answer::Done,
            Call::Lineage => {
                let all: Vec<_> = self.shards.iter().map(|shard| shard.memory.lineage.0.as_str()).collect();
                Answer::Lineage(Lineage(all.join("/")))
            }
            Call::Confirm => {
                self.shards.iter_mut().for_each(|shard| shard.unconfirmed.clear());
                Answer::Done
            }
            Call::RunRecord(run) => {
                Answer::Known(sure(self.write(of_runs, |memory| memory.run_record(run))).map(Box::new))
            }
            Call::WriteRun(expected, record, lease) => {
                Answer::Flag(sure(self.write(of_runs, |memory| memory.write_run(*expected, record, *lease))))
            }
            Call::RenewLease(run, epoch, lease) => {
                Answer::Flag(sure(self.write(of_runs, |memory| memory.renew_lease(run, *epoch, *lease))))
            }
            Call::EachRun => {
                let mut runs = Vec::new();
                sure(self.write(of_runs, |memory| memory.each_run(&mut |known| runs.push(known))));
                Answer::Runs(runs)
            }
            Call::FeedNote(feed, meaning) => {
                Answer::Note(sure(self.write(of_runs, |memory| memory.feed_note(feed, meaning))))
            }
            Call::WriteFeedNote(feed, meaning, note) => {
                sure(self.write(of_runs, |memory| memory.write_feed_note(feed, meaning, note)));
                Answer::Done
            }
            _ => return None,
        })
    }

    fn perform_on_files(&mut self, call: &Call, caller: &Caller<'_>) -> Option<Answer> {
        let folder = caller.folder;
        let place = |run: &RunId, output: usize| (folder.to_owned(), run.clone(), output);
        Some(match call {
            Call::Begin(run, epoch) => {
                self.temporaries.retain(|((of, other, _), at), _| of != folder || other != run || at >= epoch);
                Answer::Done
            }
            Call::Write(run, epoch, decided) => {
                let decided = Arc::new(decided.clone());
                for output in 0..caller.outputs {
                    let written = Output {
                        epoch: *epoch,
                        decided: Arc::clone(&decided),
                        is_synced: false,
                        are_bytes_synced: false,
                    };
                    self.temporaries.insert((place(run, output), *epoch), written);
                }
                Answer::Done
            }
            Call::SyncTemporaries(run, epoch) => {
                let own = |((of, other, _), at): &(Place, u32)| of == folder && other == run && at == epoch;
                self.temporaries.iter_mut().filter(|(at, _)| own(at)).for_each(|(_, output)| output.is_synced = true);
                Answer::Done
            }
            Call::IsWaiting(run, epoch, output) => {
                Answer::Flag(self.temporaries.contains_key(&(place(run, *output), *epoch)))
            }
            Call::IsStanding(run, epoch, output) => {
                let standing = self.published.get(&place(run, *output));
                Answer::Flag(standing.is_some_and(|standing| standing.epoch == *epoch))
            }
            Call::Rename(run, epoch, output) => {
                let target = place(run, *output);
                match self.temporaries.remove(&(target.clone(), *epoch)) {
                    // Nothing is ever replaced.
                    Some(waiting) if !self.published.contains_key(&target) => {
                        let are_bytes_synced = waiting.is_synced;
                        self.published.insert(target, Output { is_synced: false, are_bytes_synced, ..waiting });
                        Answer::Done
                    }
                    Some(_) | None => Answer::Failed,
                }
            }
            Call::SyncNames => {
                let in_folder = self.published.iter_mut().filter(|((of, ..), _)| of == folder);
                in_folder.for_each(|(_, output)| output.is_synced = true);
                Answer::Done
            }
            Call::Abandon(run, epoch) => {
                self.temporaries.retain(|((of, other, _), at), _| of != folder || other != run || at != epoch);
                Answer::Done
            }
            _ => return None,
        })
    }
}
