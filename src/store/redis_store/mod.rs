//! A store on a Redis server, in the layout that other writers can share.
//!
//! A claim is `SET <prefix><source hash> <marker> NX GET EX <ttl>`: one command, atomic, the old marker in its reply.
//! In the same pipeline `HSETNX` puts an entry for the payment, which tells whether it stands with other content.
//! This folder is the only place that knows the client library.

mod claims;
mod connection;
mod entries;
mod failure;
mod opening;
mod records;
mod references;
mod replication;
mod shared;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;
use std::time::Duration;

pub(super) use opening::open;

use self::claims::{ReleaseCommand, is_of_claim};
use self::connection::{Link, Pace, Place};
use self::entries::{Entry, EntryCommands, write_delete};
use self::failure::{Failure, Patience};
use self::references::{Reference, References};
use self::replication::Replicas;
use self::wire::Reply;
use super::marker::Owners;
use super::{Access, Store, StoreConfig, StoreError};
use crate::domain::{
    Adoption, Bid, Claim, ClaimOutcome, Digest, Expected, FeedNote, Interrupt, KnownRun, Lineage, RunId, RunRecord,
    RunState, RunStore,
};

/// Claims in one round trip, where the settings do not say.
const BATCH_SIZE: usize = 1_000;

/// Batches whose replies may be owed at one time: the server works on one while the next is on its way.
const BATCHES_IN_FLIGHT: usize = 4;

/// Attempts at one thing, whatever the settings allow: their waits add up to a minute.
const ATTEMPTS_MAX: u32 = 10;

/// Enough batches that the server does not run dry at the end of each call.
const CLAIMS_PER_CALL: usize = 32_768;

/// Claims and run records on a server.
#[derive(Debug)]
pub struct RedisStore {
    server: Server,
    owners: Owners,
    references: References,
    entries: EntryCommands,
    claim_ttl: Duration,
    access: Access,
    /// How many keys the server had dropped for lack of room when it was opened.
    evicted_keys: u64,
    replicas: Replicas,
}

/// The server, through connections that are made again when they fail.
#[derive(Debug)]
struct Server {
    place: Place,
    link: Option<Link>,
    control: Option<ControlConnection>,
    batch_size: usize,
    failures_max: u32,
    backoff_first: Duration,
    interrupt: Interrupt,
    /// How often a connection for claims failed with answers owed.
    answers_lost: u64,
}

/// The client library's connection, which has no `Debug` of its own.
struct ControlConnection(redis::Connection);

impl std::fmt::Debug for ControlConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ControlConnection")
    }
}

impl Server {
    fn new(place: Place, config: &StoreConfig) -> Self {
        Self {
            place,
            link: None,
            control: None,
            batch_size: config.batch_size.unwrap_or(BATCH_SIZE).max(1),
            failures_max: config.failures_max,
            backoff_first: failure::BACKOFF_FIRST,
            interrupt: config.interrupt.clone(),
            answers_lost: 0,
        }
    }

    fn patience(&self) -> Patience {
        Patience::new(self.failures_max.min(ATTEMPTS_MAX), self.backoff_first, self.interrupt.clone())
    }

    /// Asks `count` questions, each spelled by `write`, and reads each reply with `read`; the answers are in order.
    ///
    /// Whatever goes wrong, the connection is dropped and all that was not answered is asked again, in its order, on a
    /// new one: a missing answer says nothing about whether its command was carried out.
    fn ask_all<T>(
        &mut self,
        count: usize,
        write: impl Fn(usize, &mut Vec<u8>),
        mut read: impl FnMut(usize, Reply<'_>) -> Option<T>,
    ) -> Result<Vec<T>, StoreError> {
        let mut answers = Vec::with_capacity(count);
        let mut patience = self.patience();
        while answers.len() < count {
            let answered_before = answers.len();
            // After a failure one batch at a time: a proxy that holds back could never get through with more.
            let batches_in_flight = if patience.is_tried() { 1 } else { BATCHES_IN_FLIGHT };
            let pace = Pace { batch_size: self.batch_size, batches_in_flight };
            let attempt = self.take_link().and_then(|mut link| {
                let exchanged = link.exchange(count, pace, &write, &mut read, &mut answers);
                self.answers_lost += u64::from(exchanged.is_err());
                exchanged.map(|()| link)
            });
            match attempt {
                Ok(link) => self.link = Some(link),
                Err(failure) => {
                    if answers.len() > answered_before {
                        patience.restore();
                    }
                    patience.wait_after(failure).map_err(|failure| self.place.error(failure))?;
                }
            }
        }
        Ok(answers)
    }

    /// Connects for claims. A server that refuses the connection is not there; only one that is slow is asked again.
    fn connect(&mut self) -> Result<(), StoreError> {
        let mut patience = self.patience();
        loop {
            match self.place.link() {
                Ok(link) => {
                    self.link = Some(link);
                    return Ok(());
                }
                Err(failure) if failure.is_in_time() => return Err(self.place.error(failure)),
                Err(failure) => patience.wait_after(failure).map_err(|failure| self.place.error(failure))?,
            }
        }
    }

    /// The connection for claims, or a new one. Taken out, so that it is gone unless it is put back.
    fn take_link(&mut self) -> Result<Link, Failure> {
        self.link.take().map_or_else(|| self.place.link(), Ok)
    }

    /// Carries out `operation`, which must be idempotent, on the library's connection, on a new one after each failure.
    fn operate<T>(
        &mut self,
        mut operation: impl FnMut(&mut redis::Connection) -> redis::RedisResult<T>,
    ) -> Result<T, StoreError> {
        let mut patience = self.patience();
        loop {
            let connection = self.control.take().map_or_else(|| self.place.control().map(ControlConnection), Ok);
            let attempt = connection.and_then(|mut connection| {
                let answer = operation(&mut connection.0)?;
                Ok((answer, connection))
            });
            match attempt {
                Ok((answer, connection)) => {
                    self.control = Some(connection);
                    return Ok(answer);
                }
                Err(failure) => patience.wait_after(failure).map_err(|failure| self.place.error(failure))?,
            }
        }
    }
}

impl RedisStore {
    fn release_keys(&mut self, command: &ReleaseCommand, keys: &[Vec<u8>]) -> Result<u64, StoreError> {
        self.assert_writable();
        let freed =
            self.server.ask_all(keys.len(), |index, out| command.write(&keys[index], out), |_, reply| reply.flag())?;
        Ok(freed.into_iter().filter(|is_freed| *is_freed).count() as u64)
    }

    /// Deletes the entries of `run` in the hashes `buckets`.
    fn free_entries(&mut self, run: &RunId, buckets: &[Vec<u8>]) -> Result<(), StoreError> {
        let found = records::entries_in(&mut self.server, buckets)?;
        let owner_of = |value: &[u8]| Entry::decode(value).map(|entry| Reference::from_bytes(entry.owner));
        self.references.load(&mut self.server, found.iter().filter_map(|(_, _, value)| owner_of(value)))?;
        let is_own = |value: &[u8]| {
            let owner = owner_of(value).and_then(|reference| self.references.owner(reference));
            owner.is_some_and(|owner| owner.run == *run)
        };
        let own: Vec<_> = found.iter().filter(|(_, _, value)| is_own(value)).collect();
        let write = |asked: usize, out: &mut Vec<u8>| {
            let (key, field, value) = own[asked];
            write_delete(key, field, value, out);
        };
        self.server.ask_all(own.len(), write, |_, reply| reply.flag()).map(|_| ())
    }

    /// A store opened for looking promises to leave no trace.
    fn assert_writable(&self) {
        assert!(matches!(self.access, Access::Write { .. }), "a store opened for reading is not written");
    }
}

impl RunStore for RedisStore {
    type Error = StoreError;

    fn claims_per_call(&self) -> usize {
        CLAIMS_PER_CALL
    }

    fn claim(&mut self, bid: &Bid, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, StoreError> {
        self.assert_writable();
        shared::claim(self, bid, claims)
    }

    fn answers_lost(&self) -> u64 {
        self.server.answers_lost
    }

    fn adopt(&mut self, adoptions: &[Adoption]) -> Result<Vec<bool>, StoreError> {
        self.assert_writable();
        shared::adopt(self, adoptions)
    }

    fn look_up(&mut self, claims: &[Claim]) -> Result<Vec<ClaimOutcome>, StoreError> {
        shared::look_up(self, claims)
    }

    /// After a lost answer the number is too low: what was freed before it is not seen again.
    fn release(&mut self, run: &RunId, epoch: u32, claims: &[Claim]) -> Result<u64, StoreError> {
        self.assert_writable();
        shared::release(self, run, epoch, claims)
    }

    fn release_run(&mut self, run: &RunId) -> Result<u64, StoreError> {
        let command = ReleaseCommand::new(run, u32::MAX);
        let mut freed = 0;
        let mut cursor = 0;
        loop {
            let (next, keys) = records::scan_keys(&mut self.server, cursor)?;
            let (buckets, keys): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| self.entries.is_bucket(key));
            self.free_entries(run, &buckets)?;
            let keys = keys.into_iter().filter(|key| is_of_claim(&self.server.place.prefix, key)).collect();
            let found = records::markers_at(&mut self.server, keys)?;
            let own = found.into_iter().filter(|(_, marker)| command.may_concern(marker)).map(|(key, _)| key);
            freed += self.release_keys(&command, &own.collect::<Vec<_>>())?;
            if next == 0 {
                return Ok(freed);
            }
            cursor = next;
        }
    }

    fn check_intact(&mut self) -> Result<(), StoreError> {
        opening::check_intact(&mut self.server, self.evicted_keys)
    }

    fn lineage(&mut self) -> Result<Lineage, StoreError> {
        replication::lineage(&mut self.server)
    }

    fn confirm(&mut self) -> Result<(), StoreError> {
        self.assert_writable();
        replication::confirm(&mut self.server, &self.replicas)
    }

    fn run_record(&mut self, run: &RunId) -> Result<Option<KnownRun>, StoreError> {
        records::run_record(&mut self.server, run)
    }

    fn write_run(
        &mut self,
        expected: Option<Expected>,
        record: &RunRecord,
        lease: Option<Duration>,
    ) -> Result<bool, StoreError> {
        self.assert_writable();
        if record.state == RunState::Open {
            // Before the record, which is confirmed before the first claim.
            self.references.register(&mut self.server, &Arc::new(record.owner()))?;
        }
        records::write_run(&mut self.server, expected, record, lease)
    }

    fn renew_lease(&mut self, run: &RunId, epoch: u32, lease: Duration) -> Result<bool, StoreError> {
        self.assert_writable();
        records::renew_lease(&mut self.server, run, epoch, lease)
    }

    fn each_run(&mut self, act: &mut dyn FnMut(KnownRun)) -> Result<(), StoreError> {
        records::each_run(&mut self.server, act)
    }

    fn feed_note(&mut self, feed: &Digest, meaning: &Digest) -> Result<Option<FeedNote>, StoreError> {
        records::feed_note(&mut self.server, feed, meaning)
    }

    fn write_feed_note(&mut self, feed: &Digest, meaning: &Digest, note: &FeedNote) -> Result<(), StoreError> {
        self.assert_writable();
        records::write_feed_note(&mut self.server, feed, meaning, note)
    }
}

impl Store for RedisStore {
    fn another(&self) -> Box<dyn Store> {
        let server = Server {
            place: self.server.place.clone(),
            link: None,
            control: None,
            batch_size: self.server.batch_size,
            // Whoever asks for a further handle asks again by itself, and must not wait behind an outage.
            failures_max: 1,
            backoff_first: self.server.backoff_first,
            interrupt: self.server.interrupt.clone(),
            answers_lost: 0,
        };
        Box::new(Self {
            server,
            owners: Owners::default(),
            references: References::default(),
            entries: self.entries.clone(),
            claim_ttl: self.claim_ttl,
            access: self.access,
            evicted_keys: self.evicted_keys,
            replicas: self.replicas,
        })
    }

    fn advance_age(&mut self) -> Result<u64, StoreError> {
        self.assert_writable();
        opening::advance_age(&mut self.server)
    }
}
