//! How a bank writes: format, columns, marks and dates.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, Timelike};
use serde::Deserialize;

use super::Format;
use crate::domain::{Canonicalizer, Digest, Field, RawRecord, Zone};

/// Where the value of a field comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldOrigin {
    /// The column, or the key, of this name.
    Column(String),
    /// The same for every record.
    Constant(String),
}

/// How the lines of a feed are read.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The format, where the profile says it; else the feed's name and first byte do.
    pub format: Option<Format>,
    pub delimiter: u8,
    pub decimal_mark: char,
    pub date_format: Option<String>,
    /// Where a time without offset is read.
    pub zone: Zone,
    zone_name: String,
    origins: [FieldOrigin; 5],
}

/// Why a profile says nothing that can be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileError {
    /// The line of the file, from 1; 0 where it is not known.
    pub line: u64,
    pub reason: String,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for ProfileError {}

/// The file, as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    format: Option<toml::Spanned<String>>,
    delimiter: Option<toml::Spanned<String>>,
    decimal_mark: Option<toml::Spanned<String>>,
    date_format: Option<toml::Spanned<String>>,
    timezone: Option<toml::Spanned<String>>,
    #[serde(default)]
    columns: BTreeMap<toml::Spanned<String>, String>,
    #[serde(default)]
    constants: BTreeMap<toml::Spanned<String>, String>,
}

impl Default for Profile {
    /// The canonical feed: comma, point, ISO dates, columns named after the fields.
    fn default() -> Self {
        Self {
            format: None,
            delimiter: b',',
            decimal_mark: '.',
            date_format: None,
            zone: Zone::default(),
            zone_name: "UTC".to_owned(),
            origins: Field::ALL.map(|field| FieldOrigin::Column(field.name().to_owned())),
        }
    }
}

impl Profile {
    /// Reads a profile from TOML.
    pub fn from_toml(text: &str) -> Result<Self, ProfileError> {
        let line_of =
            |at: usize| text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count() as u64 + 1;
        let file: ProfileFile = toml::from_str(text).map_err(|error| ProfileError {
            line: error.span().map_or(0, |span| line_of(span.start)),
            reason: error.message().trim().replace('\n', "; "),
        })?;
        let mut profile = Self::default();
        let fault = |span: std::ops::Range<usize>, reason: String| ProfileError { line: line_of(span.start), reason };
        if let Some(format) = &file.format {
            let known = Format::from_name(format.get_ref());
            let reason = || format!("`{}` is no format; there are `csv` and `jsonl`", format.get_ref());
            profile.format = Some(known.ok_or_else(|| fault(format.span(), reason()))?);
        }
        if let Some(mark) = &file.delimiter {
            profile.delimiter = delimiter_of(mark.get_ref()).map_err(|reason| fault(mark.span(), reason))?;
        }
        if let Some(mark) = &file.decimal_mark {
            profile.decimal_mark = match mark.get_ref().as_str() {
                "." => '.',
                "," => ',',
                other => {
                    return Err(fault(mark.span(), format!("`{other}` is no decimal mark; there are `.` and `,`")));
                }
            };
        }
        if let Some(format) = &file.date_format {
            check_date_format(format.get_ref()).map_err(|reason| fault(format.span(), reason))?;
            profile.date_format = Some(format.get_ref().clone());
        }
        if let Some(name) = &file.timezone {
            profile.zone = Zone::named(name.get_ref()).map_err(|error| fault(name.span(), error.to_string()))?;
            profile.zone_name = name.get_ref().clone();
        }
        for (name, column) in &file.columns {
            let field = field_named(name.get_ref()).map_err(|reason| fault(name.span(), reason))?;
            if column.trim().is_empty() {
                return Err(fault(name.span(), format!("the column of `{}` has no name", field.name())));
            }
            profile.origins[field as usize] = FieldOrigin::Column(column.trim().to_owned());
        }
        for (name, value) in &file.constants {
            let field = field_named(name.get_ref()).map_err(|reason| fault(name.span(), reason))?;
            if file.columns.keys().any(|column| column.get_ref() == name.get_ref()) {
                return Err(fault(name.span(), format!("`{}` is both a column and a constant", field.name())));
            }
            check_constant(field, value).map_err(|reason| fault(name.span(), reason))?;
            profile.origins[field as usize] = FieldOrigin::Constant(value.clone());
        }
        Ok(profile)
    }

    /// The column or key that `field` is read from; none for a constant.
    pub fn column(&self, field: Field) -> Option<&str> {
        match &self.origins[field as usize] {
            FieldOrigin::Column(name) => Some(name),
            FieldOrigin::Constant(_) => None,
        }
    }

    /// How the text of `field` becomes canonical text.
    pub(super) fn reading(&self, field: Field) -> FieldReading {
        if let FieldOrigin::Constant(value) = &self.origins[field as usize] {
            return FieldReading::Constant(value.clone());
        }
        match (field, &self.date_format) {
            (Field::Amount, _) if self.decimal_mark == ',' => FieldReading::CommaAmount,
            (Field::PostedAt, Some(format)) => FieldReading::Date(DateFormat::new(format.clone())),
            _ => FieldReading::Text,
        }
    }

    /// SHA-256 over all that changes what a feed's lines mean; how the file is written does not count.
    pub fn meaning(&self) -> Digest {
        let mut text = format!(
            "feeddedup profile 1\n{:?}\n{}\n{}\n{:?}\n{}\n",
            self.format.map(Format::name),
            self.delimiter,
            self.decimal_mark,
            self.date_format,
            self.zone_name
        );
        for origin in &self.origins {
            let (kind, value) = match origin {
                FieldOrigin::Column(name) => ("column", name),
                FieldOrigin::Constant(value) => ("constant", value),
            };
            text.push_str(&format!("{kind} {value:?}\n"));
        }
        Digest::of(text.as_bytes())
    }
}

fn field_named(name: &str) -> Result<Field, String> {
    let found = Field::ALL.into_iter().find(|field| field.name() == name);
    found.ok_or_else(|| format!("`{name}` is no field; there are {}", Field::ALL.map(Field::name).join(", ")))
}

/// A constant is read as a cell would be, so it must have a canonical form by itself.
fn check_constant(field: Field, value: &str) -> Result<(), String> {
    let sound = RawRecord { account_id: "A", bank_txn_id: "1", amount: "1", currency: "EUR", posted_at: "2026-07-15" };
    let raw = match field {
        Field::AccountId => RawRecord { account_id: value, ..sound },
        Field::BankTxnId => RawRecord { bank_txn_id: value, ..sound },
        Field::Amount => RawRecord { amount: value, ..sound },
        Field::Currency => RawRecord { currency: value, ..sound },
        Field::PostedAt => RawRecord { posted_at: value, ..sound },
    };
    match Canonicalizer::default().form(&raw) {
        Ok(_) => Ok(()),
        Err(field) => Err(format!("the constant of `{}` cannot be used: {}", field.name(), field.complaint())),
    }
}

fn delimiter_of(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [b'"' | b'\n' | b'\r' | b' ' | b'0'..=b'9' | b'.' | b'-' | b'+'] => {
            Err(format!("`{text}` cannot be a delimiter"))
        }
        [byte] if byte.is_ascii() => Ok(*byte),
        _ => Err(format!("`{text}` cannot be a delimiter: one ASCII character is needed")),
    }
}

fn check_date_format(format: &str) -> Result<(), String> {
    let items: Vec<_> = chrono::format::StrftimeItems::new(format).collect();
    if format.is_empty() || items.iter().any(|item| matches!(item, chrono::format::Item::Error)) {
        return Err(format!("`{format}` is no date format"));
    }
    use chrono::format::{Fixed, Item, Numeric};
    let is_whole_year = |item: &Item<'_>| matches!(item, Item::Numeric(Numeric::Year, _) | Item::Fixed(Fixed::RFC3339));
    if !items.iter().any(is_whole_year) || DateFormat::new(format.to_owned()).example().is_none() {
        return Err(format!("`{format}` does not hold a whole date: a year of four digits, month and day are needed"));
    }
    Ok(())
}

/// How the text of a field becomes canonical text.
#[derive(Debug, Clone)]
pub(super) enum FieldReading {
    Constant(String),
    Text,
    /// An amount with a comma before its decimals.
    CommaAmount,
    Date(DateFormat),
}

/// A profile's date format, and what it holds beside the date.
#[derive(Debug, Clone)]
pub(super) struct DateFormat {
    format: String,
    has_time: bool,
    has_offset: bool,
}

/// Years that a statement may hold; `%Y` reads `26` as the year 26.
const YEARS: std::ops::RangeInclusive<i32> = 1900..=2199;

impl DateFormat {
    fn new(format: String) -> Self {
        use chrono::format::{Fixed, Item, Numeric, StrftimeItems};
        let items: Vec<_> = StrftimeItems::new(&format).collect();
        let has_time = items.iter().any(|item| matches!(item, Item::Numeric(Numeric::Hour | Numeric::Hour12, _)));
        let has_offset = items.iter().any(|item| {
            let is_offset = |fixed: &Fixed| {
                matches!(
                    fixed,
                    Fixed::TimezoneOffset
                        | Fixed::TimezoneOffsetColon
                        | Fixed::TimezoneOffsetZ
                        | Fixed::TimezoneOffsetColonZ
                        | Fixed::RFC3339
                )
            };
            matches!(item, Item::Fixed(fixed) if is_offset(fixed))
        });
        Self { has_time: has_time || has_offset, has_offset, format }
    }

    /// A date that comes back when it is written and read; none if the format loses a part of it.
    fn example(&self) -> Option<String> {
        let date = NaiveDate::from_ymd_opt(2031, 12, 28)?.and_hms_opt(21, 43, 56)?;
        let text = if self.has_offset {
            date.and_utc().format(&self.format).to_string()
        } else {
            date.format(&self.format).to_string()
        };
        let canonical = self.canonical(&text)?;
        canonical.starts_with("2031-12-28").then_some(canonical)
    }

    /// `text` as a canonical date or time; none if it does not follow the format.
    fn canonical(&self, text: &str) -> Option<String> {
        if self.has_offset {
            let time = DateTime::parse_from_str(text, &self.format).ok()?;
            return YEARS.contains(&time.year()).then(|| time.format("%Y-%m-%dT%H:%M:%S%.f%:z").to_string());
        }
        if self.has_time {
            let time = NaiveDateTime::parse_from_str(text, &self.format).ok()?;
            // A leap second has no canonical form.
            let is_plain = YEARS.contains(&time.year()) && time.nanosecond() < 1_000_000_000;
            return is_plain.then(|| time.format("%Y-%m-%dT%H:%M:%S%.f").to_string());
        }
        let date = NaiveDate::parse_from_str(text, &self.format).ok()?;
        YEARS.contains(&date.year()).then(|| date.format("%Y-%m-%d").to_string())
    }
}

/// Fails where a field holds a NUL character, which no bank means.
pub(super) fn refuse_nul(cell: &str) -> Result<&str, &'static str> {
    if memchr::memchr(0, cell.as_bytes()).is_some() { Err("the text holds a NUL character") } else { Ok(cell) }
}

impl FieldReading {
    /// The canonical text of `cell`, or what is wrong with it; a constant ignores the cell.
    pub(super) fn read<'a>(&'a self, cell: &'a str) -> Result<Cow<'a, str>, &'static str> {
        match self {
            Self::Constant(value) => Ok(Cow::Borrowed(value)),
            Self::Text => Ok(Cow::Borrowed(cell)),
            Self::CommaAmount if cell.contains('.') => Err("the amount holds a `.` where the decimal mark is `,`"),
            Self::CommaAmount => Ok(Cow::Owned(cell.replacen(',', ".", 1))),
            Self::Date(format) => {
                let canonical = format.canonical(cell.trim());
                canonical.map(Cow::Owned).ok_or("the posting date does not follow the profile's date format")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_maps_columns_constants_and_marks() {
        let profile = Profile::from_toml(
            "format = \"csv\"\ndelimiter = \";\"\ndecimal_mark = \",\"\ndate_format = \"%d.%m.%Y\"\n\
             timezone = \"Europe/Berlin\"\n[columns]\namount = \"Betrag\"\n[constants]\ncurrency = \"EUR\"\n",
        )
        .unwrap();
        assert_eq!((profile.delimiter, profile.column(Field::Amount)), (b';', Some("Betrag")));
        assert_eq!(profile.column(Field::Currency), None);
        assert_eq!(profile.reading(Field::Amount).read("1250,00").unwrap(), "1250.00");
        assert!(profile.reading(Field::Amount).read("1.250,00").is_err());
        assert_eq!(profile.reading(Field::PostedAt).read("15.07.2026").unwrap(), "2026-07-15");
        assert!(profile.reading(Field::PostedAt).read("15.07.26").is_err(), "the year 26 is no year of a statement");
        assert_ne!(profile.meaning(), Profile::default().meaning());
    }

    #[test]
    fn faults_are_told_with_their_line() {
        for (text, line) in [
            ("delimeter = \";\"\n", 1),
            ("\ndelimiter = \"\"\n", 2),
            ("\n\ndecimal_mark = \"'\"\n", 3),
            ("date_format = \"%d.%m\"\n", 1),
            ("date_format = \"%d.%m.%y\"\n", 1),
            ("date_format = \"%d.%m.%Y\"\nformat = \"xls\"\n", 2),
            ("[constants]\ncurrency = \"EURO\"\n", 2),
            ("[constants]\naccount_id = \" \"\n", 2),
            ("[columns]\namount = \" \"\n", 2),
            ("timezone = \"Mars/Base\"\n", 1),
            ("[columns]\nammount = \"x\"\n", 2),
            ("[columns]\namount = \"x\"\n[constants]\namount = \"1\"\n", 4),
        ] {
            assert_eq!(Profile::from_toml(text).unwrap_err().line, line, "{text:?}");
        }
    }

    #[test]
    fn dates_with_times_and_offsets_keep_them() {
        let read = |format: &str, text: &str| DateFormat::new(format.into()).canonical(text);
        assert_eq!(read("%d/%m/%Y %H:%M", "15/07/2026 09:03").as_deref(), Some("2026-07-15T09:03:00"));
        assert_eq!(read("%Y%m%d %H:%M:%S %z", "20260715 09:03:00 +0200").as_deref(), Some("2026-07-15T09:03:00+02:00"));
        assert_eq!(read("%d/%m/%Y", "31/02/2026"), None);
    }
}
