//! The commands that travel by the thousand; all that is the same in each is spelled once.

use std::time::Duration;

use super::wire::{write_command, write_word_len};
use crate::domain::{Adoption, Claim, Owner, RunId, SourceHash, write_hex};
use crate::store::marker::{MarkerTemplate, head_of};

/// Digits of a source hash in hexadecimal.
const HASH_LEN: usize = 64;

/// `SET key marker NX GET EX ttl`.
#[derive(Debug)]
pub(super) struct ClaimCommand {
    before_hash: Vec<u8>,
    marker: MarkerTemplate,
    after_marker: Vec<u8>,
}

impl ClaimCommand {
    pub(super) fn new(prefix: &str, owner: &Owner, claim_ttl: Duration) -> Self {
        let ttl = claim_ttl.as_secs().to_string();
        let mut after_marker = b"\r\n$2\r\nNX\r\n$3\r\nGET\r\n$2\r\nEX\r\n".to_vec();
        write_word_len(ttl.len(), &mut after_marker);
        after_marker.extend_from_slice(ttl.as_bytes());
        after_marker.extend_from_slice(b"\r\n");
        Self { before_hash: before_hash(7, "SET", prefix), marker: MarkerTemplate::new(owner), after_marker }
    }

    /// Appends the command for `claim`.
    pub(super) fn write(&self, claim: &Claim, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.before_hash);
        write_hex(claim.source_hash.as_bytes(), out);
        out.extend_from_slice(b"\r\n");
        let mut buffer = itoa::Buffer::new();
        let row = buffer.format(claim.row).as_bytes();
        write_word_len(self.marker.len(row.len()), out);
        self.marker.write(row, out);
        out.extend_from_slice(&self.after_marker);
    }
}

/// `GET key`.
#[derive(Debug)]
pub(super) struct LookUpCommand {
    before_hash: Vec<u8>,
}

impl LookUpCommand {
    pub(super) fn new(prefix: &str) -> Self {
        Self { before_hash: before_hash(2, "GET", prefix) }
    }

    /// Appends the command for `claim`.
    pub(super) fn write(&self, claim: &Claim, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.before_hash);
        write_hex(claim.source_hash.as_bytes(), out);
        out.extend_from_slice(b"\r\n");
    }
}

/// Deletes a key whose value begins with `ARGV[1]`, the run, and is a marker of ours of an epoch up to `ARGV[2]`.
///
/// Two fields with the same beginning are another writer's marker, whose trace happens to look like ours.
const RELEASE_SCRIPT: &str = "local marker = redis.call('GET', KEYS[1]) \
    if not marker or string.sub(marker, 1, #ARGV[1]) ~= ARGV[1] then return 0 end \
    local epoch = string.match(marker, '^[^|]*|[^|]*|([1-9]%d*)$') \
    if epoch and tonumber(epoch) <= tonumber(ARGV[2]) then return redis.call('DEL', KEYS[1]) end return 0";

/// `EVAL` of the script that frees a claim.
#[derive(Debug)]
pub(super) struct ReleaseCommand {
    marker_head: Vec<u8>,
    epoch: String,
}

impl ReleaseCommand {
    pub(super) fn new(run: &RunId, epoch: u32) -> Self {
        Self { marker_head: head_of(run), epoch: epoch.to_string() }
    }

    /// Whether `marker` may be one that the script would delete.
    pub(super) fn may_concern(&self, marker: &[u8]) -> bool {
        marker.starts_with(&self.marker_head)
    }

    /// Appends the command for `key`.
    pub(super) fn write(&self, key: &[u8], out: &mut Vec<u8>) {
        let epoch = self.epoch.as_bytes();
        write_command(&[b"EVAL", RELEASE_SCRIPT.as_bytes(), b"1", key, &self.marker_head, epoch], out);
    }
}

/// Replaces the marker `ARGV[1]` by `ARGV[2]`, which lives as long as the old one would have.
const ADOPT_SCRIPT: &str = "local marker = redis.call('GET', KEYS[1]) \
    if marker == ARGV[2] then return 1 end if marker ~= ARGV[1] then return 0 end \
    redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL') return 1";

/// `EVAL` of the script that passes a claim on to a later epoch of its run.
#[derive(Debug)]
pub(super) struct AdoptCommand {
    prefix: String,
}

impl AdoptCommand {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Appends the command for `adoption`.
    pub(super) fn write(&self, adoption: &Adoption, out: &mut Vec<u8>) {
        let marker = |owner: &Owner, row: u64| {
            let mut text = Vec::new();
            MarkerTemplate::new(owner).write(itoa::Buffer::new().format(row).as_bytes(), &mut text);
            text
        };
        let (owner, row) = &adoption.found;
        let (old, new) = (marker(owner, *row), marker(&adoption.owner, adoption.claim.row));
        let key = key_of(&self.prefix, &adoption.claim.source_hash);
        write_command(&[b"EVAL", ADOPT_SCRIPT.as_bytes(), b"1", &key, &old, &new], out);
    }
}

/// Whether `key` is one that a claim stands under.
pub(super) fn is_of_claim(prefix: &str, key: &[u8]) -> bool {
    key.strip_prefix(prefix.as_bytes()).is_some_and(|hash| {
        hash.len() == HASH_LEN && hash.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// The key that a claim of `source_hash` stands under.
pub(super) fn key_of(prefix: &str, source_hash: &SourceHash) -> Vec<u8> {
    let mut key = Vec::with_capacity(prefix.len() + HASH_LEN);
    key.extend_from_slice(prefix.as_bytes());
    write_hex(source_hash.as_bytes(), &mut key);
    key
}

/// A command of `words` words up to the place in its key where the hash begins.
fn before_hash(words: usize, name: &str, prefix: &str) -> Vec<u8> {
    let mut start = format!("*{words}\r\n${}\r\n{name}\r\n", name.len()).into_bytes();
    write_word_len(prefix.len() + HASH_LEN, &mut start);
    start.extend_from_slice(prefix.as_bytes());
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_words_of_the_contract() {
        let claim = crate::store::conformance::claim(7, 1042);
        let owner = Owner { run: RunId::parse("r-1").unwrap(), epoch: 2, seen_at: "2026-07-15T09:03:00Z".to_owned() };
        let key = format!("p:{}", claim.source_hash);
        let marker = b"r-1:1042|2026-07-15T09:03:00Z|2";

        let (mut written, mut expected) = (Vec::new(), Vec::new());
        ClaimCommand::new("p:", &owner, Duration::from_secs(220_924_800)).write(&claim, &mut written);
        write_command(&[b"SET", key.as_bytes(), marker, b"NX", b"GET", b"EX", b"220924800"], &mut expected);
        LookUpCommand::new("p:").write(&claim, &mut written);
        write_command(&[b"GET", key.as_bytes()], &mut expected);
        ReleaseCommand::new(&owner.run, 2).write(&key_of("p:", &claim.source_hash), &mut written);
        let script = RELEASE_SCRIPT.as_bytes();
        write_command(&[b"EVAL", script, b"1", key.as_bytes(), b"r-1:", b"2"], &mut expected);
        assert_eq!(String::from_utf8(written).unwrap(), String::from_utf8(expected).unwrap());
    }
}
