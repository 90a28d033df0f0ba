//! Names of a run's files: one number for all of them.

use std::path::{Path, PathBuf};

use super::OutputError;
use crate::domain::{Decision, RunId, RunRecord};

/// Most runs that share a name in one folder.
pub(super) const NUMBER_MAX: u32 = 100_000;

/// The files of one run: a folder, a stem such as `july` or `july.2`, and the extension of files of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputNames {
    pub folder: PathBuf,
    pub stem: String,
    pub extension: String,
}

impl OutputNames {
    /// The first names on `stem` in `folder` that no file bears yet.
    pub fn unused(folder: &Path, stem: &str, extension: &str) -> Result<Self, OutputError> {
        for number in 1..=NUMBER_MAX {
            let stem = if number == 1 { stem.to_owned() } else { format!("{stem}.{number}") };
            let names = Self { folder: folder.to_owned(), stem, extension: extension.to_owned() };
            if names.all().iter().all(|path| path.symlink_metadata().is_err()) {
                return Ok(names);
            }
        }
        Err(OutputError::Occupied { path: folder.join(stem) })
    }

    /// The names of the run of `record`, whose files of records have this extension.
    pub fn of_run(record: &RunRecord, extension: &str) -> Self {
        Self { folder: PathBuf::from(&record.folder), stem: record.stem.clone(), extension: extension.to_owned() }
    }

    /// Whether the names are `stem` itself or `stem` with a number.
    pub fn is_on(&self, stem: &str) -> bool {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let rest = self.stem.strip_prefix(stem);
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('.').is_some_and(is_number))
    }

    /// Every name that a run may give a file.
    pub(super) fn all(&self) -> Vec<PathBuf> {
        let mut paths: Vec<_> = Decision::ALL.into_iter().map(|decision| self.records(decision)).collect();
        paths.extend([self.audit(), self.journal(), self.summary(), self.named("unverified", "jsonl")]);
        paths
    }

    fn named(&self, kind: &str, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{kind}.{extension}", self.stem))
    }

    /// The file of records of `decision`.
    pub fn records(&self, decision: Decision) -> PathBuf {
        self.named(decision.file_kind(), &self.extension)
    }

    /// The file of suppressed records that were handed out again; a number where there are several.
    pub fn released(&self, number: u32) -> PathBuf {
        match number {
            1 => self.named("released", &self.extension),
            number => self.named(&format!("released.{number}"), &self.extension),
        }
    }

    /// The audit log.
    pub fn audit(&self) -> PathBuf {
        self.named("audit", "jsonl")
    }

    /// The journal, which is never a temporary.
    pub fn journal(&self) -> PathBuf {
        self.named("journal", "jsonl")
    }

    /// The summary, which appears last.
    pub fn summary(&self) -> PathBuf {
        self.named("summary", "json")
    }
}

/// One attempt at a run: no two write to one temporary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub run: RunId,
    pub epoch: u32,
}

impl Attempt {
    /// Where `target` is written before it is published: beside it, under a name that the same attempt finds again.
    pub(super) fn temporary_of(&self, target: &Path) -> PathBuf {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        target.with_file_name(format!(".{name}.{}.{}.tmp", self.run, self.epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_further_run_gets_one_number_for_all_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let next = || OutputNames::unused(folder.path(), "july", "csv").unwrap();
        assert_eq!(next().stem, "july");
        std::fs::write(folder.path().join("july.held.csv"), "").unwrap();
        assert_eq!(next().stem, "july.2");
        std::fs::write(folder.path().join("july.2.journal.jsonl"), "").unwrap();
        assert_eq!(next().summary().file_name().unwrap(), "july.3.summary.json");
        assert!(next().is_on("july") && !next().is_on("jul") && !next().is_on("july.") && !next().is_on("july.3.x"));
    }
}
