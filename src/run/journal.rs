//! The run's own file: a live record of operations, appended by restarts, never compared.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::now_text;
use crate::domain::RunId;

/// The journal of a run, open for appending.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    run: RunId,
}

/// The journal could not be made or written.
#[derive(Debug)]
pub struct JournalError {
    pub path: PathBuf,
    pub source: io::Error,
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not write the journal `{}`", self.path.display())
    }
}

impl std::error::Error for JournalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl Journal {
    /// Opens the journal of `run` at `path`; none if a file of another run stands there.
    pub fn open(path: &Path, run: &RunId) -> Result<Option<Self>, JournalError> {
        let fail = |source| JournalError { path: path.to_owned(), source };
        let file = match OpenOptions::new().append(true).create_new(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && belongs_to(path, run).map_err(fail)? => {
                OpenOptions::new().append(true).open(path).map_err(fail)?
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            Err(error) => return Err(fail(error)),
        };
        Ok(Some(Self { path: path.to_owned(), file, run: run.clone() }))
    }

    /// Whether the journal has a line of `event` whose `field` is `number`.
    pub fn holds(&self, event: &str, field: &str, number: u32) -> Result<bool, JournalError> {
        Ok(self.last(event, field, &json!(number))?.is_some())
    }

    /// Opens the journal of `run` at `path` if it is there; one that was taken away is not begun anew.
    pub fn open_existing(path: &Path, run: &RunId) -> Result<Option<Self>, JournalError> {
        match path.symlink_metadata() {
            Ok(_) => Self::open(path, run),
            Err(_) => Ok(None),
        }
    }

    /// The last line of `event` whose `field` is `value`.
    pub fn last(&self, event: &str, field: &str, value: &Value) -> Result<Option<Value>, JournalError> {
        let fail = |source| JournalError { path: self.path.clone(), source };
        let mut last = None;
        for line in BufReader::new(File::open(&self.path).map_err(fail)?).lines() {
            let line: Option<Value> = serde_json::from_str(&line.map_err(fail)?).ok();
            last = line.filter(|line| line["event"] == event && line[field] == *value).or(last);
        }
        Ok(last)
    }

    /// Appends an event with the present time; `fields` must be an object. One write a line: a crash tears none.
    pub fn append(&mut self, event: &str, fields: Value) -> Result<(), JournalError> {
        let head = json!({ "ts": now_text() }).to_string();
        let head = head.trim_end_matches('}');
        let fields = fields.to_string();
        let fields = fields.trim_start_matches('{');
        let comma = if fields == "}" { "" } else { "," };
        let line = format!("{head},\"event\":{},\"run_id\":\"{}\"{comma}{fields}\n", json!(event), self.run);
        let bytes = line.into_bytes();
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        written.map_err(|source| JournalError { path: self.path.clone(), source })
    }
}

/// Whether the first line at `path` is of `run`; an empty file is of nobody, so of whoever finds it.
fn belongs_to(path: &Path, run: &RunId) -> io::Result<bool> {
    let mut first = String::new();
    BufReader::new(File::open(path)?).read_line(&mut first)?;
    let line: Option<Value> = serde_json::from_str(&first).ok();
    Ok(first.is_empty() || line.is_some_and(|line| line["run_id"] == run.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_appends_and_another_run_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("july.journal.jsonl");
        let (own, other) = (RunId::parse("r-1").unwrap(), RunId::parse("r-2").unwrap());
        for epoch in [1, 2] {
            Journal::open(&path, &own).unwrap().unwrap().append("run.opened", json!({ "epoch": epoch })).unwrap();
        }
        assert!(Journal::open(&path, &other).unwrap().is_none());
        let journal = Journal::open(&path, &own).unwrap().unwrap();
        assert!(journal.holds("run.opened", "epoch", 2).unwrap() && !journal.holds("run.opened", "epoch", 3).unwrap());
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((lines.len(), &lines[1]["epoch"], &lines[1]["run_id"]), (2, &json!(2), &json!("r-1")));
    }
}
