//! The command `runs`: every run that the store knows, what is stuck first.

use std::cmp::Reverse;

use chrono::DateTime;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::cli::args::RunsArgs;
use crate::cli::failure::ExitCode;
use crate::cli::settings::Settings;
use crate::cli::summary::counts_in_words;
use crate::cli::terminal::{Terminal, Verbosity};
use crate::cli::used_store::{UsedStore, failure, opening_failure};
use crate::domain::{Decision, Interrupt, KnownRun, Lease, RunRecord, RunState};
use crate::run::seconds_since;
use crate::store::Access;

/// A run as a line of JSON tells it. Names and order are an interface.
#[derive(Serialize)]
struct RunWire<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    run_id: &'a str,
    state: &'static str,
    pass: u32,
    epoch: u32,
    opened_at: &'a str,
    age_s: Option<i64>,
    host: &'a str,
    pid: u32,
    /// Of an unfinished run only.
    lease: Option<&'static str>,
    lease_left_s: Option<u64>,
    file: &'a str,
    sha256: String,
    profile_sha256: String,
    /// From the seal on.
    decisions: Option<Map<String, Value>>,
    folder: &'a str,
    stem: &'a str,
    outputs: Vec<OutputWire<'a>>,
    suppressed_against: Vec<&'a str>,
}

#[derive(Serialize)]
struct OutputWire<'a> {
    file: &'a str,
    bytes: u64,
    sha256: String,
}

pub(crate) fn run(
    args: &RunsArgs,
    settings: &Settings,
    terminal: &Terminal,
    interrupt: &Interrupt,
) -> anyhow::Result<ExitCode> {
    let mut used = UsedStore::open(settings, Access::Read, terminal, interrupt).map_err(opening_failure)?;
    let mut runs = Vec::new();
    used.store.each_run(&mut |known| runs.push(known)).map_err(failure)?;
    if !used.exists() && terminal.verbosity != Verbosity::Quiet {
        terminal.say(&format!("there is no store at `{}` yet", settings.store_location()?.address()));
    }
    runs.retain(|known| args.states.is_empty() || args.states.contains(&known.record.state));
    runs.sort_by_cached_key(place);
    let text = if args.json { as_json(&runs) } else { as_table(&runs) };
    terminal.print(text.as_bytes())?;
    Ok(ExitCode::Done)
}

/// Whether the run has still to be brought to its end.
fn is_unfinished(state: RunState) -> bool {
    match state {
        RunState::Open | RunState::Sealed | RunState::Publishing => true,
        RunState::Published | RunState::Fenced | RunState::Reverted => false,
    }
}

/// What sorts the list: unfinished runs first, then the newest; the id makes it one order.
fn place(known: &KnownRun) -> impl Ord + use<> {
    let opened = DateTime::parse_from_rfc3339(&known.record.opened_at).ok();
    (!is_unfinished(known.record.state), Reverse(opened), known.record.run.clone())
}

/// Two or three lines a run under one head: ids are too long for one line with all else.
fn as_table(runs: &[KnownRun]) -> String {
    let id_width = runs.iter().map(|known| known.record.run.as_str().len()).max().unwrap_or(0);
    let head = format!("{:<10}  {:>4}  {:>5}  {:<id_width$}  AGE\n", "STATE", "PASS", "EPOCH", "RUN");
    let rows = runs.iter().map(|known| row(known, id_width));
    if runs.is_empty() { String::new() } else { head + &rows.collect::<String>() }
}

fn row(known: &KnownRun, id_width: usize) -> String {
    let RunRecord { run, state, epoch, pass, feed_name, opened_at, host, pid, folder, stem, counts, .. } =
        &known.record;
    let age = seconds_since(opened_at).filter(|seconds| *seconds >= 0).map_or_else(|| opened_at.clone(), age_in_words);
    let lease = match lease_in_words(known) {
        Some(words) => format!("; {words}"),
        None => String::new(),
    };
    let counts = match is_counted(&known.record) {
        true => format!("  {}\n", counts_in_words(counts)),
        false => String::new(),
    };
    format!(
        "{:<10}  {pass:>4}  {epoch:>5}  {run:<id_width$}  {age}\n  `{feed_name}` by process {pid} on {host}{lease}\n{counts}  \
         {folder}/{stem}.*\n",
        state.name(),
        run = run.as_str(),
    )
}

/// Whether the record says what became of the feed's records: that is written with the seal.
fn is_counted(record: &RunRecord) -> bool {
    record.audit_chain.is_some()
}

/// How long ago, in the greatest unit of which there is at least one.
fn age_in_words(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        86_400.. => format!("{} d", seconds / 86_400),
    }
}

fn lease_in_words(known: &KnownRun) -> Option<String> {
    match (is_unfinished(known.record.state), known.lease) {
        (false, _) => None,
        (true, Lease::Running { left }) => Some(format!("alive for {} s", left.as_secs() + 1)),
        (true, Lease::Over) => Some("its lease is over".to_owned()),
        (true, Lease::Unknown) => Some("its lease is unknown".to_owned()),
    }
}

fn as_json(runs: &[KnownRun]) -> String {
    let line = |known: &KnownRun| {
        let json = serde_json::to_string(&wire(known)).expect("texts, numbers and lists are always JSON");
        json + "\n"
    };
    runs.iter().map(line).collect()
}

fn wire(known: &KnownRun) -> RunWire<'_> {
    let record = &known.record;
    let (lease, lease_left_s) = match (is_unfinished(record.state), known.lease) {
        (false, _) => (None, None),
        (true, Lease::Running { left }) => (Some("running"), Some(left.as_secs())),
        (true, Lease::Over) => (Some("over"), None),
        (true, Lease::Unknown) => (Some("unknown"), None),
    };
    let count = |decision: Decision| (decision.wire_name().to_owned(), record.counts[decision.index()].into());
    let outputs = record.outputs.iter().map(|output| OutputWire {
        file: &output.name,
        bytes: output.bytes,
        sha256: output.sha256.to_string(),
    });
    RunWire {
        kind: "run",
        run_id: record.run.as_str(),
        state: record.state.name(),
        pass: record.pass,
        epoch: record.epoch,
        opened_at: &record.opened_at,
        age_s: seconds_since(&record.opened_at),
        host: &record.host,
        pid: record.pid,
        lease,
        lease_left_s,
        file: &record.feed_name,
        sha256: record.feed_digest.to_string(),
        profile_sha256: record.meaning.to_string(),
        decisions: is_counted(record).then(|| Decision::ALL.into_iter().map(count).collect()),
        folder: &record.folder,
        stem: &record.stem,
        outputs: outputs.collect(),
        suppressed_against: record.suppressed_against.iter().map(|run| run.as_str()).collect(),
    }
}
