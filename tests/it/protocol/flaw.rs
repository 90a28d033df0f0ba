//! Bugs planted one at a time, in what the engine is told: the tests must find each, or they prove nothing.

use std::sync::Arc;

use feeddedup::domain::{Adoption, Bid, ClaimOutcome, KnownRun, Marker, Owner, RunId, RunRecord, RunState};
use feeddedup::store::{Memory, Payment};

/// A rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A run whose lease is over is taken over without being barred.
    NoFence,
    /// A seal is written whatever the record says by now.
    NoSealCheck,
    /// A claim of an open run suppresses.
    SuppressOnOpen,
    /// A claim of a sealed run suppresses.
    SuppressOnSealed,
    /// Replicas are not waited for after a fence.
    NoWaitOnFence,
    /// Replicas are not waited for from the seal on.
    NoWaitOnSeal,
    /// A server that took over is not noticed.
    NoLineageCheck,
    /// A later attempt believes that the claims of the earlier ones stand.
    NoReassert,
    /// The renames begin in state `SEALED`.
    NoPublishingState,
    /// Markers do not tell attempts apart.
    NoEpochInMarker,
    /// A claim whose record was diverted stays.
    ConflictClaimsLeft,
    /// A payment is taken over for another content whatever stands there by now.
    BlindTakeover,
    /// A claim that was asked again, and may arrive once more, is sealed over.
    LostAnswersForgotten,
    /// A run is sealed before the disk has its outputs.
    UnsyncedTemporaries,
    /// A run is published before the disk knows its names.
    UnsyncedNames,
    /// A server that dropped claims is not noticed.
    NoIntactCheck,
}

impl Flaw {
    /// Those that the search finds.
    pub(crate) const OF_MODEL: [Self; 13] = [
        Self::LostAnswersForgotten,
        Self::NoWaitOnFence,
        Self::NoWaitOnSeal,
        Self::NoLineageCheck,
        Self::NoEpochInMarker,
        Self::NoFence,
        Self::NoSealCheck,
        Self::SuppressOnOpen,
        Self::SuppressOnSealed,
        Self::NoReassert,
        Self::NoPublishingState,
        Self::ConflictClaimsLeft,
        Self::BlindTakeover,
    ];

    /// Those that dice find within the seeds that they get for it. `NoWaitOnFence` and `NoEpochInMarker` would take them
    /// a hundred thousand; the search is sure to find both.
    pub(crate) const OF_SIMULATOR: [Self; 12] = [
        Self::NoFence,
        Self::NoSealCheck,
        Self::SuppressOnOpen,
        Self::SuppressOnSealed,
        Self::NoWaitOnSeal,
        Self::NoLineageCheck,
        Self::NoReassert,
        Self::NoPublishingState,
        Self::ConflictClaimsLeft,
        Self::UnsyncedTemporaries,
        Self::UnsyncedNames,
        Self::NoIntactCheck,
    ];

    /// A foreign run's record as the flawed program takes it.
    pub(crate) fn seen(flaw: Option<Self>, own: &RunId, known: KnownRun) -> KnownRun {
        let is_foreign = known.record.run.as_str().split('.').next() != own.as_str().split('.').next();
        let is_mistaken = match known.record.state {
            RunState::Open => flaw == Some(Self::SuppressOnOpen),
            RunState::Sealed | RunState::Publishing => flaw == Some(Self::SuppressOnSealed),
            RunState::Published | RunState::Fenced | RunState::Reverted => false,
        };
        if !(is_foreign && is_mistaken) {
            return known;
        }
        KnownRun { record: RunRecord { state: RunState::Published, ..known.record }, ..known }
    }

    /// Passes payments on that have another content, without a look at what stands there.
    pub(crate) fn take_over_blindly(memory: &mut Memory, adoptions: &[Adoption]) {
        for Adoption { claim, owner, .. } in adoptions.iter().filter(|adoption| adoption.differing.is_some()) {
            let marker = Marker::Run { owner: Arc::clone(owner), row: claim.row };
            memory.payments.insert(claim.identity, Payment { content: claim.content(), marker });
        }
    }

    /// The answer to a claim as a program takes it that tells no attempts apart.
    pub(crate) fn without_epoch(outcome: ClaimOutcome, bid: &Bid, epoch_of: impl Fn(&RunId) -> u32) -> ClaimOutcome {
        let ClaimOutcome::Found(Marker::Run { owner, row }) = outcome else { return outcome };
        let epoch = if owner.run == bid.run { bid.epoch } else { epoch_of(&owner.run).max(1) };
        ClaimOutcome::Found(Marker::Run { owner: Arc::new(Owner { epoch, ..(*owner).clone() }), row })
    }
}
