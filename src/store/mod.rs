//! Markers: who claimed which source hash; and what is remembered of runs.

#[cfg(test)]
mod conformance;
mod error;
mod lmdb_store;
mod location;
mod marker;
mod memory_store;
mod open;
mod packed;
mod record_wire;
mod redis_store;
#[cfg(test)]
mod test_server;

pub use error::StoreError;
pub use location::{LocationError, StoreLocation};
pub use memory_store::{Memory, MemoryLayout, MemoryStore, Payment};
pub use open::{Access, OpenedStore, Secret, StoreConfig};
pub use redis_store::RedisStore;

use crate::domain::RunStore;

/// 32 random digits: what tells a store from every other.
fn random_hex() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system hands out random bytes");
    let mut hex = Vec::new();
    crate::domain::write_hex(&bytes, &mut hex);
    String::from_utf8(hex).expect("hexadecimal is ASCII")
}

/// A store as the program holds it.
pub trait Store: RunStore<Error = StoreError> + Send {
    /// Another handle on the same store, for another thread.
    fn another(&self) -> Box<dyn Store>;

    /// A number that only grows, and does so now: an older copy of the store has a lower one.
    fn advance_age(&mut self) -> Result<u64, StoreError>;
}

/// Opens the store that `config` names.
///
/// A further kind of store needs: a variant of `StoreLocation`, an arm here, a row in `conformance.rs`.
pub fn open(config: &StoreConfig) -> Result<OpenedStore, StoreError> {
    match &config.location {
        StoreLocation::File(path) => lmdb_store::open(config, path),
        StoreLocation::Redis { .. } => redis_store::open(config),
    }
}
