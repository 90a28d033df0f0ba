//! Placeholder of the embedded store.

use super::{OpenedStore, StoreConfig, StoreError};

/// Finds no store.
pub(super) fn open(config: &StoreConfig) -> Result<OpenedStore, StoreError> {
    Err(StoreError::Missing { address: config.location.address() })
}
