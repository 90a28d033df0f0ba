//! What a server confirms of its replicas, and which history its data has.

use std::time::Duration;

use redis::cmd;

use super::Server;
use crate::domain::Lineage;
use crate::store::{StoreConfig, StoreError};

/// The key of the real write in front of each wait: a server may answer for one that never happened.
const CONFIRMED_KEY: &str = "confirmed";

/// What is demanded of the replicas.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replicas {
    min: u32,
    timeout: Duration,
}

impl Replicas {
    pub(super) fn new(config: &StoreConfig) -> Self {
        Self { min: config.replicas_min, timeout: config.replicas_timeout }
    }
}

/// Waits until everything written so far, on whatever connection, is held by enough replicas.
///
/// Replication is one stream: who has the write that is made here has all before it.
pub(super) fn confirm(server: &mut Server, replicas: &Replicas) -> Result<(), StoreError> {
    if replicas.min == 0 {
        return Ok(());
    }
    let key = server.place.key(CONFIRMED_KEY);
    let millis = u64::try_from(replicas.timeout.as_millis()).unwrap_or(u64::MAX);
    let patience = server.place.lock_timeout() + replicas.timeout;
    let confirmed: u32 = server.operate(|control| {
        control.set_read_timeout(Some(patience))?;
        cmd("INCR").arg(&key).query::<u64>(control)?;
        let confirmed = cmd("WAIT").arg(replicas.min).arg(millis).query(control)?;
        control.set_read_timeout(Some(patience - replicas.timeout))?;
        Ok(confirmed)
    })?;
    if confirmed >= replicas.min {
        return Ok(());
    }
    let cause =
        format!("{confirmed} of {} replicas confirmed the writes within {millis} ms (`wait_replicas`)", replicas.min);
    Err(StoreError::Busy { address: server.place.address.clone(), cause })
}

/// The server's own id, the id of its replication history, and up to where it shares an older one.
///
/// A restart changes the first, a promotion the others; after either, writes that were answered may be gone. So does the
/// first replica that joins, which costs a run another pass and nothing else.
pub(super) fn lineage(server: &mut Server) -> Result<Lineage, StoreError> {
    let mut texts = Vec::new();
    for (section, fields) in [("server", &["run_id:"][..]), ("replication", &["master_replid:", "second_repl_offset:"])]
    {
        let info: String = server.operate(|control| cmd("INFO").arg(section).query(control))?;
        for field in fields {
            let text = info.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
            texts.push(text.trim_end().to_owned());
        }
    }
    Ok(Lineage(texts.join("/")))
}
