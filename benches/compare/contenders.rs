//! How each contender is called, and the check that it did the work it is timed for.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::child::time;
use crate::feed::Feed;
use crate::prepack::Claimed;
use crate::rounds::Lap;

const CLIENTS: &str = include_str!("clients.py");

/// What a run is to find: anything else, and the figure would be of another case.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Expected {
    AllAccepted,
    AllSuppressed,
}

/// A folder for one run after another: the program's state, its outputs, and its store if that is a file.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) dir: PathBuf,
    /// The Redis server, or none for an embedded store in `dir`.
    pub(crate) url: Option<String>,
}

impl Place {
    /// The place as if nothing had ever run there.
    pub(crate) fn wipe(&self) -> anyhow::Result<()> {
        remove(&self.dir)?;
        fs::create_dir_all(&self.dir).with_context(|| format!("could not make `{}`", self.dir.display()))
    }

    fn store(&self) -> String {
        self.url.clone().unwrap_or_else(|| format!("file:{}", self.dir.join("store").display()))
    }

    /// Empties the folder for outputs; what earlier runs left there belongs to no timing.
    fn outputs(&self) -> anyhow::Result<PathBuf> {
        let outputs = self.dir.join("out");
        remove(&outputs)?;
        fs::create_dir_all(&outputs)?;
        Ok(outputs)
    }
}

/// The program itself, all outputs and the audit on; its outputs are gone afterwards.
pub(crate) fn feeddedup(feed: &Feed, place: &Place, expected: Expected) -> anyhow::Result<Lap> {
    feeddedup_with(feed, place, expected, &[])
}

/// The same with further flags.
pub(crate) fn feeddedup_with(feed: &Feed, place: &Place, expected: Expected, flags: &[&str]) -> anyhow::Result<Lap> {
    let outputs = place.outputs()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_feeddedup"));
    command.arg("ingest").arg(&feed.path).arg("--out-dir").arg(&outputs);
    command.arg("--state-dir").arg(place.dir.join("state")).args(["--store", &place.store()]);
    // A store is made for the feed; it does not grow in a timing.
    command.args(["--expected-records", &feed.records.to_string()]).args(flags);
    // Nobody's settings but the defaults.
    command.current_dir(&place.dir).env("XDG_CONFIG_HOME", &place.dir);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FEEDDEDUP_")) {
        command.env_remove(name);
    }
    let cost = time(&mut command, None)?;
    check_outputs(&outputs, feed, expected)?;
    remove(&outputs)?;
    Ok(Lap { records: feed.records, work: cost.wall, cost })
}

/// The one file of records that is to hold the whole feed is the feed, byte for byte.
fn check_outputs(outputs: &Path, feed: &Feed, expected: Expected) -> anyhow::Result<()> {
    let ending = match expected {
        Expected::AllAccepted => ".accepted.csv",
        Expected::AllSuppressed => ".suppressed.csv",
    };
    for entry in fs::read_dir(outputs)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(ending) {
            let bytes = entry.metadata()?.len();
            ensure!(bytes == feed.bytes, "`*{ending}` has {bytes} bytes, the feed {}", feed.bytes);
            return Ok(());
        }
    }
    bail!("the run left no `*{ending}`")
}

/// `redis-cli` pushing prepacked commands: no parsing, no hashing, no outputs, no decisions.
pub(crate) fn redis_cli_pipe(commands: &Path, records: u64, claimed: Claimed, port: u16) -> anyhow::Result<Lap> {
    let mut command = Command::new("redis-cli");
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "--pipe"]).stdin(Stdio::from(File::open(commands)?));
    let cost = time(&mut command, None)?;
    let answer = format!("errors: 0, replies: {}", records * claimed.replies());
    ensure!(cost.stdout.contains(&answer), "`redis-cli --pipe` says `{}`", cost.stdout.trim_end());
    Ok(Lap { records, work: cost.wall, cost })
}

/// The one-liner that everybody knows: whole lines, in memory, nothing stored.
pub(crate) fn awk(feed: &Feed, dir: &Path) -> anyhow::Result<Lap> {
    let out = dir.join("awk.csv");
    let cost = time(Command::new("awk").arg("!seen[$0]++").arg(&feed.path), Some(File::create(&out)?))?;
    let bytes = fs::metadata(&out)?.len();
    ensure!(bytes == feed.bytes, "`awk` wrote {bytes} bytes of {}", feed.bytes);
    fs::remove_file(&out)?;
    Ok(Lap { records: feed.records, work: cost.wall, cost })
}

/// Which awk it is: they differ in speed by far.
pub(crate) fn awk_name() -> String {
    let path = find_program("awk").and_then(|path| path.canonicalize().ok());
    path.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())).unwrap_or_else(|| "awk".to_owned())
}

/// DuckDB from Python, from the start of its process to the end, as everybody else is timed.
///
/// `query` is `first`, which leaves what an accepted file holds, or `distinct`, which leaves the rows in any order.
pub(crate) fn duckdb(query: &str, feed: &Feed, dir: &Path) -> anyhow::Result<Lap> {
    let (lap, rows) = python(query, feed, dir, &[])?;
    ensure!(rows == feed.records, "DuckDB wrote {rows} rows of {}", feed.records);
    Ok(Lap { work: lap.cost.wall, ..lap })
}

/// A client of the same design in Python: `mode` is `each` or `pipelined`.
pub(crate) fn python_client(mode: &str, feed: &Feed, dir: &Path, port: u16, duplicates: u64) -> anyhow::Result<Lap> {
    let (lap, found) = python(mode, feed, dir, &[&port.to_string()])?;
    ensure!(found == duplicates, "the Python client found {found} duplicates, not {duplicates}");
    Ok(lap)
}

fn python(mode: &str, feed: &Feed, dir: &Path, more: &[&str]) -> anyhow::Result<(Lap, u64)> {
    let script = dir.join("clients.py");
    let outputs = dir.join("python");
    fs::write(&script, CLIENTS)?;
    fs::create_dir_all(&outputs)?;
    let mut command = Command::new("python3");
    command.arg(&script).arg(mode).arg(&feed.path).arg(&outputs).args(more);
    let cost = time(&mut command, None)?;
    remove(&outputs)?;
    let (seconds, count) = cost.stdout.trim_end().split_once(' ').context("the Python client says nothing")?;
    let (work, count) = (Duration::try_from_secs_f64(seconds.parse()?)?, count.parse()?);
    Ok((Lap { records: feed.records, work, cost }, count))
}

/// The package that brings `program`, if this machine lacks it.
pub(crate) fn missing_program(program: &str, package: &'static str) -> Option<&'static str> {
    find_program(program).is_none().then_some(package)
}

fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// The package that brings `module` of Python, if this machine lacks it.
pub(crate) fn missing_module(module: &str, package: &'static str) -> Option<&'static str> {
    let import = Command::new("python3").args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
    (!import.is_ok_and(|status| status.success())).then_some(package)
}

/// Removes a folder and all in it, if there is one.
pub(crate) fn remove(dir: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("could not remove `{}`", dir.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
