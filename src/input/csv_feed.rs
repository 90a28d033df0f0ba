//! CSV feeds. The only file that knows `csv-core`.

use std::io::Read;

use super::block::{FeedBlock, SkipRule};
use super::csv_split::{Dialect, Split, split};
use super::lines::{Cut, ENDLESS, Window, count_line_ends};
use super::profile::{FieldReading, refuse_nul};
use super::{FeedReader, InputError, Profile};
use crate::domain::{Field, RejectReason};

/// Most columns of a feed.
const COLUMNS_MAX: usize = 1_000;

/// UTF-8's byte order mark.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A CSV feed whose first line names its columns.
pub(super) struct CsvFeed {
    window: Window,
    prologue: FeedBlock,
    cutter: Cutter,
}

/// Makes lines of bytes.
struct Cutter {
    dialect: Dialect,
    header: Vec<String>,
    /// How each of the five fields is read, and from which column; none for a constant.
    fields: [(FieldReading, Option<usize>); 5],
    line_number: u64,
    parser: csv_core::Reader,
    /// Scratch: the unquoted text of one record, and where its fields end.
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl CsvFeed {
    /// Opens the feed that `source` yields: reads its header and finds the columns that `profile` names.
    pub(super) fn open(source: Box<dyn Read + Send>, feed: &str, profile: &Profile) -> Result<Self, InputError> {
        let dialect = Dialect { delimiter: profile.delimiter, quote: b'"' };
        let mut window = Window::new(source, feed.to_owned());
        let mut prologue = FeedBlock::default();
        let mut cutter = Cutter {
            dialect,
            header: Vec::new(),
            fields: Field::ALL.map(|field| (profile.reading(field), None)),
            line_number: 1,
            parser: csv_core::ReaderBuilder::new().delimiter(dialect.delimiter).quote(dialect.quote).build(),
            text: Vec::new(),
            ends: Vec::new(),
        };
        let unreadable = |line, reason: String, hint: Option<String>| InputError::Unreadable {
            feed: feed.to_owned(),
            line,
            reason,
            hint,
        };
        let found = window.next_block(&mut prologue, |block, is_last| match cutter.cut_header(block, is_last) {
            Ok(taken) => Cut::Taken(taken),
            Err((line, reason)) => Cut::Failed(unreadable(line, reason, None)),
        })?;
        if !found {
            return Err(unreadable(0, "the feed is empty and has no header".into(), None));
        }
        cutter.find_columns(profile).map_err(|(reason, hint)| unreadable(cutter.line_number - 1, reason, hint))?;
        Ok(Self { window, prologue, cutter })
    }
}

impl FeedReader for CsvFeed {
    fn prologue(&self) -> &FeedBlock {
        &self.prologue
    }

    fn read_block(&mut self, block: &mut FeedBlock) -> Result<bool, InputError> {
        let cutter = &mut self.cutter;
        let feed = self.window.feed.clone();
        self.window.next_block(block, |block, is_last| match cutter.cut(block, is_last) {
            Some(taken) => Cut::Taken(taken),
            None => Cut::Failed(InputError::endless(feed.clone(), cutter.line_number)),
        })
    }
}

impl Cutter {
    /// Cuts the header off the block: a byte order mark, blank lines, and the line of names.
    fn cut_header(&mut self, block: &mut FeedBlock, is_last: bool) -> Result<usize, (u64, String)> {
        let raw = std::mem::take(&mut block.raw);
        let mut at = 0;
        let mut lines = FeedBlock::default();
        if raw.starts_with(BYTE_ORDER_MARK) {
            at = BYTE_ORDER_MARK.len();
            lines.push_skipped(at, self.line_number, SkipRule::ByteOrderMark);
        }
        let mut line_number = self.line_number;
        while at < raw.len() {
            match split(&raw[at..], is_last, self.dialect, 0) {
                Split::Incomplete => {
                    block.raw = raw;
                    return Ok(0);
                }
                Split::Broken { reason, .. } => {
                    return Err((line_number, format!("the header cannot be read: {reason}")));
                }
                Split::Endless => return Err((line_number, ENDLESS.into())),
                Split::Record { content_len, len, .. } => {
                    let content = &raw[at..at + content_len];
                    let is_blank = is_blank(content);
                    let rule = if is_blank { SkipRule::Blank } else { SkipRule::Header };
                    lines.push_skipped(len, line_number, rule);
                    if !is_blank {
                        self.header = self.header_names(content).ok_or((line_number, not_utf8()))?;
                    }
                    line_number += count_line_ends(&raw[at..at + len]).max(1);
                    at += len;
                    if !is_blank {
                        break;
                    }
                }
            }
        }
        self.line_number = line_number;
        block.raw = raw;
        block.lines = lines.lines;
        if self.header.is_empty() {
            return Err((0, "the feed has no header".into()));
        }
        if self.header.len() > COLUMNS_MAX {
            return Err((line_number - 1, format!("the header has more than {COLUMNS_MAX} columns")));
        }
        Ok(at)
    }

    fn header_names(&mut self, content: &[u8]) -> Option<Vec<String>> {
        std::str::from_utf8(content).ok()?;
        self.unquote(content);
        let mut from = 0;
        let mut names = Vec::new();
        for &end in &self.ends {
            names.push(std::str::from_utf8(&self.text[from..end]).ok()?.trim().to_owned());
            from = end;
        }
        Some(names)
    }

    fn find_columns(&mut self, profile: &Profile) -> Result<(), (String, Option<String>)> {
        let is_known = |field| profile.column(field).is_some_and(|name| self.header.iter().any(|known| known == name));
        let known = Field::ALL.into_iter().filter(|field| is_known(*field)).count();
        let wanted = Field::ALL.into_iter().filter(|field| profile.column(*field).is_some()).count();
        if known == 0 || (known == 1 && wanted > 2) {
            // The names are not listed: what was taken for a header may be a payment.
            let hint = "name the feed's own columns in a profile and give it with `--profile`".to_owned();
            return Err(("the first line is no header with the columns that are needed".to_owned(), Some(hint)));
        }
        for (field, (_, column)) in Field::ALL.into_iter().zip(&mut self.fields) {
            let Some(name) = profile.column(field) else { continue };
            let mut places = self.header.iter().enumerate().filter(|(_, known)| *known == name).map(|(index, _)| index);
            let place = places.next().ok_or_else(|| {
                let hint = format!("the header has {}", listed(&self.header));
                (format!("there is no column `{name}` for `{}`", field.name()), Some(hint))
            })?;
            if places.next().is_some() {
                let hint = "name a column that stands there once, or give the field as a constant".to_owned();
                return Err((format!("the header names `{name}` more than once"), Some(hint)));
            }
            *column = Some(place);
        }
        Ok(())
    }

    /// Cuts all complete lines of the block; says how many bytes they are, or none if a line has no end.
    fn cut(&mut self, block: &mut FeedBlock, is_last: bool) -> Option<usize> {
        let raw = std::mem::take(&mut block.raw);
        let mut at = 0;
        while at < raw.len() {
            let (len, line_ends) = match split(&raw[at..], is_last, self.dialect, self.header.len()) {
                Split::Incomplete => break,
                Split::Endless => return None,
                Split::Broken { len, field_index, reason } => {
                    let column = self.header.get(field_index).cloned();
                    block.push_rejected(
                        len,
                        self.line_number,
                        RejectReason { field: None, column, reason: reason.into() },
                    );
                    (len, 1)
                }
                Split::Record { content_len, len, is_quoted } => {
                    self.push_line(block, &raw[at..at + content_len], len, is_quoted);
                    (len, if is_quoted { count_line_ends(&raw[at..at + len]).max(1) } else { 1 })
                }
            };
            self.line_number += line_ends;
            at += len;
        }
        block.raw = raw;
        Some(at)
    }

    fn push_line(&mut self, block: &mut FeedBlock, content: &[u8], len: usize, is_quoted: bool) {
        if is_blank(content) {
            return block.push_skipped(len, self.line_number, SkipRule::Blank);
        }
        let line_number = self.line_number;
        let text = match std::str::from_utf8(content) {
            Ok(text) => text,
            Err(error) => {
                let before = &content[..error.valid_up_to()];
                let index = memchr::memchr_iter(self.dialect.delimiter, before).count();
                let column = self.header.get(index).cloned();
                return block.push_rejected(len, line_number, RejectReason { field: None, column, reason: not_utf8() });
            }
        };
        if content.starts_with(BYTE_ORDER_MARK) {
            let reason = RejectReason::of_line("a byte order mark stands inside the feed");
            return block.push_rejected(len, line_number, reason);
        }
        if is_quoted {
            self.unquote(content);
        } else {
            self.ends.clear();
            self.ends.extend(memchr::memchr_iter(self.dialect.delimiter, content));
            self.ends.push(content.len());
        }
        if self.ends.len() != self.header.len() {
            let columns = |count: usize| if count == 1 { "1 column".to_owned() } else { format!("{count} columns") };
            let reason = format!("the row has {} where the header has {}", columns(self.ends.len()), self.header.len());
            return block.push_rejected(len, line_number, RejectReason::of_line(reason));
        }
        let unquoted = if is_quoted { std::str::from_utf8(&self.text).unwrap_or_default() } else { text };
        // Without quotes the delimiters still stand between the fields.
        let gap = usize::from(!is_quoted);
        let ends = &self.ends;
        let cell = |index: usize| {
            let from = if index == 0 { 0 } else { ends[index - 1] + gap };
            &unquoted[from..ends[index]]
        };
        // One look at the whole line: hardly any line holds one.
        let has_nul = memchr::memchr(0, content).is_some();
        let values = [0, 1, 2, 3, 4].map(|place: usize| {
            let (reading, column) = &self.fields[place];
            let cell = column.map_or("", cell);
            reading.read(if has_nul { refuse_nul(cell)? } else { cell })
        });
        for (field, value) in Field::ALL.into_iter().zip(&values) {
            if let Err(reason) = value {
                let column = self.fields[field as usize].1.map(|index| self.header[index].clone());
                return block.push_rejected(len, line_number, RejectReason::of_field(field, column, *reason));
            }
        }
        block.push_record(len, line_number, values.iter().map(|value| value.as_deref().unwrap_or_default()));
    }

    /// Splits a record into its fields, quote marks removed: `text` and `ends`.
    fn unquote(&mut self, content: &[u8]) {
        self.parser.reset();
        self.text.resize(content.len(), 0);
        self.ends.resize(COLUMNS_MAX + 1, 0);
        let (mut read, mut written, mut fields) = (0, 0, 0);
        loop {
            let (state, took, wrote, ended) =
                self.parser.read_record(&content[read..], &mut self.text[written..], &mut self.ends[fields..]);
            read += took;
            written += wrote;
            fields += ended;
            match state {
                // The end of the content is told by an empty input.
                csv_core::ReadRecordResult::InputEmpty => {}
                csv_core::ReadRecordResult::Record | csv_core::ReadRecordResult::End => break,
                // More fields than columns are allowed: the count says so.
                csv_core::ReadRecordResult::OutputFull | csv_core::ReadRecordResult::OutputEndsFull => break,
            }
        }
        self.text.truncate(written);
        self.ends.truncate(fields);
    }
}

fn not_utf8() -> String {
    "the text is not UTF-8".to_owned()
}

/// Whether a line holds nothing but blanks.
pub(super) fn is_blank(content: &[u8]) -> bool {
    content.iter().all(|b| matches!(b, b' ' | b'\t'))
}

/// Names in backticks, with commas.
fn listed(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
