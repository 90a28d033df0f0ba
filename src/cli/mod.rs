//! Words in, settings out, failures told, exit code chosen.
//!
//! A new command is a variant in `args`, a file in `commands`, and an arm of `dispatch`.

pub mod args;
mod commands;
pub mod environment;
pub mod failure;
mod feeds;
mod ingest_failure;
pub mod layers;
mod number;
mod panic;
mod progress;
pub mod secrets;
pub mod settings;
mod signals;
mod small_file;
pub mod state_dir;
mod summary;
mod taking_back_failure;
pub mod terminal;
mod used_store;
pub mod value;
mod worker;

use std::ffi::OsString;

use clap::Parser as _;

use args::{CommandWords, ConfigCommand, Words};
use environment::Environment;
use failure::{ExitCode, Failure};
use settings::Settings;
use terminal::{ClosedPipe, Terminal};

/// Runs the program on a command line whose first word is the program's name.
pub fn main(words: impl IntoIterator<Item = OsString>) -> std::process::ExitCode {
    let words = match Words::try_parse_from(words) {
        Ok(words) => words,
        Err(told) => return tell(&told).into(),
    };
    let environment = Environment::of_process();
    let terminal = Terminal::of_process(words.color, words.verbosity(), &environment);
    panic::caught(terminal, || match dispatch(&words, &environment, &terminal) {
        Ok(exit) => exit,
        Err(error) if error.is::<ClosedPipe>() => ExitCode::Done,
        Err(error) => {
            let failure = Failure::of(error);
            terminal.show(&failure);
            failure.exit
        }
    })
    .into()
}

/// Help and version go to standard output and are no failure; a wrong command line goes to standard error.
fn tell(told: &clap::Error) -> ExitCode {
    // Nobody is left to tell if the stream is gone.
    let _ = told.print();
    if told.exit_code() == 0 { ExitCode::Done } else { ExitCode::Usage }
}

fn dispatch(words: &Words, environment: &Environment, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let settings = || Settings::resolve(&words.settings.words, environment);
    match &words.command {
        CommandWords::Ingest(args) => {
            let settings = settings()?;
            args.check(&settings)?;
            commands::ingest::run(args, &settings, environment, terminal, &signals::watch(*terminal))
        }
        CommandWords::Hash(args) => commands::hash::run(args, &settings()?, &signals::watch(*terminal)),
        CommandWords::Runs(args) => commands::runs::run(args, &settings()?, terminal, &signals::watch(*terminal)),
        CommandWords::Revert(args) => commands::revert::run(args, &settings()?, environment, terminal),
        CommandWords::Resolve(args) => commands::resolve::run(args, &settings()?, environment, terminal),
        CommandWords::Config(ConfigCommand::Show(args)) => commands::config::run(args, &settings()?, terminal),
        CommandWords::Completions(args) => commands::completions::run(args, terminal),
    }
}
