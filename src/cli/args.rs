//! The command line as typed words; nothing is resolved here.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand, value_parser};

use super::failure::{ExitCode, Failure};
use super::layers::{FlagWords, flag_of};
use super::settings::{KEYS, Key, Settings};
use super::terminal::{ColorChoice, Verbosity};
use crate::domain::{Amount, Currency, RunId, RunState, is_iso_instant};

/// The input that is standard input.
pub const STANDARD_INPUT: &str = "-";

/// The settings that `-h` lists; `--help` lists them all.
const COMMON_KEYS: [&str; 3] = ["store", "out_dir", "profile"];

/// What stands behind the help of `runs`.
const RUNS_EXAMPLE: &str = "Example, what is stuck:
  feeddedup runs --state open --state sealed --state publishing";

/// What stands behind the help of `revert`.
const REVERT_EXAMPLE: &str =
    "Its files stay where they are: nothing of them may be posted, or it must be taken back in \
the ledger too. A corrected feed with the same records is accepted then, and so is the same feed again.

Example, a feed that the bank has corrected:
  feeddedup revert r-0715 --dry-run
  feeddedup revert r-0715
  feeddedup ingest july-corrected.csv";

/// What stands behind the help of `resolve`.
const RESOLVE_EXAMPLE: &str = "It is for a run whose host or folder is gone. If both are still there, repeat its \
`ingest` command instead: it goes on where it stopped.

Example, a run whose host burned down before anybody had its files:
  feeddedup runs --state publishing
  feeddedup resolve r-0715 --lost
  feeddedup ingest july.csv";

/// Finds which bank statement records were taken in before, and proves it.
#[derive(Debug, Parser)]
#[command(name = "feeddedup", version, max_term_width = 100, after_help = exit_code_help())]
pub struct Words {
    #[command(subcommand)]
    pub command: CommandWords,

    /// Say nothing but errors and warnings.
    #[arg(short, long, global = true, display_order = 90, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Say what is done, even without a terminal.
    #[arg(short, long, global = true, display_order = 91)]
    pub verbose: bool,

    /// Colour messages.
    #[arg(long, global = true, display_order = 92, value_enum, value_name = "WHEN", default_value = "auto")]
    pub color: ColorChoice,

    #[command(flatten)]
    pub settings: SettingFlags,
}

impl Words {
    /// How much is to be said.
    pub fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, true) => Verbosity::Verbose,
            (false, false) => Verbosity::Normal,
        }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum CommandWords {
    /// Take feeds in: write each record to the file of its decision.
    #[command(after_long_help = exit_code_help())]
    Ingest(IngestArgs),
    /// Show the canonical form and the hashes of each record.
    Hash(HashArgs),
    /// List the runs that the store knows.
    #[command(after_help = RUNS_EXAMPLE)]
    Runs(RunsArgs),
    /// Take a run back, as if it had never been published.
    #[command(after_help = REVERT_EXAMPLE)]
    Revert(RevertArgs),
    /// Say what became of a run that was left in the middle of its publishing.
    #[command(after_help = RESOLVE_EXAMPLE)]
    Resolve(ResolveArgs),
    /// Look at the settings.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
}

/// What is typed behind `ingest`.
#[derive(Debug, Args)]
pub struct IngestArgs {
    /// Read these feeds in this order; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Name the files of the run after this instead of the feed.
    #[arg(long, value_parser = output_name)]
    pub name: Option<String>,

    /// Give the run this id.
    #[arg(long, value_name = "ID", value_parser = RunId::parse)]
    pub run_id: Option<RunId>,

    /// Write this RFC 3339 instant in outputs and markers instead of the time of day.
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    pub now: Option<String>,

    /// Decide without claiming: write no file, key or store.
    #[arg(long)]
    pub dry_run: bool,

    /// Print the summary of each run as JSON on standard output.
    #[arg(long)]
    pub json: bool,

    /// Write this into the audit log of the run.
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    pub tags: Vec<Tag>,

    /// Refuse a feed that has not this many records.
    #[arg(long, value_name = "COUNT")]
    pub expect_records: Option<u64>,

    /// Refuse a feed whose amounts of a currency do not add up to this.
    #[arg(long = "expect-total", value_name = "CURRENCY=AMOUNT", value_parser = expected_total)]
    pub expect_totals: Vec<ExpectedTotal>,
}

/// What is typed behind `hash`.
#[derive(Debug, Args)]
pub struct HashArgs {
    /// Read this feed; `-` is standard input.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Print a JSON object for each record.
    #[arg(long)]
    pub json: bool,
}

/// What is typed behind `runs`.
#[derive(Debug, Args)]
pub struct RunsArgs {
    /// List only runs in this state; may be given several times.
    #[arg(long = "state", value_name = "STATE", value_parser = run_state)]
    pub states: Vec<RunState>,

    /// Print a JSON object for each run.
    #[arg(long)]
    pub json: bool,
}

/// What is typed behind `revert`.
#[derive(Debug, Args)]
pub struct RevertArgs {
    /// Take this run back.
    #[arg(value_name = "RUN", value_parser = RunId::parse)]
    pub run: RunId,

    /// Say what would be done, and change nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Write what published runs suppressed because of it to files for ingestion, read with `--profile`.
    #[arg(long)]
    pub release_suppressed: bool,

    /// Print what was done as JSON on standard output.
    #[arg(long)]
    pub json: bool,
}

/// What is typed behind `resolve`.
#[derive(Debug, Args)]
pub struct ResolveArgs {
    /// Resolve this run.
    #[arg(value_name = "RUN", value_parser = RunId::parse)]
    pub run: RunId,

    #[command(flatten)]
    pub fate: Fate,

    /// Print what was done as JSON on standard output.
    #[arg(long)]
    pub json: bool,
}

/// What became of the files of a run.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Fate {
    /// Its files reached whoever posts them: it counts as published.
    #[arg(long)]
    pub published: bool,

    /// Nobody has seen its files, nor ever will: it counts as never published, and its claims are free.
    #[arg(long)]
    pub lost: bool,
}

/// What is typed behind `config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print each setting and its value.
    Show(ConfigShowArgs),
}

/// What is typed behind `config show`.
#[derive(Debug, Args)]
pub struct ConfigShowArgs {
    /// Say where each value comes from.
    #[arg(long)]
    pub origin: bool,

    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What is typed behind `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Write the script for this shell.
    pub shell: clap_complete::Shell,
}

/// A key and a value that join the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    pub key: String,
    pub value: String,
}

/// What the amounts of a currency must add up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedTotal {
    pub currency: Currency,
    pub amount: Amount,
}

impl IngestArgs {
    /// Refuses words that do not go together.
    pub fn check(&self, settings: &Settings) -> Result<(), Failure> {
        let for_one = [("--name", self.name.is_some()), ("--run-id", self.run_id.is_some())];
        if let Some((flag, _)) = for_one.iter().find(|(_, is_given)| *is_given && self.files.len() > 1) {
            return Err(Failure::usage(format!("`{flag}` goes with one input, and there are {}", self.files.len()))
                .hint("give a command for each input"));
        }
        let inputs_from_stdin = self.files.iter().filter(|file| file.as_os_str() == STANDARD_INPUT).count();
        if inputs_from_stdin > 1 {
            return Err(Failure::usage("standard input can be read once only").hint("give `-` once"));
        }
        if inputs_from_stdin == 1 && self.name.is_none() && settings.out_dir.is_none() {
            return Err(Failure::usage("cannot tell where the files of standard input should go")
                .hint("give `--name` or `--out-dir`"));
        }
        if let Some(key) = twice(self.tags.iter().map(|tag| tag.key.as_str())) {
            return Err(Failure::usage(format!("the tag `{key}` is given twice")));
        }
        if let Some(currency) = twice(self.expect_totals.iter().map(|total| total.currency.as_str())) {
            return Err(Failure::usage(format!("the total of {currency} is given twice")));
        }
        Ok(())
    }
}

fn twice<'a>(words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = std::collections::BTreeSet::new();
    let mut words = words;
    words.find(|word| !seen.insert(*word))
}

fn output_name(text: &str) -> Result<String, String> {
    // A file name has at most 255 bytes, and the kind, the run id and the attempt join this one.
    let is_name = !text.is_empty() && text.len() <= 128 && !text.starts_with('.') && !text.contains(['/', '\\', '\0']);
    if is_name { Ok(text.to_owned()) } else { Err("give the start of a file name, without folders".to_owned()) }
}

fn run_state(text: &str) -> Result<RunState, String> {
    let names = RunState::ALL.map(|state| state.name().to_lowercase()).join(", ");
    RunState::from_name(&text.to_uppercase()).ok_or_else(|| format!("there are {names}"))
}

/// Kept as it was typed: it is text in outputs, and equal text must give equal bytes.
fn instant(text: &str) -> Result<String, String> {
    // The parser also takes a blank or a small `t`, a small `z` and the sign U+2212, which a marker may not hold.
    let is_instant = is_iso_instant(text.as_bytes()) && chrono::DateTime::parse_from_rfc3339(text).is_ok();
    if is_instant { Ok(text.to_owned()) } else { Err("give an instant such as 2026-07-15T09:00:00Z".to_owned()) }
}

fn tag(text: &str) -> Result<Tag, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok(Tag { key: key.to_owned(), value: value.to_owned() }),
        Some(_) | None => Err("give a key, `=` and a value".to_owned()),
    }
}

fn expected_total(text: &str) -> Result<ExpectedTotal, String> {
    let wanted = "give a currency, `=` and a decimal number, such as EUR=-1250.00";
    let (currency, amount) = text.split_once('=').ok_or(wanted)?;
    let (currency, amount) = (Currency::parse(currency).ok_or(wanted)?, Amount::parse(amount).ok_or(wanted)?);
    Ok(ExpectedTotal { currency, amount })
}

/// A flag for each setting, made from the table of settings so that no key is written twice.
#[derive(Debug, Clone, Default)]
pub struct SettingFlags {
    pub words: FlagWords,
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        KEYS.iter().fold(command, |command, key| {
            let arg = Arg::new(key.name)
                .long(flag_of(key.name)[2..].to_owned())
                .value_name(key.placeholder)
                .help(help_of(key));
            let arg = arg.value_parser(value_parser!(OsString)).global(true).help_heading("Settings");
            command.arg(arg.hide_short_help(!COMMON_KEYS.contains(&key.name)))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let word = |key: &Key| Some((key.name, matches.get_one::<OsString>(key.name)?.clone()));
        Ok(Self { words: KEYS.iter().filter_map(word).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.words.extend(Self::from_arg_matches(matches)?.words);
        Ok(())
    }
}

/// The help of a setting: its sentence, its range, its default.
fn help_of(key: &Key) -> String {
    let sentence = key.help.trim().trim_end_matches('.');
    let default = key.default.map(|default| format!("default {default}"));
    match (key.range)().into_iter().chain(default).collect::<Vec<String>>().join("; ") {
        limits if limits.is_empty() => sentence.to_owned(),
        limits => format!("{sentence} [{limits}]"),
    }
}

fn exit_code_help() -> String {
    let lines = ExitCode::ALL.iter().map(|code| format!("\n  {:>3}  {}", code.number(), code.meaning()));
    format!("Exit codes:{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::environment::Environment;

    fn ingest(words: &[&str]) -> Result<IngestArgs, clap::Error> {
        let words = Words::try_parse_from(["feeddedup", "ingest"].iter().chain(words))?;
        match words.command {
            CommandWords::Ingest(args) => Ok(args),
            CommandWords::Hash(_)
            | CommandWords::Runs(_)
            | CommandWords::Revert(_)
            | CommandWords::Resolve(_)
            | CommandWords::Config(_)
            | CommandWords::Completions(_) => {
                unreachable!()
            }
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Words::command().debug_assert();
    }

    #[test]
    fn every_setting_has_its_flag_before_and_behind_the_command() {
        for key in KEYS {
            let flag = flag_of(key.name);
            for line in [["feeddedup", &flag, "x", "ingest", "f"], ["feeddedup", "ingest", "f", &flag, "x"]] {
                let words = Words::try_parse_from(line).unwrap();
                assert_eq!(words.settings.words.get(key.name), Some(&OsString::from("x")), "{line:?}");
            }
        }
    }

    #[test]
    fn words_are_checked_as_they_are_read() {
        let args = ingest(&["a", "-", "--tag", "batch=a=b", "--expect-total", "eur=-1.50", "--expect-records", "3"]);
        let args = args.unwrap();
        assert_eq!(args.tags, [Tag { key: "batch".into(), value: "a=b".into() }]);
        assert_eq!(args.expect_totals[0].currency.as_str(), "EUR");
        assert_eq!(args.expect_records, Some(3));
        let now = "2026-07-15T11:03:00.120+02:00";
        assert_eq!(ingest(&["a", "--now", now]).unwrap().now.as_deref(), Some(now));
        for bad in [
            ["--now", "2026-07-15"],
            ["--now", "2026-07-15 09:00:00Z"],
            ["--now", "2026-07-15t09:00:00Z"],
            ["--now", "2026-07-15T09:00:00z"],
            ["--now", "2026-07-15T09:00:00\u{2212}01:00"],
            ["--run-id", "-x"],
            ["--name", "a/b"],
            ["--tag", "=x"],
            ["--tag", "x"],
            ["--expect-total", "EUR"],
            ["--expect-total", "EUR=1,5"],
            ["--expect-records", "-1"],
            ["--color", "red"],
        ] {
            assert_eq!(ingest(&["a", bad[0], bad[1]]).unwrap_err().exit_code(), 2, "{bad:?}");
        }
    }

    #[test]
    fn words_that_do_not_go_together_are_refused() {
        let settings = |flags: &[(&'static str, &str)]| {
            let flags = flags.iter().map(|(key, value)| (*key, OsString::from(value))).collect();
            Settings::resolve(&flags, &Environment::default()).unwrap()
        };
        let check = |words: &[&str], settings: &Settings| ingest(words).unwrap().check(settings);
        let plain = settings(&[]);
        for good in [&["a", "b"][..], &["a", "--run-id", "r"], &["-", "--name", "july"]] {
            assert_eq!(check(good, &plain), Ok(()), "{good:?}");
        }
        assert_eq!(check(&["-"], &settings(&[("out_dir", "out")])), Ok(()));
        for bad in [
            &["a", "b", "--run-id", "r"][..],
            &["a", "b", "--name", "n"],
            &["-"],
            &["-", "-"],
            &["a", "--tag", "k=1", "--tag", "k=2"],
            &["a", "--expect-total", "EUR=1", "--expect-total", "eur=2"],
        ] {
            assert_eq!(check(bad, &plain).unwrap_err().exit, ExitCode::Usage, "{bad:?}");
        }
    }
}
