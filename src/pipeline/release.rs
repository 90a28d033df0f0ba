//! Handing suppressed records out again: the run because of which they were suppressed is taken back, so that no
//! published output holds them any more.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;

use super::feed_work::attempt_of;
use super::taking_back::{TakeBackRequest, journal_of, note};
use crate::domain::{Decision, RunId, RunRecord};
use crate::input::{FeedBlock, InputError, LineContent, open_feed};
use crate::output::{HashedFile, OutputError, OutputNames, is_standing, publish_released, remove_unreleased};

/// The journal's word that suppressed records were handed out, in the journal of the run that suppressed them.
const RELEASED: &str = "run.released";

/// The event of the audit log that says what became of a record.
const CHECKED: &str = "dedup.checked";

/// The records that one run had suppressed, in a file of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// The run that had suppressed them.
    pub run: RunId,
    pub path: PathBuf,
    pub records: u64,
    /// Whether an earlier call had written the file; it may have been taken away since.
    pub was_there: bool,
    /// Whether that run's journal says so.
    pub is_noted: bool,
}

/// Why records could not be handed out.
#[derive(Debug)]
pub enum ReleaseError {
    /// Their run was read with another profile.
    OtherProfile {
        run: RunId,
        feed_name: String,
    },
    /// A file of their run is not where it was published.
    Missing {
        run: RunId,
        host: String,
        path: PathBuf,
    },
    /// It is not what was published.
    Changed {
        run: RunId,
        path: PathBuf,
    },
    /// Audit log and suppressed file do not tell of the same records.
    Uneven {
        run: RunId,
        path: PathBuf,
    },
    Read {
        path: PathBuf,
        source: io::Error,
    },
    Input(InputError),
    Output(OutputError),
}

impl From<InputError> for ReleaseError {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

impl From<OutputError> for ReleaseError {
    fn from(error: OutputError) -> Self {
        Self::Output(error)
    }
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherProfile { run, feed_name } => {
                write!(f, "run `{run}` read `{feed_name}` with another profile, so its records cannot be cut")
            }
            Self::Missing { path, .. } => write!(f, "cannot open `{}`", path.display()),
            Self::Changed { run, path } => {
                write!(f, "`{}` is not the file that run `{run}` published", path.display())
            }
            Self::Uneven { run, path } => {
                write!(f, "`{}` does not hold the records that the audit log of run `{run}` names", path.display())
            }
            Self::Read { path, .. } => write!(f, "could not read `{}`", path.display()),
            Self::Input(error) => error.fmt(f),
            Self::Output(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReleaseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } => Some(source),
            Self::Input(error) => error.source(),
            Self::Output(error) => error.source(),
            Self::OtherProfile { .. } | Self::Missing { .. } | Self::Changed { .. } | Self::Uneven { .. } => None,
        }
    }
}

/// What is to be done about the suppressed records of one run.
enum Plan<'a> {
    /// They can be cut out of its files.
    Cut(Source<'a>),
    /// They cannot, and its journal says that they were handed out before.
    Done(Released),
}

/// A run with suppressed records, and its files, which are what was published.
struct Source<'a> {
    record: &'a RunRecord,
    names: OutputNames,
}

/// Writes what the runs `dependents` suppressed because of `reverted` to a file for each of them.
///
/// Every file is looked at before the first one is written. Records of runs with different profiles are handed out by
/// several calls, of which each has one profile: what can be cut is written before the refusal, and the journals say
/// to the next call that it is done.
pub(super) fn release(
    request: &TakeBackRequest,
    reverted: &RunRecord,
    dependents: &[RunRecord],
) -> Result<Vec<Released>, ReleaseError> {
    let (mut plans, mut refusal) = (Vec::new(), None);
    for record in dependents {
        match plan(request, reverted, record) {
            Ok(plan) => plans.push(plan),
            Err(error @ ReleaseError::OtherProfile { .. }) => refusal = refusal.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    let mut all_released = Vec::new();
    for plan in plans {
        match plan {
            Plan::Cut(source) => all_released.extend(cut(request, reverted, &source)?),
            Plan::Done(released) => all_released.push(released),
        }
    }
    refusal.map_or(Ok(all_released), Err)
}

fn plan<'a>(request: &TakeBackRequest, reverted: &RunRecord, record: &'a RunRecord) -> Result<Plan<'a>, ReleaseError> {
    match source_of(request, record) {
        Ok(source) => Ok(Plan::Cut(source)),
        Err(error) => noted(reverted, record).map(Plan::Done).ok_or(error),
    }
}

fn source_of<'a>(request: &TakeBackRequest, record: &'a RunRecord) -> Result<Source<'a>, ReleaseError> {
    let run = || record.run.clone();
    if record.meaning != request.profile.meaning() {
        return Err(ReleaseError::OtherProfile { run: run(), feed_name: record.feed_name.clone() });
    }
    let names = names_of(record);
    for path in [names.audit(), names.records(Decision::Suppressed)] {
        if path.symlink_metadata().is_err() {
            return Err(ReleaseError::Missing { run: run(), host: record.host.clone(), path });
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let output = record.outputs.iter().find(|output| output.name == name);
        let is_sealed = output.map(|output| is_standing(&names, output)).transpose()?;
        if is_sealed != Some(true) {
            return Err(ReleaseError::Changed { run: run(), path });
        }
    }
    Ok(Source { record, names })
}

/// The names of the files of a sealed run; their extension stands in its outputs.
fn names_of(record: &RunRecord) -> OutputNames {
    let start = format!("{}.{}.", record.stem, Decision::Suppressed.file_kind());
    let extension = record.outputs.iter().find_map(|output| output.name.strip_prefix(&start));
    OutputNames::of_run(record, extension.unwrap_or_default())
}

/// What the journal of `record` says of records that were handed out because `reverted` was taken back.
fn noted(reverted: &RunRecord, record: &RunRecord) -> Option<Released> {
    let line = journal_of(record).ok()??.last(RELEASED, "reverted", &json!(reverted.run.as_str())).ok()??;
    Some(Released {
        run: record.run.clone(),
        path: PathBuf::from(line["file"].as_str()?),
        records: line["records"].as_u64()?,
        was_there: true,
        is_noted: true,
    })
}

/// Writes the suppressed records of `source` to a file of their own; none if there are none.
fn cut(request: &TakeBackRequest, reverted: &RunRecord, source: &Source<'_>) -> Result<Option<Released>, ReleaseError> {
    let folder = request.folder.clone().unwrap_or_else(|| source.names.folder.clone());
    let names = OutputNames { folder, ..source.names.clone() };
    let attempt = attempt_of(reverted);
    // The lock on the reverted run's feed is ours: nobody else of this machine writes there.
    remove_unreleased(&names, &attempt);
    let mut file = HashedFile::create(&names.released(1), &attempt)?;
    let written = copy_suppressed(request, reverted, source, &mut file).and_then(|records| {
        let output = file.finish()?;
        Ok((records, output))
    });
    let (records, output) = match written {
        Ok((records, output)) if records > 0 => (records, output),
        nothing_or_error => {
            remove_unreleased(&names, &attempt);
            return nothing_or_error.map(|_| None);
        }
    };
    let (path, was_there) = publish_released(&names, &attempt, &output)?;
    let fields = json!({
        "reverted": reverted.run.as_str(),
        "file": path.display().to_string(),
        "records": records,
        "bytes": output.bytes,
        "sha256": output.sha256.to_string(),
    });
    let is_noted = note(&request.worker, source.record, RELEASED, fields);
    Ok(Some(Released { run: source.record.run.clone(), path, records, was_there, is_noted }))
}

/// Copies the prologue and every record that was suppressed because of `reverted`, byte for byte; says how many.
///
/// The records of the suppressed file are, in their order, those that the audit log calls suppressed.
fn copy_suppressed(
    request: &TakeBackRequest,
    reverted: &RunRecord,
    source: &Source<'_>,
    to: &mut HashedFile,
) -> Result<u64, ReleaseError> {
    let path = source.names.records(Decision::Suppressed);
    let uneven = || ReleaseError::Uneven { run: source.record.run.clone(), path: path.clone() };
    let mut audit = SuppressedLines::open(&source.names.audit(), &reverted.run)?;
    let file = File::open(&path).map_err(|source| ReleaseError::Read { path: path.clone(), source })?;
    let shown = path.display().to_string();
    let (_, mut reader) = open_feed(Box::new(file), &shown, Some(&source.names.extension), &request.profile)?;
    to.write(&reader.prologue().raw)?;
    let (mut block, mut records) = (FeedBlock::default(), 0);
    while reader.read_block(&mut block)? {
        let mut start = 0;
        for line in &block.lines {
            let end = start + line.len as usize;
            if matches!(line.content, LineContent::Skipped(_)) {
                return Err(uneven());
            }
            if audit.next()?.ok_or_else(uneven)? {
                to.write(&block.raw[start..end])?;
                records += 1;
            }
            start = end;
        }
    }
    if audit.next()?.is_some() { Err(uneven()) } else { Ok(records) }
}

/// The lines of an audit log that tell of suppressed records.
struct SuppressedLines {
    path: PathBuf,
    lines: BufReader<File>,
    /// What the trace ids of one run begin with.
    trace_start: String,
    line: String,
}

#[derive(Deserialize)]
struct CheckedWire<'a> {
    #[serde(borrow)]
    event: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    match_decision: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    first_trace_id: Option<std::borrow::Cow<'a, str>>,
}

impl SuppressedLines {
    fn open(path: &Path, first_run: &RunId) -> Result<Self, ReleaseError> {
        let file = File::open(path).map_err(|source| ReleaseError::Read { path: path.to_owned(), source })?;
        let trace_start = format!("{first_run}:");
        Ok(Self { path: path.to_owned(), lines: BufReader::new(file), trace_start, line: String::new() })
    }

    /// Whether the next suppressed record was first seen in the run; none after the last one.
    fn next(&mut self) -> Result<Option<bool>, ReleaseError> {
        loop {
            self.line.clear();
            let read = self.lines.read_line(&mut self.line);
            let fail = |source| ReleaseError::Read { path: self.path.clone(), source };
            if read.map_err(fail)? == 0 {
                return Ok(None);
            }
            let checked: CheckedWire<'_> = serde_json::from_str(&self.line).map_err(|error| fail(error.into()))?;
            let is_suppressed = checked.match_decision.as_deref() == Some(Decision::Suppressed.wire_name());
            if checked.event == CHECKED && is_suppressed {
                let first = checked.first_trace_id;
                return Ok(Some(first.is_some_and(|first| first.starts_with(&self.trace_start))));
            }
        }
    }
}
