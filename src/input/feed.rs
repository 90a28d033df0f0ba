//! Which reader a feed gets.

use std::io::{BufRead, BufReader, ErrorKind, Read};

use super::csv_feed::CsvFeed;
use super::json_feed::JsonFeed;
use super::{FeedReader, InputError, Profile};

/// A format of feeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Csv,
    JsonLines,
}

/// One row a format: its name in profiles, and the file name extensions that mean it.
///
/// A new row needs a variant of `Format`, a `<name>_feed.rs` with its reader, an arm of `open_feed`, and a feed in
/// `fixtures/feeds`.
pub const FORMATS: [(Format, &str, &[&str]); 2] =
    [(Format::Csv, "csv", &["csv"]), (Format::JsonLines, "jsonl", &["jsonl", "ndjson"])];

impl Format {
    /// The format's name in profiles, and the extension of its outputs where the feed has none.
    pub fn name(self) -> &'static str {
        FORMATS.iter().find(|(format, ..)| *format == self).map_or("csv", |(_, name, _)| name)
    }

    /// The format of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        FORMATS.iter().find(|(_, known, _)| *known == name).map(|(format, ..)| *format)
    }

    /// The format that files with this extension have.
    pub fn from_extension(extension: &str) -> Option<Self> {
        let extension = extension.to_ascii_lowercase();
        FORMATS.iter().find(|(.., known)| known.contains(&extension.as_str())).map(|(format, ..)| *format)
    }
}

/// Opens a feed: by the profile's format, else by the extension, else by its first character.
pub fn open_feed(
    source: Box<dyn Read + Send>,
    feed: &str,
    extension: Option<&str>,
    profile: &Profile,
) -> Result<(Format, Box<dyn FeedReader>), InputError> {
    let mut source = BufReader::with_capacity(64 * 1024, source);
    while let Err(source) = source.fill_buf() {
        // A read that a signal breaks off is made again.
        if source.kind() != ErrorKind::Interrupted {
            return Err(InputError::Read { feed: feed.to_owned(), offset: 0, source });
        }
    }
    let start = source.buffer();
    refuse_other_encodings(start, feed)?;
    let named = profile.format.or_else(|| extension.and_then(Format::from_extension));
    let format = named.unwrap_or_else(|| match first_character(start) {
        Some(b'{') => Format::JsonLines,
        _ => Format::Csv,
    });
    let source: Box<dyn Read + Send> = Box::new(source);
    let reader: Box<dyn FeedReader> = match format {
        Format::Csv => Box::new(CsvFeed::open(source, feed, profile)?),
        Format::JsonLines => Box::new(JsonFeed::open(source, feed, profile)?),
    };
    Ok((format, reader))
}

fn first_character(start: &[u8]) -> Option<u8> {
    let start = start.strip_prefix(super::csv_feed::BYTE_ORDER_MARK).unwrap_or(start);
    start.iter().copied().find(|b| !b.is_ascii_whitespace())
}

/// What is recognisably something else is refused as a whole, with words for what it is.
fn refuse_other_encodings(start: &[u8], feed: &str) -> Result<(), InputError> {
    let found = match start {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "the text is UTF-16, and UTF-8 is needed",
        [0x1f, 0x8b, ..] => "the file is compressed with gzip, which this version does not read",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "the file is compressed with zstd, which this version does not read",
        [b'P', b'K', 3, 4, ..] => "the file is a zip archive or a spreadsheet, and text is needed",
        [b'%', b'P', b'D', b'F', ..] => "the file is a PDF, and text is needed",
        [b'<', ..] => "the file is XML or HTML, which this version does not read",
        _ => return Ok(()),
    };
    let hint = Some("convert it, or ask the bank for CSV in UTF-8".to_owned());
    Err(InputError::Unreadable { feed: feed.to_owned(), line: 0, reason: found.to_owned(), hint })
}
