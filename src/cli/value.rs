//! The kinds of values a setting can have: how each is read, what it must be, how it is shown.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::number::grouped;
use crate::store::StoreLocation;

/// A value as it was found, before anything is known of its key.
#[derive(Debug, Clone)]
pub enum Raw<'a> {
    /// From a flag or a variable: words without a type.
    Words(&'a OsStr),
    /// From a file, with the folder that a relative path is meant from.
    Text(&'a str, &'a Path),
    Integer(i64),
    Boolean(bool),
    /// From a file: a kind that no key has, such as a list.
    Other,
}

impl<'a> Raw<'a> {
    fn text(&self) -> Option<&'a str> {
        match self {
            Self::Words(words) => words.to_str(),
            Self::Text(text, _) => Some(text),
            Self::Integer(_) | Self::Boolean(_) | Self::Other => None,
        }
    }

    fn words(&self) -> Option<&'a str> {
        match self {
            Self::Words(words) => words.to_str(),
            Self::Text(..) | Self::Integer(_) | Self::Boolean(_) | Self::Other => None,
        }
    }
}

/// Why a value is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It is not what the key wants.
    Unwanted,
    /// It is not, for this cause, and must not be shown: it may hold a password.
    Unshown(String),
}

/// A kind of value. What is out of its range cannot be built.
pub trait Value: Sized {
    /// What a value must be; it goes on after "give".
    fn wanted() -> String;

    /// What a value must be, for help texts; none where any will do.
    fn range() -> Option<String> {
        Some(Self::wanted())
    }

    /// Reads a value.
    fn read(raw: &Raw<'_>) -> Result<Self, Refusal>;

    /// The value for people and machines; never a secret.
    fn shown(&self) -> serde_json::Value;
}

/// A whole number from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Whole<MIN, MAX> {
    /// The number, if it is in range.
    pub fn new(number: u64) -> Option<Self> {
        (MIN..=MAX).contains(&number).then_some(Self(number))
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl<const MIN: u64, const MAX: u64> Value for Whole<MIN, MAX> {
    fn wanted() -> String {
        format!("a number from {} to {}", grouped(MIN), grouped(MAX))
    }

    fn read(raw: &Raw<'_>) -> Result<Self, Refusal> {
        let number = match raw {
            Raw::Integer(number) => u64::try_from(*number).ok(),
            Raw::Words(_) | Raw::Text(..) | Raw::Boolean(_) | Raw::Other => raw.words().and_then(whole),
        };
        number.and_then(Self::new).ok_or(Refusal::Unwanted)
    }

    fn shown(&self) -> serde_json::Value {
        self.0.into()
    }
}

/// The number in `text`: digits and nothing else, because a sign or a comma may mean that something else was meant.
fn whole(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}

/// A share of all records, in whole percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percent(u8);

impl Percent {
    /// The number of percent, 0 to 100.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl Value for Percent {
    fn wanted() -> String {
        "a percentage from 0 to 100".to_owned()
    }

    fn read(raw: &Raw<'_>) -> Result<Self, Refusal> {
        let number = match (raw, raw.text()) {
            (Raw::Integer(number), _) => u64::try_from(*number).ok(),
            // A text of a file is taken for the sake of its `%` only.
            (Raw::Text(..), Some(text)) => text.strip_suffix('%').and_then(whole),
            (_, Some(text)) => whole(text.strip_suffix('%').unwrap_or(text)),
            (_, None) => None,
        };
        let percent = number.and_then(|number| u8::try_from(number).ok()).filter(|percent| *percent <= 100);
        percent.map(Self).ok_or(Refusal::Unwanted)
    }

    fn shown(&self) -> serde_json::Value {
        self.0.into()
    }
}

impl Value for bool {
    fn wanted() -> String {
        "`true` or `false`".to_owned()
    }

    fn read(raw: &Raw<'_>) -> Result<Self, Refusal> {
        match (raw, raw.words()) {
            (Raw::Boolean(switch), _) => Ok(*switch),
            (_, Some("true")) => Ok(true),
            (_, Some("false")) => Ok(false),
            (_, Some(_) | None) => Err(Refusal::Unwanted),
        }
    }

    fn shown(&self) -> serde_json::Value {
        (*self).into()
    }
}

/// What happens to records while the store is out of reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailMode {
    /// The run stops, and goes on when it is repeated.
    Closed,
    /// Records are let through on the local check alone.
    Open,
}

impl Value for FailMode {
    fn wanted() -> String {
        "`closed` or `open`".to_owned()
    }

    fn read(raw: &Raw<'_>) -> Result<Self, Refusal> {
        match raw.text() {
            Some("closed") => Ok(Self::Closed),
            Some("open") => Ok(Self::Open),
            Some(_) | None => Err(Refusal::Unwanted),
        }
    }

    fn shown(&self) -> serde_json::Value {
        match self {
            Self::Closed => "closed".into(),
            Self::Open => "open".into(),
        }
    }
}

/// How claims are laid out in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A key a claim: plain writers can share the store.
    Shared,
    /// Many claims a key.
    Compact,
}

impl Value for Layout {
    fn wanted() -> String {
        "`shared` or `compact`".to_owned()
    }

    fn read(raw: &Raw<'_>) -> Result<Self, Refusal> {
        match raw.text() {
            Some("shared") => Ok(Self::Shared),
            Some("compact") => Ok(Self::Compact),
            Some(_) | None => Err(Refusal::Unwanted),
        }
    }

    fn shown(&self) -> serde_json::Value {
        match self {
            Self::Shared => "shared".into(),
            Self::Compact => "compact".into(),
        }
    }
}

/// A text that is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(String);

impl Text {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for Text {
    fn wanted() -> String {
        "a text that is not empty".to_owned()
    }

    fn range() -> Option<String> {
        None
    }

    fn read(raw: &Raw<'_>) -> Result<Self, Refusal> {
        let text = raw.text().filter(|text| !text.is_empty() && !text.chars().any(char::is_control));
        text.map(|text| Self(text.to_owned())).ok_or(Refusal::Unwanted)
    }

    fn shown(&self) -> serde_json::Value {
        self.0.clone().into()
    }
}

impl Value for PathBuf {
    fn wanted() -> String {
        "a path".to_owned()
    }

    fn range() -> Option<String> {
        None
    }

    fn read(raw: &Raw<'_>) -> Result<Self, Refusal> {
        match raw {
            Raw::Words(words) if !words.is_empty() => Ok(Self::from(words)),
            Raw::Text(text, folder) if !text.is_empty() => Ok(folder.join(text)),
            Raw::Words(_) | Raw::Text(..) | Raw::Integer(_) | Raw::Boolean(_) | Raw::Other => Err(Refusal::Unwanted),
        }
    }

    fn shown(&self) -> serde_json::Value {
        self.display().to_string().into()
    }
}

impl Value for StoreLocation {
    fn wanted() -> String {
        "`file:PATH` or `redis://HOST:PORT/DB`".to_owned()
    }

    fn read(raw: &Raw<'_>) -> Result<Self, Refusal> {
        let Some(text) = raw.text() else { return Err(Refusal::Unshown("it is no text".to_owned())) };
        let location = Self::parse(text).map_err(|cause| Refusal::Unshown(cause.to_string()))?;
        match (location, raw) {
            (Self::File(path), Raw::Text(_, folder)) => Ok(Self::File(folder.join(path))),
            (location, _) => Ok(location),
        }
    }

    fn shown(&self) -> serde_json::Value {
        self.address().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_only_and_come_from_files_as_numbers() {
        type Small = Whole<1, 10_000>;
        let words = |text| Small::read(&Raw::Words(OsStr::new(text))).map(Whole::get);
        assert_eq!(words("10000"), Ok(10_000));
        for bad in ["", "0", "10001", "+5", "-5", "1_000", "1,000", "5.0", " 5", "0x5", "99999999999999999999"] {
            assert_eq!(words(bad), Err(Refusal::Unwanted), "{bad}");
        }
        assert_eq!(Small::read(&Raw::Integer(7)).map(Whole::get), Ok(7));
        assert!(Small::read(&Raw::Integer(-7)).is_err());
        assert!(Small::read(&Raw::Text("7", Path::new(""))).is_err());
        assert_eq!(Small::wanted(), "a number from 1 to 10,000");
    }

    #[test]
    fn a_percentage_may_have_its_sign() {
        for good in [Raw::Words(OsStr::new("50")), Raw::Words(OsStr::new("50%")), Raw::Integer(50)] {
            assert_eq!(Percent::read(&good).map(Percent::get), Ok(50));
        }
        assert!(Percent::read(&Raw::Text("50%", Path::new(""))).is_ok());
        for bad in ["101", "-1", "5.5", "%", "50 %", ""] {
            assert!(Percent::read(&Raw::Words(OsStr::new(bad))).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_of_a_file_are_meant_from_its_folder() {
        let raw = Raw::Text("profiles/a.toml", Path::new("/etc/x"));
        assert_eq!(PathBuf::read(&raw), Ok(PathBuf::from("/etc/x/profiles/a.toml")));
        let raw = Raw::Text("file:store", Path::new("/etc/x"));
        assert_eq!(StoreLocation::read(&raw), Ok(StoreLocation::File("/etc/x/store".into())));
        let raw = Raw::Text("file:/srv/store", Path::new("/etc/x"));
        assert_eq!(StoreLocation::read(&raw), Ok(StoreLocation::File("/srv/store".into())));
    }
}
