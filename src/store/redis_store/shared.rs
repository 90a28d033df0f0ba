//! Claims in the layout that other writers can share: the source hash is the claim, and beside it stands an entry of
//! the payment.
//!
//! Whoever has the source hash owns the entry, if that has the same content. So the entry is read back only where the
//! source hash is ours and the entry was there before, and there it is brought in line with the claim.

use std::sync::Arc;

use super::RedisStore;
use super::claims::{AdoptCommand, ClaimCommand, LookUpCommand, ReleaseCommand, key_of};
use super::entries::Entry;
use super::references::{Reference, value_of};
use super::wire::Reply;
use crate::domain::{Adoption, Bid, Claim, ClaimOutcome, ClaimScope, Content, Marker, Original, Owner, RunId};
use crate::store::StoreError;

/// How often claims are asked again whose entries change while they are looked at.
const ROUNDS_MAX: u32 = 16;

/// What one command of a claim was answered.
enum Answer {
    Content(ClaimOutcome),
    /// Whether the entry is new.
    Payment(bool),
}

/// An entry that is to be brought in line with a claim.
struct Taking {
    claim: Claim,
    /// Who must have the source hash.
    marker: Marker,
    entry: Entry,
}

/// Makes every claim; the outcomes are in the order of `claims`.
pub(super) fn claim(store: &mut RedisStore, bid: &Bid, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, StoreError> {
    let mut outcomes = vec![ClaimOutcome::Novel; claims.len()];
    let mut left: Vec<usize> = (0..claims.len()).collect();
    for _ in 0..ROUNDS_MAX {
        if left.is_empty() {
            return Ok(outcomes);
        }
        left = claim_once(store, bid, claims, &left, &mut outcomes)?;
    }
    let cause = "entries of payments keep changing while they are looked at".to_owned();
    Err(StoreError::Corrupt { address: store.server.place.address.clone(), cause })
}

/// Makes the claims at the indexes `left`; returns those that are to be made once more.
fn claim_once(
    store: &mut RedisStore,
    bid: &Bid,
    claims: &[Claim],
    left: &[usize],
    outcomes: &mut [ClaimOutcome],
) -> Result<Vec<usize>, StoreError> {
    let of_payments = claims[left[0]].scope == ClaimScope::Payment;
    let answers = ask(store, bid, claims, left, of_payments)?;
    let mut answers = answers.into_iter();
    let (mut seen, mut foreign) = (Vec::new(), Vec::new());
    for index in left {
        let (Some(Answer::Content(outcome)), is_new) = (answers.next(), of_payments.then(|| answers.next()).flatten())
        else {
            unreachable!("a reply is read as what was asked for");
        };
        if let Some(Answer::Payment(is_new)) = is_new {
            let is_ours = match outcome.run_marker() {
                Some((owner, _)) => is_of_attempt(owner, bid),
                None => true,
            };
            match (is_ours, is_new) {
                (true, false) => seen.push(*index),
                (false, true) => foreign.push(*index),
                (true, true) | (false, false) => {}
            }
        }
        outcomes[*index] = outcome;
    }
    give_away(store, bid, claims, &foreign, outcomes)?;
    look_again(store, bid, claims, &seen, outcomes)
}

/// Sends the commands of the claims at the indexes `left`: one for the source hash, and one for the payment.
fn ask(
    store: &mut RedisStore,
    bid: &Bid,
    claims: &[Claim],
    left: &[usize],
    of_payments: bool,
) -> Result<Vec<Answer>, StoreError> {
    let command = ClaimCommand::new(&store.server.place.prefix, bid, store.claim_ttl);
    let reference = match of_payments {
        true => store.references.register(&mut store.server, bid)?,
        false => Reference::of(bid),
    };
    let (owners, entries) = (&mut store.owners, &store.entries);
    let per_claim = if of_payments { 2 } else { 1 };
    store.server.ask_all(
        left.len() * per_claim,
        |asked, out| {
            let claim = &claims[left[asked / per_claim]];
            match asked % per_claim {
                0 => command.write(claim, out),
                _ => entries.write_put(claim, reference, out),
            }
        },
        |asked, reply| match (asked % per_claim, reply) {
            (0, Reply::Nil) => Some(Answer::Content(ClaimOutcome::Novel)),
            (0, Reply::Text(marker)) => Some(Answer::Content(ClaimOutcome::Found(owners.read(marker)))),
            (1, Reply::Integer(is_new @ (0 | 1))) => Some(Answer::Payment(is_new == 1)),
            // `OK` comes from a server that ignores `GET`: it says neither new nor known.
            _ => None,
        },
    )
}

/// Gives the entries at the indexes `foreign`, which are ours and new, to the runs that have the source hashes: by
/// their state payments are judged.
fn give_away(
    store: &mut RedisStore,
    bid: &Bid,
    claims: &[Claim],
    foreign: &[usize],
    outcomes: &[ClaimOutcome],
) -> Result<(), StoreError> {
    let own = Reference::of(bid);
    let mut replacements = Vec::with_capacity(foreign.len());
    for index in foreign {
        let claim = &claims[*index];
        let (owner, row) = outcomes[*index].run_marker().expect("a run has the source hash");
        let reference = store.references.register(&mut store.server, owner)?;
        let old = Entry { owner: own.bytes(), content: claim.content(), row: claim.row };
        replacements.push((*claim, Some(old), Some(Entry { owner: reference.bytes(), row, ..old })));
    }
    // Where somebody was faster, the entry is not ours to give any more.
    store.replace_entries(&replacements).map(|_| ())
}

/// Reads the entries at the indexes `seen`, whose source hashes are ours or another writer's, and settles the outcomes;
/// returns those that are to be asked once more.
fn look_again(
    store: &mut RedisStore,
    bid: &Bid,
    claims: &[Claim],
    seen: &[usize],
    outcomes: &mut [ClaimOutcome],
) -> Result<Vec<usize>, StoreError> {
    if seen.is_empty() {
        return Ok(Vec::new());
    }
    let asked: Vec<Claim> = seen.iter().map(|index| claims[*index]).collect();
    let values = store.entries_of(&asked)?;
    store.load_references(&values)?;
    let (mut again, mut takings) = (Vec::new(), Vec::new());
    for ((index, claim), value) in seen.iter().zip(asked).zip(values) {
        let Some(value) = value else {
            // Lost, and gone: it was freed in between.
            again.push(*index);
            continue;
        };
        let (marker, owner) = match &outcomes[*index] {
            ClaimOutcome::Novel => (Marker::Run { owner: Arc::clone(bid), row: claim.row }, bid),
            ClaimOutcome::Found(marker @ Marker::Run { owner, .. }) => (marker.clone(), owner),
            ClaimOutcome::Found(marker @ (Marker::OtherWriter(_) | Marker::Unreadable)) => (marker.clone(), bid),
            ClaimOutcome::Differs(_) => unreachable!("the source hash was claimed"),
        };
        let row = if let Marker::Run { row, .. } = marker { row } else { claim.row };
        let is_final = !matches!(marker, Marker::Run { .. });
        let own = Entry { owner: Reference::of(owner).bytes(), content: claim.content(), row };
        match Entry::decode(&value) {
            Some(entry) if entry.content == own.content => {
                let found = store.references.owner(Reference::from_bytes(entry.owner));
                // An entry of another writer's claim is kept by the first run that meets it.
                let is_kept = is_final && found.is_none_or(|found| found.run != bid.run);
                if entry != own && !is_kept {
                    takings.push((*index, Taking { claim, marker, entry: own }));
                }
            }
            // What another writer has is suppressed, whatever else stands of the payment.
            Some(_) | None if is_final => {}
            entry => outcomes[*index] = ClaimOutcome::Differs(Box::new(store.original(entry))),
        }
    }
    let (indexes, takings): (Vec<usize>, Vec<Taking>) = takings.into_iter().unzip();
    let taken = store.take_entries(&takings)?;
    again.extend(indexes.into_iter().zip(taken).filter(|(_, is_taken)| !is_taken).map(|(index, _)| index));
    Ok(again)
}

/// Replaces what each of `adoptions` found by what it makes of it; says which are done.
pub(super) fn adopt(store: &mut RedisStore, adoptions: &[Adoption]) -> Result<Vec<bool>, StoreError> {
    let (mut of_contents, mut of_payments) = (Vec::new(), Vec::new());
    for (index, adoption) in adoptions.iter().enumerate() {
        let Adoption { claim, found: (owner, row), differing, owner: heir } = adoption;
        let Some(differing) = differing else {
            of_contents.push((index, adoption));
            continue;
        };
        let heir = store.references.register(&mut store.server, heir)?;
        let old = Entry { owner: Reference::of(owner).bytes(), content: *differing, row: *row };
        let new = Entry { owner: heir.bytes(), content: claim.content(), row: claim.row };
        of_payments.push((index, (*claim, Some(old), Some(new))));
    }
    let mut done = vec![false; adoptions.len()];
    let command = AdoptCommand::new(&store.server.place.prefix);
    let adopted = store.server.ask_all(
        of_contents.len(),
        |asked, out| command.write(of_contents[asked].1, out),
        |_, reply| reply.flag(),
    )?;
    let mut takings = Vec::new();
    for ((index, adoption), is_adopted) in of_contents.into_iter().zip(adopted) {
        done[index] = is_adopted;
        if is_adopted && adoption.claim.scope == ClaimScope::Payment {
            let Adoption { claim, owner, .. } = adoption;
            let reference = store.references.register(&mut store.server, owner)?;
            let entry = Entry { owner: reference.bytes(), content: claim.content(), row: claim.row };
            let marker = Marker::Run { owner: Arc::clone(owner), row: claim.row };
            takings.push((index, Taking { claim: *claim, marker, entry }));
        }
    }
    let (indexes, takings): (Vec<usize>, Vec<Taking>) = takings.into_iter().unzip();
    for (index, is_taken) in indexes.into_iter().zip(store.take_entries(&takings)?) {
        done[index] = is_taken;
    }
    let (indexes, replacements): (Vec<usize>, Vec<_>) = of_payments.into_iter().unzip();
    for (index, is_replaced) in indexes.into_iter().zip(store.replace_entries(&replacements)?) {
        done[index] = is_replaced;
    }
    Ok(done)
}

/// What stands for `claims`, in their order.
pub(super) fn look_up(store: &mut RedisStore, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, StoreError> {
    let command = LookUpCommand::new(&store.server.place.prefix);
    let owners = &mut store.owners;
    let markers = store.server.ask_all(
        claims.len(),
        |asked, out| command.write(&claims[asked], out),
        |_, reply| match reply {
            Reply::Nil => Some(None),
            Reply::Text(marker) => Some(Some(owners.read(marker))),
            Reply::Status(_) | Reply::Integer(_) | Reply::Error(_) => None,
        },
    )?;
    let unclaimed =
        claims.iter().zip(&markers).filter(|(claim, marker)| marker.is_none() && claim.scope == ClaimScope::Payment);
    let unclaimed: Vec<Claim> = unclaimed.map(|(claim, _)| *claim).collect();
    let values = store.entries_of(&unclaimed)?;
    store.load_references(&values)?;
    let mut values = values.into_iter();
    let mut outcome = |claim: &Claim, marker: Option<Marker>| match marker {
        Some(marker) => ClaimOutcome::Found(marker),
        None if claim.scope == ClaimScope::Content => ClaimOutcome::Novel,
        None => match values.next().flatten().map(|value| Entry::decode(&value)) {
            None => ClaimOutcome::Novel,
            Some(Some(entry)) if entry.content == claim.content() => ClaimOutcome::Novel,
            Some(entry) => ClaimOutcome::Differs(Box::new(store.original(entry))),
        },
    };
    Ok(claims.iter().zip(markers).map(|(claim, marker)| outcome(claim, marker)).collect())
}

/// Frees the source hashes and the entries of `claims` that are of `run` and an epoch up to `epoch`.
pub(super) fn release(store: &mut RedisStore, run: &RunId, epoch: u32, claims: &[Claim]) -> Result<u64, StoreError> {
    let prefix = store.server.place.prefix.clone();
    let keys: Vec<_> = claims.iter().map(|claim| key_of(&prefix, &claim.source_hash)).collect();
    let freed = store.release_keys(&ReleaseCommand::new(run, epoch), &keys)?;
    let values = store.entries_of(claims)?;
    store.load_references(&values)?;
    let is_to_go = |owner: &Arc<Owner>| owner.run == *run && owner.epoch <= epoch;
    let mut replacements = Vec::new();
    for (claim, value) in claims.iter().zip(values) {
        let Some(entry) = value.and_then(|value| Entry::decode(&value)) else { continue };
        let owner = store.references.owner(Reference::from_bytes(entry.owner));
        if entry.content == claim.content() && owner.is_some_and(is_to_go) {
            replacements.push((*claim, Some(entry), None));
        }
    }
    store.replace_entries(&replacements)?;
    Ok(freed)
}

fn is_of_attempt(owner: &Owner, bid: &Bid) -> bool {
    (&owner.run, owner.epoch) == (&bid.run, bid.epoch)
}

impl RedisStore {
    /// The values of the entries of `claims`, in their order.
    fn entries_of(&mut self, claims: &[Claim]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let entries = &self.entries;
        self.server.ask_all(
            claims.len(),
            |asked, out| entries.write_get(&claims[asked].identity, out),
            |_, reply| value_of(reply),
        )
    }

    /// Learns who owns the entries with these values.
    fn load_references(&mut self, values: &[Option<Vec<u8>>]) -> Result<(), StoreError> {
        let entries = values.iter().flatten().filter_map(|value| Entry::decode(value));
        self.references.load(&mut self.server, entries.map(|entry| Reference::from_bytes(entry.owner)))
    }

    /// What an entry says; nothing of one that cannot be read.
    fn original(&self, entry: Option<Entry>) -> Original {
        match entry {
            Some(Entry { owner, content, row }) => {
                Original { marker: self.references.marker(Reference::from_bytes(owner), row), content }
            }
            None => Original { marker: Marker::Unreadable, content: Content::from_bytes([0; Content::LEN]) },
        }
    }

    /// Replaces entries, if they stand as they were found; says which are replaced.
    fn replace_entries(
        &mut self,
        replacements: &[(Claim, Option<Entry>, Option<Entry>)],
    ) -> Result<Vec<bool>, StoreError> {
        let entries = &self.entries;
        self.server.ask_all(
            replacements.len(),
            |asked, out| {
                let (claim, old, new) = &replacements[asked];
                entries.write_replace(&claim.identity, old.as_ref(), new.as_ref(), out);
            },
            |_, reply| reply.flag(),
        )
    }

    /// Brings entries in line with their claims, if they have the same content or are missing; says which are.
    ///
    /// The entry is read before the source hash is looked at, and written only if it has not changed since: a worker
    /// that was barred meanwhile, and whose claim went to another run, can never overwrite that run's entry.
    fn take_entries(&mut self, takings: &[Taking]) -> Result<Vec<bool>, StoreError> {
        let (entries, look_up) = (&self.entries, LookUpCommand::new(&self.server.place.prefix));
        let values = self.server.ask_all(
            takings.len() * 2,
            |asked, out| {
                let claim = &takings[asked / 2].claim;
                match asked % 2 {
                    0 => entries.write_get(&claim.identity, out),
                    _ => look_up.write(claim, out),
                }
            },
            |_, reply| value_of(reply),
        )?;
        let (mut places, mut replacements) = (Vec::new(), Vec::new());
        for (place, (taking, values)) in takings.iter().zip(values.chunks_exact(2)).enumerate() {
            let Taking { claim, marker, entry } = taking;
            let is_standing = values[1].as_ref().is_some_and(|standing| self.owners.read(standing) == *marker);
            let old = values[0].as_ref().map(|value| Entry::decode(value));
            match old {
                Some(Some(old)) if old.content == entry.content && is_standing => {
                    places.push(place);
                    replacements.push((*claim, Some(old), Some(*entry)));
                }
                None if is_standing => {
                    places.push(place);
                    replacements.push((*claim, None, Some(*entry)));
                }
                Some(_) | None => {}
            }
        }
        let mut taken = vec![false; takings.len()];
        for (place, is_replaced) in places.into_iter().zip(self.replace_entries(&replacements)?) {
            taken[place] = is_replaced;
        }
        Ok(taken)
    }
}
