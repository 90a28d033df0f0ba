//! The command `ingest`.

use crate::cli::args::IngestArgs;
use crate::cli::failure::{ExitCode, Failure};
use crate::cli::settings::Settings;
use crate::cli::terminal::Terminal;

pub(crate) fn run(_args: &IngestArgs, _settings: &Settings, _terminal: &Terminal) -> anyhow::Result<ExitCode> {
    Err(Failure::new(ExitCode::Bug, "`ingest` is not wired").into())
}
