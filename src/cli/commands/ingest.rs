//! The command `ingest`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::args::IngestArgs;
use crate::cli::environment::Environment;
use crate::cli::failure::{ExitCode, Failure};
use crate::cli::feeds::{self, NamedFeed};
use crate::cli::layers::{Origin, Setting};
use crate::cli::progress::Bar;
use crate::cli::settings::Settings;
use crate::cli::summary;
use crate::cli::terminal::{Terminal, Verbosity};
use crate::cli::used_store::UsedStore;
use crate::cli::value::Percent;
use crate::cli::worker::worker;
use crate::domain::{ClaimScope, Decision, Interrupt, RunCounts};
use crate::input::Profile;
use crate::pipeline::{
    self, ConflictNote, DryRunReport, IngestReport, IngestRequest, RejectNote, WouldBeClaims, published_exit_code,
};
use crate::run::{Gates, LIMITED_MIN};
use crate::store::{Access, StoreError};

pub(crate) fn run(
    args: &IngestArgs,
    settings: &Settings,
    environment: &Environment,
    terminal: &Terminal,
    interrupt: &Interrupt,
) -> anyhow::Result<ExitCode> {
    let profile = feeds::profile(settings)?;
    let mut ingest = Ingest {
        args,
        settings,
        environment,
        terminal,
        interrupt,
        profile,
        store: None,
        would_be_claims: WouldBeClaims::default(),
    };
    let mut exit = ExitCode::Done;
    for (index, path) in args.files.iter().enumerate() {
        let mut is_last_begun = false;
        let done = match ingest.one(path) {
            Ok(code) => {
                exit = exit.merge(code);
                if args.dry_run { "was decided" } else { "was published" }
            }
            Err(failure) => {
                ingest.tell_failure(path, &failure)?;
                exit = exit.merge(failure.exit);
                is_last_begun = concerns_every_feed(failure.exit);
                "had failed"
            }
        };
        if !is_last_begun && let Some(signal) = interrupt.asked() {
            let error = format!("interrupted by {signal} after `{}` {done}", path.display());
            terminal.show(&Failure::new(ExitCode::of_signal(signal), error));
            exit = exit.merge(ExitCode::of_signal(signal));
            is_last_begun = true;
        }
        let left = args.files.len() - index - 1;
        if left > 0 && is_last_begun {
            terminal.say(&format!("stopped: {left} of {} feeds were not begun", args.files.len()));
            break;
        }
    }
    ingest.print(&json!({ "type": "end", "exit_code": exit.number() }))?;
    Ok(exit)
}

/// Whether the next feed would fail just so.
fn concerns_every_feed(exit: ExitCode) -> bool {
    match exit {
        ExitCode::Bug
        | ExitCode::InputOutput
        | ExitCode::StoreForgot
        | ExitCode::Settings
        | ExitCode::TryLater
        | ExitCode::HungUp
        | ExitCode::Interrupted
        | ExitCode::Terminated => true,
        ExitCode::Done
        | ExitCode::Usage
        | ExitCode::NeedsPerson
        | ExitCode::UnfitFeed
        | ExitCode::NoInput
        | ExitCode::CannotCreate => false,
    }
}

/// The command with what it needs for every feed.
struct Ingest<'a> {
    args: &'a IngestArgs,
    settings: &'a Settings,
    environment: &'a Environment,
    terminal: &'a Terminal,
    interrupt: &'a Interrupt,
    profile: Profile,
    /// Opened for the first feed that can be read.
    store: Option<UsedStore<'a>>,
    /// What a dry run found to be new so far.
    would_be_claims: WouldBeClaims,
}

impl<'a> Ingest<'a> {
    fn one(&mut self, path: &Path) -> Result<ExitCode, Failure> {
        let named = feeds::named(path, self.args.name.as_deref(), self.settings, self.interrupt)?;
        pipeline::check_feed(&named.feed, &self.profile)?;
        if self.store.is_none() {
            self.store = Some(self.open_store()?);
        }
        let request = self.request(&named)?;
        let used = self.store.as_mut().expect("it was opened above");
        let bar = Bar::new(self.terminal);
        if self.args.dry_run {
            let report = pipeline::dry_run(&request, &mut self.would_be_claims, &mut *used.store, &bar)?;
            self.tell_dry(&request, &report)
        } else {
            let report = pipeline::ingest(&request, &mut *used.store, &bar)?;
            used.advance_age(self.terminal);
            self.tell(&request, &report)
        }
    }

    fn open_store(&self) -> Result<UsedStore<'a>, Failure> {
        let create = self.settings.create_store.value;
        let access = if self.args.dry_run { Access::Read } else { Access::Write { create } };
        let used = UsedStore::open(self.settings, access, self.terminal, self.interrupt).map_err(Failure::of)?;
        if !used.exists() && !create {
            // Looking at a store that is not there is no error; a run would meet one.
            return Err(StoreError::Missing { address: self.settings.store_location()?.address() }.into());
        }
        Ok(used)
    }

    fn request(&self, named: &NamedFeed) -> Result<IngestRequest, Failure> {
        let location = self.settings.store_location()?;
        let tags = self.args.tags.iter().map(|tag| (tag.key.clone(), tag.value.clone()));
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(IngestRequest {
            feed: named.feed.clone(),
            profile: self.profile.clone(),
            folder: named.folder.clone(),
            stem: named.stem.clone(),
            run: self.args.run_id.clone(),
            now: self.args.now.clone(),
            key_prefix: self.settings.key_prefix.value.as_str().to_owned(),
            claim_scope: if self.settings.drift_check.value { ClaimScope::Payment } else { ClaimScope::Content },
            threads: self.settings.thread_count().unwrap_or_else(cores),
            tags: tags.collect::<BTreeMap<_, _>>(),
            gates: self.gates(),
            lease: Duration::from_secs(self.settings.lease_s.value.get()),
            lock_folder: self.settings.lock_folder()?,
            worker: worker(self.environment),
            store_address: location.address(),
            interrupt: self.interrupt.clone(),
        })
    }

    fn gates(&self) -> Gates {
        let (reject_limit, conflict_limit) = (&self.settings.reject_limit, &self.settings.conflict_limit);
        // Who sets a limit means it, on short feeds too.
        let least = |limit: &Setting<Percent>| if limit.origin == Origin::Default { LIMITED_MIN } else { 0 };
        Gates {
            records: self.args.expect_records,
            totals: self.args.expect_totals.iter().map(|total| (total.currency, total.amount)).collect(),
            reject_limit: reject_limit.value.get().into(),
            rejects_min: least(reject_limit),
            conflict_limit: conflict_limit.value.get().into(),
            conflicts_min: least(conflict_limit),
        }
    }

    fn tell(&self, request: &IngestRequest, report: &IngestReport) -> Result<ExitCode, Failure> {
        self.tell_rejects(request, &report.rejects, &report.counts);
        self.tell_conflicts(request, &report.conflicts, &report.counts);
        let exit = exit_of(&report.counts);
        // Where a person must look, the sentence is said even to a log.
        let say = |line: &str| if exit == ExitCode::Done { self.terminal.note(line) } else { self.say(line) };
        say(&summary::sentence(report));
        summary::holder_lines(&report.holders).iter().for_each(|line| self.say(line));
        summary::details(report, &request.store_address).iter().for_each(|line| self.terminal.note(line));
        if let Some(line) = summary::names_line(&report.names, &request.stem) {
            self.terminal.note(&line);
        }
        self.print(&typed("run", with_conflicts(report.summary.clone(), &report.conflicts)))?;
        Ok(exit)
    }

    fn tell_dry(&self, request: &IngestRequest, report: &DryRunReport) -> Result<ExitCode, Failure> {
        self.tell_rejects(request, &report.rejects, &report.counts);
        self.tell_conflicts(request, &report.conflicts, &report.counts);
        self.say(&summary::dry_sentence(report));
        summary::dry_details(report).iter().for_each(|line| self.say(line));
        let exit = exit_of(&report.counts);
        let counts: BTreeMap<_, _> =
            Decision::ALL.into_iter().map(|d| (d.wire_name(), report.counts[d.index()])).collect();
        let told = json!({
            "type": "dry_run",
            "run_id": report.run.as_str(),
            "file": request.feed.name,
            "records": report.counts.iter().sum::<u64>(),
            "decisions": counts,
            "exit_code": exit.number(),
        });
        self.print(&with_conflicts(told, &report.conflicts))?;
        Ok(exit)
    }

    fn tell_rejects(&self, request: &IngestRequest, notes: &[RejectNote], counts: &RunCounts) {
        let rejected = counts[Decision::Rejected.index()];
        summary::reject_lines(&request.feed.shown, notes, rejected).iter().for_each(|line| self.say(line));
    }

    fn tell_conflicts(&self, request: &IngestRequest, notes: &[ConflictNote], counts: &RunCounts) {
        let conflicts = counts[Decision::Conflict.index()];
        summary::conflict_lines(&request.feed.shown, notes, conflicts).iter().for_each(|line| self.say(line));
    }

    fn tell_failure(&self, path: &Path, failure: &Failure) -> Result<(), Failure> {
        self.terminal.show(failure);
        self.print(&json!({
            "type": "failure",
            "file": path.display().to_string(),
            "error": failure.error,
            "exit_code": failure.exit.number(),
        }))
    }

    /// Says what is asked for or must be seen, unless nothing is to be said.
    fn say(&self, line: &str) {
        if self.terminal.verbosity != Verbosity::Quiet {
            self.terminal.say(line);
        }
    }

    /// A line for machines, if they are asked for.
    fn print(&self, value: &Value) -> Result<(), Failure> {
        if self.args.json { self.terminal.print(format!("{value}\n").as_bytes()) } else { Ok(()) }
    }
}

fn exit_of(counts: &RunCounts) -> ExitCode {
    if published_exit_code(counts) == 0 { ExitCode::Done } else { ExitCode::NeedsPerson }
}

/// `value` with the conflicts that are told of one by one.
fn with_conflicts(mut value: Value, notes: &[ConflictNote]) -> Value {
    let conflict = |note: &ConflictNote| {
        let mut told = json!({ "row": note.row, "line": note.line_number });
        if let (Value::Object(told), Ok(Value::Object(fields))) = (&mut told, serde_json::to_value(&note.conflict)) {
            told.extend(fields);
        }
        told
    };
    if let Value::Object(fields) = &mut value
        && !notes.is_empty()
    {
        fields.insert("conflicts".to_owned(), notes.iter().map(conflict).collect());
    }
    value
}

/// `value` with its type in front.
fn typed(name: &str, value: Value) -> Value {
    let mut typed = serde_json::Map::new();
    typed.insert("type".to_owned(), json!(name));
    if let Value::Object(fields) = value {
        typed.extend(fields);
    }
    Value::Object(typed)
}
