//! The command `revert`: takes a run back, as if it had never been published.

use serde_json::{Value, json};

use crate::cli::args::RevertArgs;
use crate::cli::environment::Environment;
use crate::cli::failure::{ExitCode, Failure};
use crate::cli::feeds;
use crate::cli::number::counted;
use crate::cli::settings::Settings;
use crate::cli::small_file::read_text;
use crate::cli::summary::{counts_in_words, recorded_table};
use crate::cli::taking_back_failure::{self as told, Deed};
use crate::cli::terminal::{Terminal, Verbosity};
use crate::cli::used_store::open_for_run;
use crate::cli::worker::worker;
use crate::domain::{Decision, RunRecord, RunState};
use crate::pipeline::{self, Released, TakeBackOutlook, TakeBackReport, TakeBackRequest};
use crate::store::Access;

/// The largest summary, in bytes.
const SUMMARY_LEN_MAX: u64 = 16 * 1024 * 1024;

pub(crate) fn run(
    args: &RevertArgs,
    settings: &Settings,
    environment: &Environment,
    terminal: &Terminal,
) -> anyhow::Result<ExitCode> {
    let access = if args.dry_run { Access::Read } else { Access::Write { create: false } };
    let mut used = open_for_run(settings, access, terminal, &args.run)?;
    if args.dry_run {
        let outlook = pipeline::foresee_revert(&args.run, &mut *used.store);
        let outlook = outlook.map_err(|error| told::failure(error, Deed::Revert))?;
        tell_outlook(args, &outlook, terminal)?;
        return Ok(ExitCode::Done);
    }
    let request = TakeBackRequest {
        run: args.run.clone(),
        release_suppressed: args.release_suppressed,
        profile: feeds::profile(settings)?,
        folder: feeds::output_folder(settings)?,
        lock_folder: settings.lock_folder()?,
        worker: worker(environment),
    };
    let done = pipeline::revert(&request, &mut *used.store);
    let report = done.map_err(|error| told::failure(error, Deed::Revert))?;
    used.advance_age(terminal);
    tell(args, report, terminal)?;
    Ok(ExitCode::Done)
}

fn tell(args: &RevertArgs, report: TakeBackReport, terminal: &Terminal) -> Result<(), Failure> {
    let TakeBackReport { taken, released, is_noted, late_failure } = report;
    let RunRecord { run, folder, .. } = &taken.record;
    let before = if taken.was_reverted { " had been taken back before" } else { " is taken back" };
    terminal.note(&format!("run `{run}`{before}: {} freed", counted(taken.freed, "claim")));
    released.iter().filter_map(|released| released_line(released, terminal)).for_each(|line| terminal.say(&line));
    if !is_noted {
        terminal
            .warn(&format!("the journal of run `{run}` is not in `{folder}`: it does not say that it is taken back"));
    }
    for unnoted in released.iter().filter(|released| !released.is_noted) {
        terminal.warn(&format!("the journal of run `{}` does not say that its records were handed out", unnoted.run));
    }
    let failure = match (late_failure, &taken.dependents) {
        (Some(error), _) => Some(told::late(error)),
        (None, dependents) if !dependents.unpublished.is_empty() => {
            Some(told::not_done_yet(run, &dependents.unpublished))
        }
        (None, dependents) if !dependents.published.is_empty() => Some(told::not_released(run, &dependents.published)),
        (None, _) => None,
    };
    if args.json {
        let exit = failure.as_ref().map_or(ExitCode::Done, |failure| failure.exit);
        terminal.print(format!("{}\n", wire(&taken.record, &taken, &released, exit)).as_bytes())?;
    }
    failure.map_or(Ok(()), Err)
}

/// What stands in a file that has still to be ingested: said even without a terminal.
fn released_line(released: &Released, terminal: &Terminal) -> Option<String> {
    let Released { run, path, records, was_there, .. } = released;
    let (records, path) = (counted(*records, "record"), path.display());
    let verb = if *was_there { "were handed out before in" } else { "are handed out in" };
    let line = format!("{records} that run `{run}` had suppressed {verb} `{path}`: ingest that file");
    (terminal.verbosity != Verbosity::Quiet).then_some(line)
}

fn wire(record: &RunRecord, taken: &crate::run::TakenBack, released: &[Released], exit: ExitCode) -> Value {
    let file = |released: &Released| {
        json!({
            "run_id": released.run.as_str(),
            "file": released.path.display().to_string(),
            "records": released.records,
            "was_there": released.was_there,
        })
    };
    json!({
        "type": "reverted",
        "run_id": record.run.as_str(),
        "file": record.feed_name,
        "was_reverted": taken.was_reverted,
        "claims_freed": taken.freed,
        "released": released.iter().map(file).collect::<Vec<_>>(),
        "exit_code": exit.number(),
    })
}

/// Says what would be done, and fails as it would.
fn tell_outlook(args: &RevertArgs, outlook: &TakeBackOutlook, terminal: &Terminal) -> Result<(), Failure> {
    let TakeBackOutlook { record, dependents } = outlook;
    let accepted = record.counts[Decision::Accepted.index()] + record.counts[Decision::Unverified.index()];
    let failure = match record.state == RunState::Reverted {
        false if !dependents.unpublished.is_empty() => Some(told::needed_soon(&record.run, &dependents.unpublished)),
        _ if !dependents.published.is_empty() && !args.release_suppressed => {
            Some(told::needed(&record.run, &dependents.published))
        }
        _ => None,
    };
    if terminal.verbosity != Verbosity::Quiet {
        outlook_lines(record, accepted, dependents).iter().for_each(|line| terminal.say(line));
    }
    if args.json {
        let ids = |records: &[RunRecord]| records.iter().map(|record| record.run.to_string()).collect::<Vec<_>>();
        let exit = failure.as_ref().map_or(ExitCode::Done, |failure| failure.exit);
        let line = json!({
            "type": "revert_dry_run",
            "run_id": record.run.as_str(),
            "file": record.feed_name,
            "state": record.state.name(),
            "accepted": accepted,
            "published_dependents": ids(&dependents.published),
            "unpublished_dependents": ids(&dependents.unpublished),
            "abandoned_dependents": ids(&dependents.abandoned),
            "exit_code": exit.number(),
        });
        terminal.print(format!("{line}\n").as_bytes())?;
    }
    failure.map_or(Ok(()), Err)
}

fn outlook_lines(record: &RunRecord, accepted: u64, dependents: &crate::run::Dependents) -> Vec<String> {
    let RunRecord { run, feed_name, counts, .. } = record;
    let (would_be, freed) = match record.state == RunState::Reverted {
        true => ("is taken back already", "claims of it would be freed only where that was broken off".to_owned()),
        false => ("would be taken back", format!("{} would be free again", counted(accepted, "accepted record"))),
    };
    let mut lines = vec![format!(
        "dry run, nothing changed: run `{run}` over `{feed_name}` {would_be}: {}",
        counts_in_words(counts)
    )];
    lines.extend(recorded_table(counts, &summary_of(record)));
    lines.push(format!("  {freed}"));
    for (records, what) in [
        (&dependents.published, "suppressed records because of it"),
        (&dependents.unpublished, "suppresses records because of it and is not published yet"),
        (&dependents.abandoned, "suppresses records because of it and was left: it would be barred from sealing"),
    ] {
        lines.extend(records.iter().map(|record| format!("  run `{}` over `{}` {what}", record.run, record.feed_name)));
    }
    lines
}

/// The summary of the run, if it is within reach: the record has no money.
fn summary_of(record: &RunRecord) -> Value {
    let path = std::path::Path::new(&record.folder).join(format!("{}.summary.json", record.stem));
    let text = read_text(&path, SUMMARY_LEN_MAX).unwrap_or_default();
    let summary: Value = serde_json::from_str(&text).unwrap_or_default();
    if summary["run_id"] == record.run.as_str() { summary } else { Value::Null }
}
