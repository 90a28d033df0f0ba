//! Opening a store: what is known of it beforehand, and what is learned.

use std::fmt;
use std::time::Duration;

use super::{Store, StoreLocation};
use crate::domain::Interrupt;

/// A password. Neither `Debug` nor any message shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `text`.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The password itself, for the store's login only.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// What may be done to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Claims; a store that does not exist is created if `create`.
    Write { create: bool },
    /// Looking only: neither store nor key nor file is made; a store that does not exist is an empty one.
    Read,
}

/// How to reach and use a store.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    pub location: StoreLocation,
    /// In front of every key.
    pub prefix: String,
    /// How many records a store is made for that does not exist yet.
    pub expected_records: u64,
    /// How long a claim lives from its making.
    pub claim_ttl: Duration,
    /// The longest wait for a server without any progress.
    pub lock_timeout: Duration,
    /// Claims in one round trip, or in one transaction of an embedded store; chosen by the store where it is not set.
    pub batch_size: Option<usize>,
    /// Failures in a row after which the store is given up.
    pub failures_max: u32,
    /// How many replicas must hold what was written before it counts.
    pub replicas_min: u32,
    /// How long they are waited for.
    pub replicas_timeout: Duration,
    pub username: Option<String>,
    pub password: Option<Secret>,
    /// The random value that this store held when it was used before; none if it never was.
    pub remembered: Option<String>,
    pub access: Access,
    /// Ends the waits between attempts.
    pub interrupt: Interrupt,
}

/// A store that answered, and is the one that was remembered.
pub struct OpenedStore {
    pub store: Box<dyn Store>,
    /// The random value in the store, to be remembered; none for a store that does not exist (reading only).
    pub sentinel: Option<String>,
    /// How old it is, to be remembered: one that is younger than before is an older copy.
    pub age: u64,
    /// Whether it was created just now.
    pub is_new: bool,
}

impl fmt::Debug for OpenedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedStore").field("sentinel", &self.sentinel).field("is_new", &self.is_new).finish()
    }
}
