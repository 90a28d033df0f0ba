//! Names of a run's files: one number for all of them.

use std::path::{Path, PathBuf};

use super::OutputError;
use crate::domain::{Decision, RunId};

/// Most runs that share a name in one folder.
const NUMBER_MAX: u32 = 100_000;

/// The files of one run: a folder, a stem such as `july` or `july.2`, and the extension of files of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputNames {
    pub folder: PathBuf,
    pub stem: String,
    pub extension: String,
}

impl OutputNames {
    /// The first names on `stem` in `folder` that no file bears yet, and their number.
    pub fn unused(folder: &Path, stem: &str, extension: &str) -> Result<(Self, u32), OutputError> {
        for number in 1..=NUMBER_MAX {
            let stem = if number == 1 { stem.to_owned() } else { format!("{stem}.{number}") };
            let names = Self { folder: folder.to_owned(), stem, extension: extension.to_owned() };
            if names.all().iter().all(|path| path.symlink_metadata().is_err()) {
                return Ok((names, number));
            }
        }
        Err(OutputError::Occupied { path: folder.join(stem) })
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

/// Where `target` is written before `run` publishes it: beside it, under a name that a restart finds again.
pub(super) fn temporary_of(target: &Path, run: &RunId) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{run}.tmp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_further_run_gets_one_number_for_all_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let next = || OutputNames::unused(folder.path(), "july", "csv").unwrap();
        assert_eq!((next().0.stem.as_str(), next().1), ("july", 1));
        std::fs::write(folder.path().join("july.held.csv"), "").unwrap();
        assert_eq!((next().0.stem.as_str(), next().1), ("july.2", 2));
        std::fs::write(folder.path().join("july.2.journal.jsonl"), "").unwrap();
        assert_eq!(next().0.summary().file_name().unwrap(), "july.3.summary.json");
    }
}
