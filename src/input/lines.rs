//! Physical lines, and the window over a feed that they are cut from.

use std::io::Read;

use super::{FeedBlock, InputError};

/// Bytes that a block is filled with at a time.
pub(super) const BLOCK_BYTES: usize = 256 * 1024;

/// The longest record, in bytes. A longer one is an unbalanced quote mark or no statement.
pub(super) const RECORD_BYTES_MAX: usize = 1024 * 1024;

/// What is said of a record beyond that limit.
pub(super) const TOO_LONG: &str = "the record is longer than 1 MiB";

/// What is said of a physical line that goes on far beyond that limit.
pub(super) const ENDLESS: &str = "the line is longer than 1 MiB, which no statement has";

/// Where the line end that begins at `at` stops; `None` if more bytes may belong to it.
///
/// LF, CR LF, CR CR LF and a lone CR each end one line.
pub(super) fn line_end_after(bytes: &[u8], at: usize, is_last: bool) -> Option<usize> {
    if bytes[at] == b'\n' {
        return Some(at + 1);
    }
    match (bytes.get(at + 1), bytes.get(at + 2)) {
        (Some(b'\n'), _) => Some(at + 2),
        (Some(b'\r'), Some(b'\n')) => Some(at + 3),
        (Some(b'\r'), None) | (None, _) if !is_last => None,
        _ => Some(at + 1),
    }
}

/// A physical line at the start of `bytes`: without and with its line end; `None` if it is not complete.
pub(super) fn physical_line(bytes: &[u8], is_last: bool) -> Option<(usize, usize)> {
    match memchr::memchr2(b'\n', b'\r', bytes) {
        Some(at) => Some((at, line_end_after(bytes, at, is_last)?)),
        None if is_last => Some((bytes.len(), bytes.len())),
        None => None,
    }
}

/// How many lines end within `bytes`, which ends where a line does.
pub(super) fn count_line_ends(bytes: &[u8]) -> u64 {
    let mut count = 0;
    let mut at = 0;
    while let Some(found) = memchr::memchr2(b'\n', b'\r', &bytes[at..]) {
        at = line_end_after(bytes, at + found, true).expect("the last bytes have a line end that stops");
        count += 1;
    }
    count
}

/// A feed, read forward in blocks that end where a line does.
pub(super) struct Window {
    source: Box<dyn Read + Send>,
    /// The feed's name in errors.
    pub(super) feed: String,
    /// Bytes that were read and belong to no line yet.
    rest: Vec<u8>,
    /// Where `rest` starts in the feed.
    offset: u64,
    at_end: bool,
}

/// How much of the bytes offered was cut into lines.
pub(super) enum Cut {
    /// This many bytes; the rest is not complete.
    Taken(usize),
    /// This many bytes, which may be none, stand before the first line.
    Prologue(usize),
    /// Nothing can be cut from the feed any more.
    Failed(InputError),
}

impl Window {
    pub(super) fn new(source: Box<dyn Read + Send>, feed: String) -> Self {
        Self { source, feed, rest: Vec::new(), offset: 0, at_end: false }
    }

    /// Fills `block` with the next bytes and lets `cut` make lines of them, until it makes at least one.
    ///
    /// `cut` gets the block, whose `raw` holds the bytes, and whether they are the feed's last.
    pub(super) fn next_block(
        &mut self,
        block: &mut FeedBlock,
        mut cut: impl FnMut(&mut FeedBlock, bool) -> Cut,
    ) -> Result<bool, InputError> {
        block.restart(self.offset, BLOCK_BYTES);
        block.raw.extend_from_slice(&self.rest);
        let mut wanted = BLOCK_BYTES;
        loop {
            self.read_up_to(&mut block.raw, wanted)?;
            if block.raw.is_empty() {
                return Ok(false);
            }
            let (taken, is_done) = match cut(block, self.at_end) {
                Cut::Taken(taken) => (taken, taken > 0),
                Cut::Prologue(taken) => (taken, true),
                Cut::Failed(error) => return Err(error),
            };
            if is_done {
                self.rest.clear();
                self.rest.extend_from_slice(&block.raw[taken..]);
                block.raw.truncate(taken);
                self.offset += taken as u64;
                return Ok(true);
            }
            // One record fills the block: give it room, up to twice the limit that the cutters enforce.
            assert!(block.raw.len() <= 2 * RECORD_BYTES_MAX, "a cutter must not wait beyond the record limit");
            wanted = block.raw.len() + BLOCK_BYTES;
        }
    }

    fn read_up_to(&mut self, raw: &mut Vec<u8>, wanted: usize) -> Result<(), InputError> {
        while raw.len() < wanted && !self.at_end {
            let missing = (wanted - raw.len()) as u64;
            let read = (&mut self.source).take(missing).read_to_end(raw).map_err(|source| InputError::Read {
                feed: self.feed.clone(),
                offset: self.offset + raw.len() as u64,
                source,
            })?;
            self.at_end = (read as u64) < missing;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_line_end_ends_one_line() {
        assert_eq!(count_line_ends(b"a\nb\r\nc\r\r\nd\re\n\n"), 6);
        assert_eq!(physical_line(b"a\r", false), None, "a line feed may follow");
        assert_eq!(physical_line(b"a\r\r", false), None, "a line feed may follow");
        assert_eq!(physical_line(b"a\r\rb", false), Some((1, 2)));
        assert_eq!(physical_line(b"a\r\r\nb", false), Some((1, 4)));
        assert_eq!(physical_line(b"a", false), None);
        assert_eq!(physical_line(b"a", true), Some((1, 1)));
    }
}
