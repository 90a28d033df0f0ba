//! A store in memory, for tests of what stands above stores, and for looking at a store that does not exist.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Store, StoreError};
use crate::domain::{
    Adoption, Bid, Claim, ClaimOutcome, ClaimScope, Content, Digest, Expected, FeedNote, IdentityHash, KnownRun, Lease,
    Lineage, Marker, Original, RunId, RunRecord, RunStore,
};

/// Claims that it likes to be handed at once.
const CLAIMS_PER_CALL: usize = 1_000;

/// How claims stand in a store in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum MemoryLayout {
    /// The source hash is the claim; beside it stands what is known of the payment.
    #[default]
    Shared,
    /// The payment is the claim; further contents stand beside it.
    Packed,
}

/// What stands for a payment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Payment {
    pub content: Content,
    pub marker: Marker,
}

/// What a store in memory holds. It can be copied and compared, so that tests can explore what may become of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    pub layout: MemoryLayout,
    /// In the shared layout every claim, in the packed one further contents of payments.
    pub contents: BTreeMap<(IdentityHash, Content), Marker>,
    pub payments: BTreeMap<IdentityHash, Payment>,
    pub runs: BTreeMap<RunId, RunRecord>,
    /// When each lease ends, by the store's clock.
    pub leases: BTreeMap<RunId, Duration>,
    pub feeds: BTreeMap<(Digest, Digest), FeedNote>,
    pub lineage: Lineage,
    /// The store's clock, which stands still unless a test moves it.
    pub now: Duration,
    pub age: u64,
}

impl Memory {
    fn known(&self, record: &RunRecord) -> KnownRun {
        let lease = Lease::ending_at(self.leases.get(&record.run).copied(), self.now);
        KnownRun { record: record.clone(), lease }
    }

    /// The marker under the source hash, once it is there, and whether it is of this attempt.
    fn claim_content(&mut self, own: &Marker, claim: &Claim) -> (ClaimOutcome, Marker) {
        match self.contents.get(&content_key(claim)) {
            Some(found) => (ClaimOutcome::Found(found.clone()), found.clone()),
            None => {
                self.contents.insert(content_key(claim), own.clone());
                (ClaimOutcome::Novel, own.clone())
            }
        }
    }

    fn claim_shared(&mut self, bid: &Bid, claim: &Claim) -> ClaimOutcome {
        let own = Marker::Run { owner: bid.clone(), row: claim.row };
        let (outcome, marker) = self.claim_content(&own, claim);
        if claim.scope == ClaimScope::Content {
            return outcome;
        }
        let content = claim.content();
        let ours = |marker: &Marker| matches!(marker, Marker::Run { owner, .. } if owner.run == bid.run);
        let is_current =
            matches!(&marker, Marker::Run { owner, .. } if (&owner.run, owner.epoch) == (&bid.run, bid.epoch));
        match self.payments.get_mut(&claim.identity) {
            None => {
                // Another writer has no run by which an entry of its own could be judged.
                let marker = if matches!(marker, Marker::Run { .. }) { marker } else { own };
                self.payments.insert(claim.identity, Payment { content, marker });
            }
            Some(standing) if standing.content != content && is_current => {
                return ClaimOutcome::Differs(Box::new(original(standing)));
            }
            Some(standing) if standing.content == content && is_current => standing.marker = marker,
            Some(standing) if standing.content == content && ours(&standing.marker) && !ours(&marker) => {
                // What an attempt that died left for another writer's claim.
                if matches!(marker, Marker::OtherWriter(_)) {
                    standing.marker = own;
                }
            }
            Some(_) => {}
        }
        outcome
    }

    fn claim_packed(&mut self, bid: &Bid, claim: &Claim) -> ClaimOutcome {
        let own = Marker::Run { owner: bid.clone(), row: claim.row };
        let content = claim.content();
        match self.payments.get(&claim.identity) {
            None => {
                self.payments.insert(claim.identity, Payment { content, marker: own });
                ClaimOutcome::Novel
            }
            Some(standing) if standing.content == content => ClaimOutcome::Found(standing.marker.clone()),
            Some(standing) => match (self.contents.get(&content_key(claim)), claim.scope) {
                (Some(marker), _) => ClaimOutcome::Found(marker.clone()),
                (None, ClaimScope::Payment) => ClaimOutcome::Differs(Box::new(original(standing))),
                (None, ClaimScope::Content) => self.claim_content(&own, claim).0,
            },
        }
    }

    /// What stands for `claim`, as a run with this bid would find it.
    fn look_up_one(&self, claim: &Claim) -> ClaimOutcome {
        let by_content = self.contents.get(&content_key(claim)).map(|marker| ClaimOutcome::Found(marker.clone()));
        let by_payment = self.payments.get(&claim.identity).map(|standing| match standing.content == claim.content() {
            true => ClaimOutcome::Found(standing.marker.clone()),
            false => ClaimOutcome::Differs(Box::new(original(standing))),
        });
        match (self.layout, claim.scope) {
            (MemoryLayout::Shared, ClaimScope::Payment) => by_content.unwrap_or(match by_payment {
                Some(differs @ ClaimOutcome::Differs(_)) => differs,
                Some(ClaimOutcome::Novel | ClaimOutcome::Found(_)) | None => ClaimOutcome::Novel,
            }),
            (MemoryLayout::Shared, ClaimScope::Content) => by_content.unwrap_or(ClaimOutcome::Novel),
            (MemoryLayout::Packed, scope) => match (by_payment, by_content) {
                (None, _) => ClaimOutcome::Novel,
                (Some(found @ ClaimOutcome::Found(_)), _) | (Some(_), Some(found)) => found,
                (Some(_), None) if scope == ClaimScope::Content => ClaimOutcome::Novel,
                (Some(differs), None) => differs,
            },
        }
    }

    fn adopt_one(&mut self, Adoption { claim, found: (owner, row), differing, owner: heir }: &Adoption) -> bool {
        let old = Marker::Run { owner: owner.clone(), row: *row };
        let new = Marker::Run { owner: heir.clone(), row: claim.row };
        let content = claim.content();
        if let Some(differing) = differing {
            let (before, after) = (Payment { content: *differing, marker: old }, Payment { content, marker: new });
            let standing = self.payments.get_mut(&claim.identity);
            return standing.is_some_and(|standing| replace(standing, &before, after));
        }
        if self.layout == MemoryLayout::Packed {
            let (before, after) = (Payment { content, marker: old.clone() }, Payment { content, marker: new.clone() });
            if let Some(standing) = self.payments.get_mut(&claim.identity)
                && standing.content == content
            {
                return replace(standing, &before, after);
            }
        }
        let is_adopted =
            self.contents.get_mut(&content_key(claim)).is_some_and(|marker| replace(marker, &old, new.clone()));
        if !is_adopted || claim.scope == ClaimScope::Content || self.layout == MemoryLayout::Packed {
            return is_adopted;
        }
        let standing = self.payments.entry(claim.identity).or_insert_with(|| Payment { content, marker: new.clone() });
        if standing.content == content {
            standing.marker = new;
        }
        standing.content == content
    }

    /// Frees what `is_to_go`; says how many claims that were.
    fn free(&mut self, is_to_go: impl Fn(&IdentityHash, &Content, &Marker) -> bool) -> u64 {
        let contents = self.contents.len();
        self.contents.retain(|(identity, content), marker| !is_to_go(identity, content, marker));
        let payments = self.payments.len();
        self.payments.retain(|identity, payment| !is_to_go(identity, &payment.content, &payment.marker));
        let (contents, payments) = (contents - self.contents.len(), payments - self.payments.len());
        // In the shared layout what stands for the payment is no claim of its own.
        if self.layout == MemoryLayout::Shared {
            return contents as u64;
        }
        self.promote();
        (contents + payments) as u64
    }

    /// Lets a further content of a payment take the place of the first one, where that is gone.
    fn promote(&mut self) {
        while let Some((identity, content)) =
            self.contents.keys().find(|(identity, _)| !self.payments.contains_key(identity)).copied()
        {
            let marker = self.contents.remove(&(identity, content)).expect("it was found above");
            self.payments.insert(identity, Payment { content, marker });
        }
    }
}

fn content_key(claim: &Claim) -> (IdentityHash, Content) {
    (claim.identity, claim.content())
}

fn original(standing: &Payment) -> Original {
    Original { marker: standing.marker.clone(), content: standing.content }
}

/// Compares and sets; true also where it was done before.
fn replace<T: PartialEq>(standing: &mut T, old: &T, new: T) -> bool {
    let is_met = *standing == *old || *standing == new;
    if is_met {
        *standing = new;
    }
    is_met
}

impl RunStore for Memory {
    type Error = Infallible;

    fn claims_per_call(&self) -> usize {
        CLAIMS_PER_CALL
    }

    fn claim(&mut self, bid: &Bid, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, Infallible> {
        let claim_one = |claim: &Claim| match self.layout {
            MemoryLayout::Shared => self.claim_shared(bid, claim),
            MemoryLayout::Packed => self.claim_packed(bid, claim),
        };
        Ok(claims.iter().map(claim_one).collect())
    }

    fn answers_lost(&self) -> u64 {
        0
    }

    fn adopt(&mut self, adoptions: &[Adoption]) -> Result<Vec<bool>, Infallible> {
        Ok(adoptions.iter().map(|adoption| self.adopt_one(adoption)).collect())
    }

    fn look_up(&mut self, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, Infallible> {
        Ok(claims.iter().map(|claim| self.look_up_one(claim)).collect())
    }

    fn release(&mut self, run: &RunId, epoch: u32, claims: &[Claim]) -> Result<u64, Infallible> {
        let is_own =
            |marker: &Marker| matches!(marker, Marker::Run { owner, .. } if owner.run == *run && owner.epoch <= epoch);
        let is_meant = |identity: &IdentityHash, content: &Content| {
            claims.iter().any(|claim| content_key(claim) == (*identity, *content))
        };
        Ok(self.free(|identity, content, marker| is_own(marker) && is_meant(identity, content)))
    }

    fn release_run(&mut self, run: &RunId) -> Result<u64, Infallible> {
        Ok(self.free(|_, _, marker| matches!(marker, Marker::Run { owner, .. } if owner.run == *run)))
    }

    fn check_intact(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn lineage(&mut self) -> Result<Lineage, Infallible> {
        Ok(self.lineage.clone())
    }

    fn confirm(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn run_record(&mut self, run: &RunId) -> Result<Option<KnownRun>, Infallible> {
        Ok(self.runs.get(run).map(|record| self.known(record)))
    }

    fn write_run(
        &mut self,
        expected: Option<Expected>,
        record: &RunRecord,
        lease: Option<Duration>,
    ) -> Result<bool, Infallible> {
        let known = self.runs.get(&record.run).map(|stored| self.known(stored));
        if known.as_ref().is_none_or(|known| known.record != *record) {
            if !Expected::is_met(expected, known.as_ref()) {
                return Ok(false);
            }
            self.runs.insert(record.run.clone(), record.clone());
        }
        if let Some(lease) = lease {
            self.leases.insert(record.run.clone(), self.now + lease);
        }
        Ok(true)
    }

    fn renew_lease(&mut self, run: &RunId, epoch: u32, lease: Duration) -> Result<bool, Infallible> {
        if !self.runs.get(run).is_some_and(|record| record.is_alive_in(epoch)) {
            return Ok(false);
        }
        self.leases.insert(run.clone(), self.now + lease);
        Ok(true)
    }

    fn each_run(&mut self, act: &mut dyn FnMut(KnownRun)) -> Result<(), Infallible> {
        self.runs.values().for_each(|record| act(self.known(record)));
        Ok(())
    }

    fn feed_note(&mut self, feed: &Digest, meaning: &Digest) -> Result<Option<FeedNote>, Infallible> {
        Ok(self.feeds.get(&(*feed, *meaning)).cloned())
    }

    fn write_feed_note(&mut self, feed: &Digest, meaning: &Digest, note: &FeedNote) -> Result<(), Infallible> {
        self.feeds.insert((*feed, *meaning), note.clone());
        Ok(())
    }
}

/// A handle on a store that is forgotten with its last handle.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore(Arc<Mutex<Memory>>);

impl MemoryStore {
    /// An empty store of this layout.
    pub fn of_layout(layout: MemoryLayout) -> Self {
        Self(Arc::new(Mutex::new(Memory { layout, ..Memory::default() })))
    }

    /// What it holds; a handle that panicked left it whole, because every call does one thing.
    pub fn lock(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answer of a store that always has one.
fn sure<T>(answer: Result<T, Infallible>) -> Result<T, StoreError> {
    answer.map_err(|never| match never {})
}

impl RunStore for MemoryStore {
    type Error = StoreError;

    fn claims_per_call(&self) -> usize {
        CLAIMS_PER_CALL
    }

    fn claim(&mut self, bid: &Bid, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, StoreError> {
        sure(self.lock().claim(bid, claims))
    }

    fn answers_lost(&self) -> u64 {
        0
    }

    fn adopt(&mut self, adoptions: &[Adoption]) -> Result<Vec<bool>, StoreError> {
        sure(self.lock().adopt(adoptions))
    }

    fn look_up(&mut self, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, StoreError> {
        sure(self.lock().look_up(claims))
    }

    fn release(&mut self, run: &RunId, epoch: u32, claims: &[Claim]) -> Result<u64, StoreError> {
        sure(self.lock().release(run, epoch, claims))
    }

    fn release_run(&mut self, run: &RunId) -> Result<u64, StoreError> {
        sure(self.lock().release_run(run))
    }

    fn check_intact(&mut self) -> Result<(), StoreError> {
        sure(self.lock().check_intact())
    }

    fn lineage(&mut self) -> Result<Lineage, StoreError> {
        sure(self.lock().lineage())
    }

    fn confirm(&mut self) -> Result<(), StoreError> {
        sure(self.lock().confirm())
    }

    fn run_record(&mut self, run: &RunId) -> Result<Option<KnownRun>, StoreError> {
        sure(self.lock().run_record(run))
    }

    fn write_run(
        &mut self,
        expected: Option<Expected>,
        record: &RunRecord,
        lease: Option<Duration>,
    ) -> Result<bool, StoreError> {
        sure(self.lock().write_run(expected, record, lease))
    }

    fn renew_lease(&mut self, run: &RunId, epoch: u32, lease: Duration) -> Result<bool, StoreError> {
        sure(self.lock().renew_lease(run, epoch, lease))
    }

    fn each_run(&mut self, act: &mut dyn FnMut(KnownRun)) -> Result<(), StoreError> {
        sure(self.lock().each_run(act))
    }

    fn feed_note(&mut self, feed: &Digest, meaning: &Digest) -> Result<Option<FeedNote>, StoreError> {
        sure(self.lock().feed_note(feed, meaning))
    }

    fn write_feed_note(&mut self, feed: &Digest, meaning: &Digest, note: &FeedNote) -> Result<(), StoreError> {
        sure(self.lock().write_feed_note(feed, meaning, note))
    }
}

impl Store for MemoryStore {
    fn another(&self) -> Box<dyn Store> {
        Box::new(self.clone())
    }

    fn advance_age(&mut self) -> Result<u64, StoreError> {
        let mut memory = self.lock();
        memory.age += 1;
        Ok(memory.age)
    }
}
