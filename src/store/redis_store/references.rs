//! References: an owner in eight bytes, so that an entry need not spell it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use redis::cmd;
use sha2::{Digest as _, Sha256};

use super::Server;
use super::wire::Reply;
use crate::domain::{Marker, Owner, write_hex};
use crate::store::StoreError;
use crate::store::record_wire::{decode_owner, encode_owner};

/// The start of the SHA-256 of an owner's text: the same owner has the same one in every process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Reference([u8; Self::LEN]);

impl Reference {
    /// Bytes of a reference.
    pub(super) const LEN: usize = 8;

    pub(super) fn of(owner: &Owner) -> Self {
        Self::of_text(&encode_owner(owner))
    }

    fn of_text(text: &str) -> Self {
        let digest = Sha256::digest(text);
        Self(*digest.first_chunk().expect("a digest is longer than its start"))
    }

    pub(super) fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    pub(super) fn bytes(self) -> [u8; Self::LEN] {
        self.0
    }

    /// The key that says what the reference stands for.
    fn key(self, server: &Server) -> String {
        let mut digits = Vec::new();
        write_hex(&self.0, &mut digits);
        server.place.key(&format!("owner:{}", String::from_utf8_lossy(&digits)))
    }
}

/// What is known of references. The server keeps them for good: they are one for each attempt at a run.
#[derive(Debug, Default)]
pub(super) struct References {
    registered: HashSet<Reference>,
    owner_by_reference: HashMap<Reference, Arc<Owner>>,
}

impl References {
    /// The reference of `owner`, once the server knows it: nobody may find an entry whose owner cannot be told.
    pub(super) fn register(&mut self, server: &mut Server, owner: &Arc<Owner>) -> Result<Reference, StoreError> {
        let text = encode_owner(owner);
        let reference = Reference::of_text(&text);
        if self.registered.contains(&reference) {
            return Ok(reference);
        }
        let key = reference.key(server);
        let standing: Option<String> =
            server.operate(|control| cmd("SET").arg(&key).arg(&text).arg("NX").arg("GET").query(control))?;
        if standing.is_some_and(|standing| standing != text) {
            let cause = format!("key `{key}` stands for another owner");
            return Err(StoreError::Corrupt { address: server.place.address.clone(), cause });
        }
        self.registered.insert(reference);
        self.owner_by_reference.insert(reference, Arc::clone(owner));
        Ok(reference)
    }

    /// Asks for those of `references` that are not known yet.
    pub(super) fn load(
        &mut self,
        server: &mut Server,
        references: impl IntoIterator<Item = Reference>,
    ) -> Result<(), StoreError> {
        let unknown: HashSet<Reference> =
            references.into_iter().filter(|reference| !self.owner_by_reference.contains_key(reference)).collect();
        for reference in unknown {
            let key = reference.key(server);
            let text: Option<String> = server.operate(|control| cmd("GET").arg(&key).query(control))?;
            let Some(text) = text else { continue };
            let owner = decode_owner(&text).map_err(|cause| StoreError::Corrupt {
                address: server.place.address.clone(),
                cause: format!("key `{key}`: {cause}"),
            })?;
            self.owner_by_reference.insert(reference, Arc::new(owner));
        }
        Ok(())
    }

    /// The owner that `reference` stands for, if it was loaded and the server knows it.
    pub(super) fn owner(&self, reference: Reference) -> Option<&Arc<Owner>> {
        self.owner_by_reference.get(&reference)
    }

    /// The marker of `row` by the owner that `reference` stands for.
    pub(super) fn marker(&self, reference: Reference, row: u64) -> Marker {
        match self.owner(reference) {
            Some(owner) => Marker::Run { owner: Arc::clone(owner), row },
            None => Marker::Unreadable,
        }
    }
}

/// Reads the reply to a question for a value.
pub(super) fn value_of(reply: Reply<'_>) -> Option<Option<Vec<u8>>> {
    match reply {
        Reply::Nil => Some(None),
        Reply::Text(value) => Some(Some(value.to_vec())),
        Reply::Status(_) | Reply::Integer(_) | Reply::Error(_) => None,
    }
}
