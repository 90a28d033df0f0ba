//! The command `hash`.

use crate::cli::args::HashArgs;
use crate::cli::failure::{ExitCode, Failure};
use crate::cli::settings::Settings;
use crate::cli::terminal::Terminal;

pub(crate) fn run(_args: &HashArgs, _settings: &Settings, _terminal: &Terminal) -> anyhow::Result<ExitCode> {
    Err(Failure::new(ExitCode::Bug, "`hash` is not wired").into())
}
