//! The canonical form and the hashes of every record of a feed, for eyes and for other writers.

use super::error::IngestError;
use super::feed_file::FeedFile;
use super::hasher::reject_of;
use crate::domain::{Canonicalizer, IdentityHash, Interrupt, RejectReason, SourceHash};
use crate::input::{FeedBlock, LineContent, Profile};

/// A record of a feed, or why it is none.
#[derive(Debug)]
pub struct HashedRow<'a> {
    pub row: u64,
    pub line_number: u64,
    /// Canonical JSON and both hashes.
    pub form: Result<(&'a str, SourceHash, IdentityHash), RejectReason>,
}

/// Calls `act` for every record of `feed`, in order; stops when it says no, and fails once it is interrupted.
pub fn list_hashes(
    feed: &FeedFile,
    profile: &Profile,
    interrupt: &Interrupt,
    mut act: impl FnMut(HashedRow<'_>) -> bool,
) -> Result<(), IngestError> {
    let opened = feed.reader(profile);
    // That a pipe could not be read to its end is not what happened if it was interrupted.
    feed.check_interrupt(interrupt)?;
    let (_, mut reader) = opened?;
    let mut canonicalizer = Canonicalizer::new(profile.zone.clone());
    let mut block = FeedBlock::default();
    let mut row = 0;
    loop {
        let read = reader.read_block(&mut block);
        feed.check_interrupt(interrupt)?;
        if !read? {
            return Ok(());
        }
        for line in &block.lines {
            if let LineContent::Skipped(_) = line.content {
                continue;
            }
            row += 1;
            let line_number = line.line_number;
            let goes_on = match (&line.content, block.fields(&line.content)) {
                (LineContent::Rejected(reason), _) => {
                    act(HashedRow { row, line_number, form: Err((**reason).clone()) })
                }
                (_, Some(raw)) => match canonicalizer.form(&raw) {
                    Ok(form) => {
                        let form = Ok((form.json(), form.source_hash(), form.identity_hash()));
                        act(HashedRow { row, line_number, form })
                    }
                    Err(field) => {
                        let form = Err(reject_of(field, profile));
                        act(HashedRow { row, line_number, form })
                    }
                },
                (LineContent::Fields { .. } | LineContent::Skipped(_), None) => true,
            };
            if !goes_on {
                return Ok(());
            }
        }
    }
}
