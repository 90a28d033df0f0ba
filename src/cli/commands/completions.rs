//! The command `completions`: a script that completes the command line in a shell.

use clap::CommandFactory as _;

use crate::cli::args::{CompletionsArgs, Words};
use crate::cli::failure::ExitCode;
use crate::cli::terminal::Terminal;

pub(crate) fn run(args: &CompletionsArgs, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Words::command(), "feeddedup", &mut script);
    terminal.print(&script)?;
    Ok(ExitCode::Done)
}
