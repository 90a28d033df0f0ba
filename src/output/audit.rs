//! The audit log: for every record, what was decided, by which rule, against what.
//!
//! Names of events and fields, and their order, are an interface. Only what feed and store content decide stands
//! here, so that two runs over the same can be compared byte for byte; and never a value of a record.

use std::path::Path;

use serde::Serialize;

use super::{Attempt, Conflict, HashedFile, OutputError};
use crate::domain::{Basis, Claim, Decided, Decision, Digest, OutputRecord, RejectReason, RunCounts, write_hex};

/// Events between two links of the chain.
const EVENTS_PER_LINK: u64 = 1_000;

/// Version of the audit log's lines.
const AUDIT_VERSION: u32 = 1;

/// The audit log of a run, being written.
#[derive(Debug)]
pub struct AuditLog {
    file: HashedFile,
    feed_name: String,
    /// The constant start of a record's line, up to its row.
    checked_head: Vec<u8>,
    /// `{"ts":"…","event":"`
    event_head: Vec<u8>,
    /// The run id and a colon, as the start of its trace ids.
    own_trace: Vec<u8>,
    events: u64,
    lines: u64,
    /// The digest in the last link.
    chain: Digest,
}

/// A decided record, as its line tells it.
#[derive(Debug)]
pub struct CheckedRecord<'a> {
    pub row: u64,
    pub line_number: u64,
    /// None for a rejected line.
    pub claim: Option<&'a Claim>,
    pub decided: &'a Decided,
    pub reject_reason: Option<&'a RejectReason>,
}

/// What `run.opened` says of the feed and how it is read.
#[derive(Debug, Clone, Serialize)]
pub struct FeedFacts {
    pub run_id: String,
    pub pass: u32,
    pub file: String,
    pub sha256: String,
    pub bytes: u64,
    pub canonical_version: u32,
    pub profile_sha256: String,
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub tags: std::collections::BTreeMap<String, String>,
}

impl AuditLog {
    /// Creates the log of `attempt` on its way to `target`; every line bears the time `ts`.
    pub fn create(target: &Path, attempt: &Attempt, ts: &str, feed_name: &str) -> Result<Self, OutputError> {
        let run = &attempt.run;
        let event_head = format!("{{\"ts\":{},\"event\":\"", json(ts)).into_bytes();
        let mut checked_head = event_head.clone();
        checked_head.extend_from_slice(format!("dedup.checked\",\"trace_id\":\"{run}:").as_bytes());
        Ok(Self {
            file: HashedFile::create(target, attempt)?,
            feed_name: json(feed_name),
            checked_head,
            event_head,
            own_trace: format!("{run}:").into_bytes(),
            events: 0,
            lines: 0,
            chain: Digest::of(b""),
        })
    }

    /// `run.opened`, the first line.
    pub fn opened(&mut self, facts: &FeedFacts) -> Result<(), OutputError> {
        self.event("run.opened", &json(&Versioned { audit_version: AUDIT_VERSION, facts }))
    }

    /// `row.skipped`: a line that is no record.
    pub fn skipped(&mut self, line_number: u64, offset: u64, length: u64, rule: &str) -> Result<(), OutputError> {
        let fields = format!("{{\"line\":{line_number},\"offset\":{offset},\"length\":{length},\"rule\":\"{rule}\"}}");
        self.event("row.skipped", &fields)
    }

    /// `run.closed`, followed by the last link of the chain.
    pub fn closed(mut self, counts: &RunCounts) -> Result<(OutputRecord, Digest), OutputError> {
        let mut fields = String::from("{\"records\":");
        fields.push_str(&counts.iter().sum::<u64>().to_string());
        for (decision, count) in Decision::ALL.into_iter().zip(counts) {
            fields.push_str(&format!(",\"{}\":{count}", decision.wire_name()));
        }
        fields.push('}');
        self.event("run.closed", &fields)?;
        if !self.events.is_multiple_of(EVENTS_PER_LINK) {
            self.link()?;
        }
        Ok((self.file.finish()?, self.chain))
    }

    /// The file being written.
    pub fn file(&self) -> &HashedFile {
        &self.file
    }

    /// Appends an event whose further fields are the JSON object `fields`.
    fn event(&mut self, name: &str, fields: &str) -> Result<(), OutputError> {
        let out = self.file.buffer();
        out.extend_from_slice(&self.event_head);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\",");
        out.extend_from_slice(&fields.as_bytes()[1..]);
        out.push(b'\n');
        self.count_event()
    }

    /// `dedup.checked`: what became of a record.
    pub fn checked(&mut self, record: &CheckedRecord<'_>) -> Result<(), OutputError> {
        let out = self.file.buffer();
        out.extend_from_slice(&self.checked_head);
        write_number(record.row, out);
        if let Some(claim) = record.claim {
            out.extend_from_slice(b"\",\"source_hash\":\"");
            write_hex(claim.source_hash.as_bytes(), out);
        }
        out.extend_from_slice(b"\",\"match_decision\":\"");
        out.extend_from_slice(record.decided.decision.wire_name().as_bytes());
        out.extend_from_slice(b"\",\"row\":");
        write_number(record.row, out);
        out.extend_from_slice(b",\"line\":");
        write_number(record.line_number, out);
        if let Some(reason) = record.reject_reason {
            write_reject(reason, out);
        }
        if let Some(basis) = &record.decided.basis {
            write_basis(basis, record.decided.decision, &self.own_trace, &self.feed_name, out);
        }
        if let Some(conflict) = record.claim.and_then(|claim| Conflict::of(record.decided, claim)) {
            out.push(b',');
            out.extend_from_slice(&json(&conflict).as_bytes()[1..]);
            out.pop();
        }
        out.extend_from_slice(b"}\n");
        self.count_event()
    }

    fn count_event(&mut self) -> Result<(), OutputError> {
        self.events += 1;
        self.lines += 1;
        if self.events.is_multiple_of(EVENTS_PER_LINK) {
            self.link()?;
        }
        self.file.flush_if_full()
    }

    /// A link of the chain: how many lines stand before it, and the SHA-256 over them.
    fn link(&mut self) -> Result<(), OutputError> {
        let digest = self.file.digest_so_far();
        self.chain = digest;
        let out = self.file.buffer();
        out.extend_from_slice(&self.event_head);
        out.extend_from_slice(format!("chain\",\"lines\":{},\"sha256\":\"{digest}\"}}\n", self.lines).as_bytes());
        self.lines += 1;
        self.file.flush_if_full()
    }
}

#[derive(Serialize)]
struct Versioned<'a> {
    audit_version: u32,
    #[serde(flatten)]
    facts: &'a FeedFacts,
}

fn json(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("texts and numbers are always JSON")
}

fn write_number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn write_reject(reason: &RejectReason, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"reason\":");
    out.extend_from_slice(json(&reason.reason).as_bytes());
    if let Some(column) = &reason.column {
        out.extend_from_slice(b",\"column\":");
        out.extend_from_slice(json(column).as_bytes());
    }
}

/// The rule, and where the earlier sight of the record stands; `feed_name` is the JSON of this run's feed.
fn write_basis(basis: &Basis, decision: Decision, own_trace: &[u8], feed_name: &str, out: &mut Vec<u8>) {
    let is_held = decision == Decision::Held;
    out.extend_from_slice(b",\"reason\":\"");
    match basis {
        Basis::Unreadable => out.extend_from_slice(b"unreadable_marker\""),
        Basis::OtherWriter(writer) => {
            let (trace, time) = (json(&writer.0), json(&writer.1));
            out.extend_from_slice(b"other_writer\",\"first_trace_id\":");
            out.extend_from_slice(trace.as_bytes());
            out.extend_from_slice(b",\"first_seen_at\":");
            out.extend_from_slice(time.as_bytes());
        }
        Basis::Row { owner, row, feed } => {
            let run = owner.run.as_str().as_bytes();
            let is_own = own_trace.strip_suffix(b":") == Some(run);
            let rule: &[u8] = match (is_own, is_held) {
                (true, _) => b"earlier_row",
                (false, true) => b"run_not_published",
                (false, false) => b"published_run",
            };
            out.extend_from_slice(rule);
            out.extend_from_slice(b"\",\"first_trace_id\":\"");
            out.extend_from_slice(run);
            out.push(b':');
            write_number(*row, out);
            // An instant has no character that JSON escapes.
            out.extend_from_slice(b"\",\"first_seen_at\":\"");
            out.extend_from_slice(owner.seen_at.as_bytes());
            out.push(b'"');
            if is_own {
                out.extend_from_slice(b",\"first_file\":");
                out.extend_from_slice(feed_name.as_bytes());
            } else if let Some(feed) = feed {
                out.extend_from_slice(b",\"first_file\":");
                out.extend_from_slice(json(&feed.feed_name).as_bytes());
            }
        }
    }
}
