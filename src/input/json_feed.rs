//! JSON lines. The only file that knows how objects of a feed are parsed.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::io::Read;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::block::{FeedBlock, SkipRule};
use super::csv_feed::{BYTE_ORDER_MARK, is_blank};
use super::lines::{Cut, RECORD_BYTES_MAX, TOO_LONG, Window, physical_line};
use super::profile::{FieldReading, refuse_nul};
use super::{FeedReader, InputError, Profile};
use crate::domain::{Field, RejectReason};

/// A feed with a JSON object on every line.
pub(super) struct JsonFeed {
    window: Window,
    prologue: FeedBlock,
    cutter: Cutter,
}

struct Cutter {
    /// How each of the five fields is read, and from which key; none for a constant.
    fields: [(FieldReading, Option<String>); 5],
    line_number: u64,
}

impl JsonFeed {
    /// Opens the feed that `source` yields.
    pub(super) fn open(source: Box<dyn Read + Send>, feed: &str, profile: &Profile) -> Result<Self, InputError> {
        let mut window = Window::new(source, feed.to_owned());
        let mut prologue = FeedBlock::default();
        let fields = Field::ALL.map(|field| (profile.reading(field), profile.column(field).map(str::to_owned)));
        let mut is_document = false;
        window.next_block(&mut prologue, |block, _| {
            let mark = if block.raw.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
            is_document = block.raw[mark..].iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[');
            if mark > 0 {
                block.push_skipped(mark, 1, SkipRule::ByteOrderMark);
            }
            Cut::Prologue(mark)
        })?;
        if is_document {
            let reason = "the feed is one JSON array, and JSON lines are needed: an object on each line".to_owned();
            return Err(InputError::Unreadable { feed: feed.to_owned(), line: 1, reason, hint: None });
        }
        Ok(Self { window, prologue, cutter: Cutter { fields, line_number: 1 } })
    }
}

impl FeedReader for JsonFeed {
    fn prologue(&self) -> &FeedBlock {
        &self.prologue
    }

    fn read_block(&mut self, block: &mut FeedBlock) -> Result<bool, InputError> {
        let feed = self.window.feed.clone();
        let cutter = &mut self.cutter;
        self.window.next_block(block, |block, is_last| match cutter.cut(block, is_last) {
            Some(taken) => Cut::Taken(taken),
            None => Cut::Failed(InputError::endless(feed.clone(), cutter.line_number)),
        })
    }
}

impl Cutter {
    /// Cuts all complete lines of the block; says how many bytes they are, or none if a line has no end.
    fn cut(&mut self, block: &mut FeedBlock, is_last: bool) -> Option<usize> {
        let raw = std::mem::take(&mut block.raw);
        let mut at = 0;
        while at < raw.len() {
            let Some((content_len, len)) = physical_line(&raw[at..], is_last) else {
                if raw.len() - at > RECORD_BYTES_MAX {
                    return None;
                }
                break;
            };
            self.push_line(block, &raw[at..at + content_len], len);
            self.line_number += 1;
            at += len;
        }
        block.raw = raw;
        Some(at)
    }

    fn push_line(&self, block: &mut FeedBlock, content: &[u8], len: usize) {
        if is_blank(content) {
            return block.push_skipped(len, self.line_number, SkipRule::Blank);
        }
        if content.len() > RECORD_BYTES_MAX {
            return block.push_rejected(len, self.line_number, RejectReason::of_line(TOO_LONG));
        }
        match self.read_object(content) {
            Ok(values) => block.push_record(len, self.line_number, values.iter().map(AsRef::as_ref)),
            Err(reason) => block.push_rejected(len, self.line_number, reason),
        }
    }

    fn read_object<'a>(&'a self, content: &'a [u8]) -> Result<[Cow<'a, str>; 5], RejectReason> {
        let text = std::str::from_utf8(content).map_err(|_| RejectReason::of_line("the text is not UTF-8"))?;
        let mut found: [Option<&RawValue>; 5] = [None; 5];
        let mut json = serde_json::Deserializer::from_str(text);
        let outcome = json.deserialize_map(ObjectVisitor { cutter: self, found: &mut found }).and_then(|()| json.end());
        outcome.map_err(|error| RejectReason::of_line(words_of(&error)))?;
        let mut values = [const { Cow::Borrowed("") }; 5];
        for (field, value) in Field::ALL.into_iter().zip(&mut values) {
            let (reading, key) = &self.fields[field as usize];
            let reject = |reason: &str| RejectReason::of_field(field, key.clone(), reason);
            let cell = match (key, found[field as usize]) {
                (None, _) => Cow::Borrowed(""),
                (Some(_), None) => return Err(reject("the key is missing")),
                (Some(_), Some(raw)) => text_of(raw.get(), field).ok_or_else(|| reject("the value is no text"))?,
            };
            refuse_nul(&cell).map_err(reject)?;
            *value = match cell {
                Cow::Borrowed(cell) => reading.read(cell).map_err(reject)?,
                Cow::Owned(cell) => Cow::Owned(reading.read(&cell).map_err(reject)?.into_owned()),
            };
        }
        Ok(values)
    }
}

/// The text of a JSON value: of a string, or the digits of a number where the field may be one.
fn text_of(raw: &str, field: Field) -> Option<Cow<'_, str>> {
    match raw.as_bytes().first()? {
        b'"' => match raw.get(1..raw.len() - 1) {
            Some(plain) if !plain.contains('\\') => Some(Cow::Borrowed(plain)),
            _ => serde_json::from_str::<String>(raw).ok().map(Cow::Owned),
        },
        b'-' | b'0'..=b'9' => match field {
            Field::Amount | Field::AccountId | Field::BankTxnId => Some(Cow::Borrowed(raw)),
            Field::Currency | Field::PostedAt => None,
        },
        _ => None,
    }
}

fn words_of(error: &serde_json::Error) -> String {
    let words = error.to_string();
    let words = words.split(" at line ").next().unwrap_or(&words);
    match (error.is_data(), error.is_eof()) {
        (true, _) if words == REPEATED => words.to_owned(),
        // The library's words for these quote the value.
        (true, _) => "the line is no JSON object".to_owned(),
        (false, true) => "the line ends inside an object".to_owned(),
        // The library's words for these may change with it, and the audit log must not.
        (false, false) => format!("the line is no JSON at byte {}", error.column()),
    }
}

struct ObjectVisitor<'c, 'f, 'de> {
    cutter: &'c Cutter,
    found: &'f mut [Option<&'de RawValue>; 5],
}

impl<'de> Visitor<'de> for ObjectVisitor<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<Key<'de>>()? {
            let value: &'de RawValue = map.next_value()?;
            let places = self.cutter.fields.iter().position(|(_, name)| name.as_deref() == Some(key.0.as_ref()));
            if let Some(first) = places {
                for (found, (_, name)) in self.found.iter_mut().zip(&self.cutter.fields).skip(first) {
                    if name.as_deref() == Some(key.0.as_ref()) {
                        *found = Some(value);
                    }
                }
            }
            if matches!(value.get().as_bytes().first(), Some(b'{' | b'[')) {
                let mut nested = serde_json::Deserializer::from_str(value.get());
                WithoutRepeats.deserialize(&mut nested).map_err(|_| serde::de::Error::custom(REPEATED))?;
            }
            if !keys.insert(key.0) {
                return Err(serde::de::Error::custom(REPEATED));
            }
        }
        Ok(())
    }
}

const REPEATED: &str = "an object holds a key more than once";

/// A key, borrowed where it holds no escapes.
#[derive(PartialEq, Eq, Hash)]
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

/// Walks a value and fails where an object in it repeats a key.
struct WithoutRepeats;

impl<'de> DeserializeSeed<'de> for WithoutRepeats {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for WithoutRepeats {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            map.next_value_seed(Self)?;
            if !keys.insert(key) {
                return Err(serde::de::Error::custom(REPEATED));
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Self)?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}
