//! Feeds in, records with their exact bytes out.
//!
//! A reader cuts a feed into lines that tile it: every byte belongs to exactly one. What a line means is decided
//! here as far as text goes; whether its fields make a record is for [`crate::domain`] to say.

mod block;
mod csv_feed;
mod csv_split;
mod error;
mod feed;
mod json_feed;
mod lines;
mod profile;
#[cfg(test)]
mod tests;

pub use block::{FeedBlock, FeedLine, LineContent, SkipRule};
pub use error::InputError;
pub use feed::{FORMATS, Format, open_feed};
pub use profile::{Profile, ProfileError};

/// Reads a feed from its start to its end.
pub trait FeedReader: Send {
    /// The bytes before the first line that may be a record: byte order mark, header.
    fn prologue(&self) -> &FeedBlock;

    /// Replaces `block` by the next lines of the feed; false at the end, with `block` empty.
    fn read_block(&mut self, block: &mut FeedBlock) -> Result<bool, InputError>;
}
