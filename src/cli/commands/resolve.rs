//! The command `resolve`: says what became of a run that was left in the middle of its publishing.

use serde_json::json;

use crate::cli::args::ResolveArgs;
use crate::cli::environment::Environment;
use crate::cli::failure::ExitCode;
use crate::cli::number::counted;
use crate::cli::settings::Settings;
use crate::cli::taking_back_failure::{self as told, Deed};
use crate::cli::terminal::Terminal;
use crate::cli::used_store::open_for_run;
use crate::cli::worker::worker;
use crate::domain::RunRecord;
use crate::pipeline::{self, ResolveRequest, TakeBackReport};
use crate::run::Resolution;
use crate::store::Access;

pub(crate) fn run(
    args: &ResolveArgs,
    settings: &Settings,
    environment: &Environment,
    terminal: &Terminal,
) -> anyhow::Result<ExitCode> {
    let mut used = open_for_run(settings, Access::Write { create: false }, terminal, &args.run)?;
    let resolution = if args.fate.published { Resolution::Published } else { Resolution::Lost };
    let lock_folder = settings.lock_folder()?;
    let request = ResolveRequest { run: args.run.clone(), resolution, lock_folder, worker: worker(environment) };
    let done = pipeline::resolve(&request, &mut *used.store);
    let TakeBackReport { taken, is_noted, .. } = done.map_err(|error| told::failure(error, Deed::Resolve))?;
    used.advance_age(terminal);
    let RunRecord { run, state, folder, .. } = &taken.record;
    terminal.note(&match resolution {
        Resolution::Published => format!("run `{run}` counts as published"),
        Resolution::Lost => format!("run `{run}` counts as never published: {} freed", counted(taken.freed, "claim")),
    });
    if !is_noted {
        terminal.warn(&format!("the journal of run `{run}` is not in `{folder}`: it does not say how it was resolved"));
    }
    if args.json {
        let line = json!({
            "type": "resolved",
            "run_id": run.as_str(),
            "file": taken.record.feed_name,
            "state": state.name(),
            "claims_freed": taken.freed,
            "exit_code": ExitCode::Done.number(),
        });
        terminal.print(format!("{line}\n").as_bytes())?;
    }
    Ok(ExitCode::Done)
}
