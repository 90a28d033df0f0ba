//! A file of records for each decision, each beginning as the feed does.

use super::{Attempt, HashedFile, OutputError, OutputNames};
use crate::domain::{Decision, OutputRecord};

/// The files of records of one run.
#[derive(Debug)]
pub struct DecisionFiles {
    names: OutputNames,
    attempt: Attempt,
    /// The feed's bytes before its first line.
    prologue: Vec<u8>,
    /// In the order of `Decision::ALL`; one that shares its file with another decision has none of its own.
    files: [Option<HashedFile>; 6],
}

impl DecisionFiles {
    /// Creates the files that exist even without records: accepted and suppressed.
    pub fn create(names: &OutputNames, attempt: &Attempt, prologue: &[u8]) -> Result<Self, OutputError> {
        let prologue = prologue.to_vec();
        let mut files = Self { names: names.clone(), attempt: attempt.clone(), prologue, files: Default::default() };
        files.file(Decision::Accepted)?;
        files.file(Decision::Suppressed)?;
        Ok(files)
    }

    fn file(&mut self, decision: Decision) -> Result<&mut HashedFile, OutputError> {
        // Let through unverified, records are accepted ones all the same.
        let place = if decision == Decision::Unverified { Decision::Accepted } else { decision }.index();
        if self.files[place].is_none() {
            let mut file = HashedFile::create(&self.names.records(decision), &self.attempt)?;
            file.write(&self.prologue)?;
            self.files[place] = Some(file);
        }
        Ok(self.files[place].as_mut().expect("it was made above"))
    }

    /// Appends a record's own bytes to the file of `decision`.
    pub fn write(&mut self, decision: Decision, record: &[u8]) -> Result<(), OutputError> {
        self.file(decision)?.write(record)
    }

    /// The files that exist by now.
    pub fn open_files(&self) -> impl Iterator<Item = &HashedFile> {
        self.files.iter().flatten()
    }

    /// Writes and syncs what is left; says what each file holds.
    pub fn finish(self) -> Result<Vec<OutputRecord>, OutputError> {
        self.files.into_iter().flatten().map(HashedFile::finish).collect()
    }
}
