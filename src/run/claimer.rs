//! Claims a run's records, and takes over what attempts left that cannot publish any more.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::work::ProtocolStop;
use crate::domain::{
    Adoption, Bid, Claim, ClaimOutcome, ClaimScope, Content, Expected, IdentityHash, Judgement, KnownRun, Lease,
    Lineage, Marker, Owner, RunId, RunRecord, RunState, RunStore, RunView, SourceHash, judge,
};

/// How often the claims of a batch are asked again whose markers, or whose markers' runs, changed meanwhile.
const ROUNDS_MAX: u32 = 8;

/// The answers to a batch of claims: whatever could be taken over is ours, and every outcome stands for this pass.
#[derive(Debug)]
pub struct Settled {
    /// In the order of the claims.
    pub outcomes: Vec<ClaimOutcome>,
    /// What is known of the runs that own the markers found.
    pub views: Views,
}

/// What is known of the runs that own markers; each is asked once in a pass, so that equal records share their fate.
#[derive(Debug, Clone, Default)]
pub struct Views(Arc<BTreeMap<RunId, Option<Arc<RunView>>>>);

impl Views {
    /// What is known of `run`.
    pub fn view(&self, run: &RunId) -> Option<Arc<RunView>> {
        self.0.get(run).cloned().flatten()
    }

    /// Every run that was asked for, and what was found.
    pub fn all(&self) -> impl Iterator<Item = (&RunId, Option<&RunView>)> {
        self.0.iter().map(|(run, view)| (run, view.as_deref()))
    }

    /// Learns of the owners of `outcomes` that are not known yet, other than `own`, by asking `find`.
    pub fn load_owners_of<E>(
        &mut self,
        outcomes: &[ClaimOutcome],
        own: &RunId,
        mut find: impl FnMut(&RunId) -> Result<Option<RunView>, E>,
    ) -> Result<(), E> {
        let mut last = None;
        for outcome in outcomes {
            let Some((owner, _)) = outcome.run_marker() else { continue };
            // A replay finds a million markers of one owner, one after another.
            if last.is_some_and(|last| Arc::ptr_eq(last, owner)) || owner.run == *own {
                continue;
            }
            last = Some(owner);
            if !self.0.contains_key(&owner.run) {
                let view = find(&owner.run)?.map(Arc::new);
                // A copy of the few that are known, where a batch on its way still looks at them.
                Arc::make_mut(&mut self.0).insert(owner.run.clone(), view);
            }
        }
        Ok(())
    }
}

/// What is known of a run by its record.
pub fn view_of(record: RunRecord) -> RunView {
    RunView { state: record.state, epoch: record.epoch, feed_name: record.feed_name }
}

/// Claims the records of one attempt, in one pass over its feed.
#[derive(Debug)]
pub(super) struct Claimer<'a, S: ?Sized> {
    store: &'a mut S,
    bid: Bid,
    /// The history of the store that the pass began in.
    lineage: Lineage,
    /// What was known of a run before anything was claimed.
    expected: Option<(RunId, RunView)>,
    pass: Pass,
}

/// What a pass over the feed leaves behind.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// What was learned of other runs.
    pub(super) views: Views,
    /// Claims taken over, by the run that had them.
    pub(super) taken_over: BTreeMap<RunId, u64>,
    /// The claims of records whose payment stands with another content. A layout may claim the source hash before it
    /// sees that, so they are to be freed: but not before the pass is over, because a release that arrives late must
    /// not find a claim that was accepted in the meantime.
    pub(super) differing: Vec<Claim>,
}

impl<'a, S: RunStore + ?Sized> Claimer<'a, S> {
    /// A claimer for the attempt that `bid` names.
    pub(super) fn new(store: &'a mut S, bid: Bid, lineage: Lineage) -> Self {
        Self { store, bid, lineage, expected: None, pass: Pass::default() }
    }

    /// What the pass leaves behind.
    pub(super) fn finish(self) -> Pass {
        self.pass
    }

    /// Claims a batch. Nothing is accepted for which the store did not say that the marker is of this attempt.
    pub(super) fn claim<E>(&mut self, all_claims: &[Claim]) -> Result<Settled, E>
    where
        E: From<S::Error> + From<ProtocolStop>,
    {
        let mut all_outcomes = Vec::new();
        // A block may hold more claims than the store likes at once.
        for claims in all_claims.chunks(self.store.claims_per_call().max(1)) {
            let mut outcomes = self.store.claim(&self.bid, claims)?;
            assert_eq!(outcomes.len(), claims.len(), "every claim has an outcome");
            self.settle::<E>(claims, &mut outcomes)?;
            let pairs = claims.iter().zip(&outcomes);
            let differing = pairs.filter(|(_, outcome)| matches!(outcome, ClaimOutcome::Differs(_)));
            self.pass.differing.extend(differing.map(|(claim, _)| *claim));
            if all_outcomes.is_empty() {
                all_outcomes = outcomes;
            } else {
                all_outcomes.append(&mut outcomes);
            }
        }
        Ok(Settled { outcomes: all_outcomes, views: self.pass.views.clone() })
    }

    /// Learns of a run before anything is claimed: markers that are then found of it need no second look.
    pub(super) fn expect(&mut self, run: &RunId) -> Result<(), S::Error> {
        // The passes of a feed may have been named otherwise: of a run that is not found nothing is known.
        self.expected = find_view(self.store, run, &self.lineage)?.map(|view| (run.clone(), view));
        Ok(())
    }

    /// Takes over what may be taken over, until nothing is left that may.
    fn settle<E>(&mut self, claims: &[Claim], outcomes: &mut [ClaimOutcome]) -> Result<(), E>
    where
        E: From<S::Error> + From<ProtocolStop>,
    {
        for _ in 0..ROUNDS_MAX {
            // A marker was read before its run was: in between the run may have given the claim back and been
            // published without it. So it is read again, after the state that makes it count.
            let published = self.load_views(outcomes)?;
            let again: Vec<usize> = match published.is_empty() {
                false => {
                    let is_of_published = |outcome: &ClaimOutcome| {
                        outcome.run_marker().is_some_and(|(owner, _)| published.contains(&owner.run))
                    };
                    (0..claims.len()).filter(|index| is_of_published(&outcomes[*index])).collect()
                }
                true => {
                    let takeovers = self.takeovers(claims, outcomes)?;
                    let contended = self.carry_out(takeovers)?;
                    let is_contended = |claim: &Claim| contended.contains(&Contended::by(claim));
                    (0..claims.len()).filter(|index| is_contended(&claims[*index])).collect()
                }
            };
            if again.is_empty() {
                return Ok(());
            }
            let claims_again: Vec<Claim> = again.iter().map(|index| claims[*index]).collect();
            for (index, outcome) in again.into_iter().zip(self.store.claim(&self.bid, &claims_again)?) {
                outcomes[index] = outcome;
            }
        }
        Err(ProtocolStop::Unsettled { run: self.bid.run.clone() }.into())
    }

    /// Learns of the runs that own the markers found; returns those that were found to be published just now.
    fn load_views(&mut self, outcomes: &[ClaimOutcome]) -> Result<Vec<RunId>, S::Error> {
        let (store, own, lineage) = (&mut *self.store, &self.bid.run, &self.lineage);
        let expected = self.expected.as_ref();
        let mut published = Vec::new();
        self.pass.views.load_owners_of(outcomes, own, |run| {
            if let Some((_, view)) = expected.filter(|(expected, _)| expected == run) {
                return Ok(Some(view.clone()));
            }
            let view = find_view(store, run, lineage)?;
            if view.as_ref().is_some_and(|view| view.state == RunState::Published) {
                published.push(run.clone());
            }
            Ok(view)
        })?;
        Ok(published)
    }

    /// What may be taken over of the markers in `outcomes`, each for the first row that contends for it; and writes to
    /// `outcomes` what stands once that is done.
    ///
    /// The row that a dead attempt gave a record proves nothing: it may have read other bytes. So the row decides that
    /// has the record now, and what stays behind in an earlier epoch suppresses nothing.
    fn takeovers(&self, claims: &[Claim], outcomes: &mut [ClaimOutcome]) -> Result<Takeovers, ProtocolStop> {
        let mut takeovers = Takeovers::default();
        let mut last_foreign: Option<(Arc<Owner>, Judgement)> = None;
        for (claim, outcome) in claims.iter().zip(outcomes) {
            let Some((owner, row)) = outcome.run_marker() else { continue };
            if owner.run == self.bid.run {
                if owner.epoch > self.bid.epoch {
                    return Err(ProtocolStop::Overtaken { run: self.bid.run.clone() });
                }
                // A later row of our own may have got the record while an earlier one was held: the lowest row owns.
                if owner.epoch == self.bid.epoch && row <= claim.row {
                    continue;
                }
            } else {
                // A replay finds a million markers of one owner, one after another.
                let judgement = match &last_foreign {
                    Some((last, judgement)) if Arc::ptr_eq(last, owner) => *judgement,
                    Some(_) | None => {
                        let judgement = judge(owner.epoch, self.pass.views.view(&owner.run).as_deref());
                        last_foreign = Some((Arc::clone(owner), judgement));
                        judgement
                    }
                };
                match judgement {
                    Judgement::Stand | Judgement::Hold => continue,
                    Judgement::TakeOver => {}
                }
            }
            takeovers.pass_on(claim, outcome, &self.bid);
        }
        Ok(takeovers)
    }

    /// Compare-and-sets every marker; returns what is to be asked again.
    fn carry_out(&mut self, takeovers: Takeovers) -> Result<HashSet<Contended>, S::Error> {
        let Takeovers { adoptions, mut contended, .. } = takeovers;
        if adoptions.is_empty() {
            return Ok(contended);
        }
        for (adoption, is_done) in adoptions.iter().zip(self.store.adopt(&adoptions)?) {
            let from = &adoption.found.0.run;
            if !is_done {
                // Somebody was faster: whose marker stands there now is asked once more.
                contended.insert(Contended::by(&adoption.claim));
            } else if *from != self.bid.run {
                *self.pass.taken_over.entry(from.clone()).or_default() += 1;
            }
        }
        Ok(contended)
    }
}

/// What is known of `run` now; one that nobody works on any more is barred from publishing first.
///
/// A bar that a server which took over may lack counts for nothing: the run may be published there. It is held then.
fn find_view<S: RunStore + ?Sized>(store: &mut S, run: &RunId, lineage: &Lineage) -> Result<Option<RunView>, S::Error> {
    let Some(known) = store.run_record(run)? else { return Ok(None) };
    let record = fence_if_expired(store, known)?;
    if matches!(record.state, RunState::Fenced | RunState::Reverted) {
        // Whoever barred the run may have died before the replicas knew of it.
        store.confirm()?;
        if store.lineage()? != *lineage {
            return Ok(None);
        }
    }
    Ok(Some(view_of(record)))
}

/// Bars an open run whose lease is over from sealing; returns the record as it stands then.
///
/// The lease is only a hint that it is time to try. What keeps the run from publishing is the change of its state.
pub(super) fn fence_if_expired<S: RunStore + ?Sized>(store: &mut S, known: KnownRun) -> Result<RunRecord, S::Error> {
    let KnownRun { record, lease } = known;
    if record.state != RunState::Open || lease != Lease::Over {
        return Ok(record);
    }
    let expected = Expected { state: RunState::Open, epoch: record.epoch, lease_over: true };
    let fenced = RunRecord { state: RunState::Fenced, ..record.clone() };
    if store.write_run(Some(expected), &fenced, None)? {
        return Ok(fenced);
    }
    // It woke up, or somebody else was faster: as it stands now it is judged.
    Ok(store.run_record(&record.run)?.map_or(record, |known| known.record))
}

/// What only one of several claims in a call can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Contended {
    Payment(IdentityHash),
    Content(SourceHash),
}

impl Contended {
    fn by(claim: &Claim) -> Self {
        match claim.scope {
            ClaimScope::Payment => Self::Payment(claim.identity),
            ClaimScope::Content => Self::Content(claim.source_hash),
        }
    }
}

/// Who has a record from now on: the first row that contends for it.
struct Heir {
    owner: Arc<Owner>,
    row: u64,
    source_hash: SourceHash,
}

/// The claims of one call that pass to this attempt.
#[derive(Default)]
struct Takeovers {
    adoptions: Vec<Adoption>,
    heirs: HashMap<Contended, Heir>,
    /// What has to be asked again once all is carried out.
    contended: HashSet<Contended>,
}

impl Takeovers {
    /// Passes what `claim` found as `outcome` on to the first row that contends for it, and writes what stands then.
    fn pass_on(&mut self, claim: &Claim, outcome: &mut ClaimOutcome, bid: &Bid) {
        let (owner, row) = outcome.run_marker().map(|(owner, row)| (Arc::clone(owner), row)).expect("it is a run's");
        let differing: Option<Content> = match outcome {
            ClaimOutcome::Differs(original) => Some(original.content),
            ClaimOutcome::Novel | ClaimOutcome::Found(_) => None,
        };
        let contended = Contended::by(claim);
        let is_first = !self.heirs.contains_key(&contended);
        let heir = self.heirs.entry(contended).or_insert_with(|| {
            let heir = match owner.run == bid.run {
                // The time of the first sight stays.
                true => Arc::new(Owner { seen_at: owner.seen_at.clone(), ..(**bid).clone() }),
                false => Arc::clone(bid),
            };
            let found = (Arc::clone(&owner), row);
            self.adoptions.push(Adoption { claim: *claim, found, differing, owner: Arc::clone(&heir) });
            Heir { owner: heir, row: claim.row, source_hash: claim.source_hash }
        });
        // What stands of two contents shows only when they are asked for again.
        if differing.is_some() || (!is_first && heir.source_hash != claim.source_hash) {
            self.contended.insert(contended);
        } else {
            *outcome = ClaimOutcome::Found(Marker::Run { owner: Arc::clone(&heir.owner), row: heir.row });
        }
    }
}
