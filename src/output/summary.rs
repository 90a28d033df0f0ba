//! The summary: control totals and the digests of all outputs, published last.

use std::collections::BTreeMap;

use serde::Serialize;

use super::OutputError;
use super::hashed_file::HashedFile;
use crate::domain::{CANONICAL_VERSION, Decision, Digest, Money, OutputRecord, RunCounts, RunId};

/// Version of the summary's fields.
const SUMMARY_VERSION: u32 = 1;

/// All that a run says of itself when it is done.
#[derive(Debug)]
pub struct Summary<'a> {
    pub run: &'a RunId,
    pub pass: u32,
    /// The time that stands in all outputs.
    pub ts: &'a str,
    pub feed_name: &'a str,
    pub feed_digest: &'a Digest,
    pub feed_bytes: u64,
    pub meaning: &'a Digest,
    pub tags: &'a BTreeMap<String, String>,
    /// Lines that are no records, by rule.
    pub skipped: &'a BTreeMap<&'static str, u64>,
    pub counts: &'a RunCounts,
    pub money: &'a [Money; 6],
    pub outputs: &'a [OutputRecord],
    pub audit_chain: &'a Digest,
    pub exit_code: u8,
    pub gates: GatesTold,
    /// Left out where outputs must be the same on every run.
    pub operation: Option<Operation>,
}

/// The gates that held, and what they were held against.
#[derive(Debug, Clone, Serialize)]
pub struct GatesTold {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_records: Option<u64>,
    /// By currency, as decimal text; each is the feed's own net total too.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub expected_totals: BTreeMap<String, String>,
    pub reject_limit_percent: u64,
    pub rejected: u64,
    pub conflict_limit_percent: u64,
    pub conflicts: u64,
    /// The share of conflicts, of a million records. Usual is less than 100.
    pub conflicts_per_million: u64,
}

/// How the run went on this machine.
#[derive(Debug, Clone, Serialize)]
pub struct Operation {
    pub store: String,
    pub host: String,
    pub user: String,
    pub epoch: u32,
    pub started_at: String,
    pub sealed_at: String,
    pub elapsed_ms: u64,
    pub records_per_second: u64,
    /// Time from handing a batch of claims to the store until all its answers were there.
    pub claim_latency_us: Latency,
}

/// Percentiles, in microseconds.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Latency {
    pub batches: u64,
    pub p50: u64,
    pub p95: u64,
    pub p99: u64,
    pub max: u64,
}

#[derive(Serialize)]
struct Wire<'a> {
    summary_version: u32,
    run_id: &'a str,
    pass: u32,
    ts: &'a str,
    file: &'a str,
    sha256: String,
    bytes: u64,
    canonical_version: u32,
    profile_sha256: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: &'a BTreeMap<String, String>,
    records: u64,
    money: BTreeMap<String, MoneyWire>,
    skipped: &'a BTreeMap<&'static str, u64>,
    decisions: BTreeMap<&'static str, DecisionWire>,
    outputs: Vec<OutputWire<'a>>,
    audit_chain: String,
    gates: &'a GatesTold,
    exit_code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'a Operation>,
}

#[derive(Serialize)]
struct DecisionWire {
    records: u64,
    money: BTreeMap<String, MoneyWire>,
}

/// Totals of one currency, as decimal text.
#[derive(Serialize)]
struct MoneyWire {
    incoming: String,
    outgoing: String,
}

#[derive(Serialize)]
struct OutputWire<'a> {
    file: &'a str,
    bytes: u64,
    sha256: String,
}

impl Summary<'_> {
    fn wire(&self) -> Wire<'_> {
        let mut all_money = Money::default();
        self.money.iter().for_each(|money| all_money.add_all(money));
        let decision = |decision: Decision| {
            let money = money_wire(&self.money[decision.index()]);
            (decision.wire_name(), DecisionWire { records: self.counts[decision.index()], money })
        };
        let outputs = self.outputs.iter().map(|output| OutputWire {
            file: &output.name,
            bytes: output.bytes,
            sha256: output.sha256.to_string(),
        });
        Wire {
            summary_version: SUMMARY_VERSION,
            run_id: self.run.as_str(),
            pass: self.pass,
            ts: self.ts,
            file: self.feed_name,
            sha256: self.feed_digest.to_string(),
            bytes: self.feed_bytes,
            canonical_version: CANONICAL_VERSION,
            profile_sha256: self.meaning.to_string(),
            tags: self.tags,
            records: self.counts.iter().sum(),
            money: money_wire(&all_money),
            skipped: self.skipped,
            decisions: Decision::ALL.into_iter().map(decision).collect(),
            outputs: outputs.collect(),
            audit_chain: self.audit_chain.to_string(),
            gates: &self.gates,
            exit_code: self.exit_code,
            operation: self.operation.as_ref(),
        }
    }

    /// The summary on one line, for machines that read along.
    pub fn to_json_value(&self) -> serde_json::Value {
        serde_json::to_value(self.wire()).expect("a summary holds only texts, numbers and lists")
    }

    /// Writes the summary as the temporary for `file`.
    pub fn write(&self, mut file: HashedFile) -> Result<OutputRecord, OutputError> {
        let mut json = serde_json::to_vec_pretty(&self.wire()).expect("a summary holds only texts, numbers and lists");
        json.push(b'\n');
        file.write(&json)?;
        file.finish()
    }
}

fn money_wire(money: &Money) -> BTreeMap<String, MoneyWire> {
    let totals = money.by_currency().into_iter();
    totals.map(|(c, (incoming, outgoing))| (c.as_str().to_owned(), MoneyWire { incoming, outgoing })).collect()
}
