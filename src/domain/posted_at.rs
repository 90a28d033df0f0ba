//! When a record was posted: a date, or an instant in UTC.

use std::fmt;
use std::sync::Arc;

use chrono::{Datelike, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Timelike};
use jiff::tz::{TimeZone, TimeZoneDatabase};

/// Days since the first of January of year 1, which is day 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PostedDay(pub u32);

/// Where a time without an offset is read.
#[derive(Debug, Clone, Default)]
pub struct Zone(Option<Arc<TimeZone>>);

/// No zone of this name is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownZone(pub String);

impl fmt::Display for UnknownZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no time zone `{}`", self.0)
    }
}

impl std::error::Error for UnknownZone {}

impl Zone {
    /// The zone of the IANA name `name`, from the tables that are compiled in: the machine's must not decide.
    pub fn named(name: &str) -> Result<Self, UnknownZone> {
        if name == "UTC" {
            return Ok(Self(None));
        }
        let zone = TimeZoneDatabase::bundled().get(name).map_err(|_| UnknownZone(name.to_owned()))?;
        Ok(Self(Some(Arc::new(zone))))
    }

    /// The offset from UTC at the local time `local`; of two that fit, and in a gap, the one before the change.
    fn offset_at(&self, local: NaiveDateTime) -> Option<TimeDelta> {
        let Some(zone) = &self.0 else { return Some(TimeDelta::zero()) };
        let field = |value: u32| i8::try_from(value).ok();
        let local = jiff::civil::DateTime::new(
            i16::try_from(local.year()).ok()?,
            field(local.month())?,
            field(local.day())?,
            field(local.hour())?,
            field(local.minute())?,
            field(local.second())?,
            0,
        )
        .ok()?;
        let offset = match zone.to_ambiguous_timestamp(local).offset() {
            jiff::tz::AmbiguousOffset::Unambiguous { offset } => offset,
            jiff::tz::AmbiguousOffset::Gap { before, .. } | jiff::tz::AmbiguousOffset::Fold { before, .. } => before,
        };
        TimeDelta::try_seconds(i64::from(offset.seconds()))
    }
}

/// A posting date or instant, as version 1 of the canonical form knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PostedAt {
    Date(NaiveDate),
    Instant { utc: NaiveDateTime, fraction: Fraction },
}

/// A fraction of a second: up to nine digits, kept as they were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fraction {
    nanoseconds: u32,
    /// 0, 6 or 9: how many digits it is written with.
    digits: usize,
}

impl PostedAt {
    /// Reads `YYYY-MM-DD` or `YYYY-MM-DD[T ]HH:MM:SS[.fraction][offset]`, trimmed already; `None` for anything else.
    pub(super) fn parse(text: &str, zone: &Zone) -> Option<Self> {
        let bytes = text.as_bytes();
        let date = parse_date(bytes.get(..10)?)?;
        let rest = &bytes[10..];
        if rest.is_empty() {
            return Some(Self::Date(date));
        }
        if !matches!(rest[0], b'T' | b' ') {
            return None;
        }
        let time = parse_time(rest.get(1..9)?)?;
        let (fraction, offset) = parse_fraction(&rest[9..])?;
        let local = date.and_time(time);
        let offset = if offset.is_empty() { zone.offset_at(local)? } else { parse_offset(offset)? };
        let utc = local.checked_sub_signed(offset)?;
        // Four digits of year: an instant outside them has no spelling.
        (1..=9999).contains(&utc.year()).then_some(Self::Instant { utc, fraction })
    }

    pub(super) fn day(&self) -> PostedDay {
        let date = match self {
            Self::Date(date) => *date,
            Self::Instant { utc, .. } => utc.date(),
        };
        PostedDay(u32::try_from(date.num_days_from_ce()).expect("years before 1 are refused"))
    }

    /// Appends `YYYY-MM-DD`, or `YYYY-MM-DDTHH:MM:SS[.fraction]+00:00`.
    pub(super) fn write_canonical(&self, out: &mut Vec<u8>) {
        match self {
            Self::Date(date) => write_date(*date, out),
            Self::Instant { utc, fraction } => {
                write_date(utc.date(), out);
                out.push(b'T');
                write_two(utc.hour(), out);
                out.push(b':');
                write_two(utc.minute(), out);
                out.push(b':');
                write_two(utc.second(), out);
                if fraction.digits > 0 {
                    let digits = [b'0'; 9];
                    let mut buffer = itoa::Buffer::new();
                    let nanoseconds = buffer.format(fraction.nanoseconds).as_bytes();
                    out.push(b'.');
                    let start = out.len();
                    out.extend_from_slice(&digits[..9 - nanoseconds.len()]);
                    out.extend_from_slice(nanoseconds);
                    out.truncate(start + fraction.digits);
                }
                out.extend_from_slice(b"+00:00");
            }
        }
    }
}

fn write_date(date: NaiveDate, out: &mut Vec<u8>) {
    let year = date.year().unsigned_abs();
    write_two(year / 100, out);
    write_two(year % 100, out);
    out.push(b'-');
    write_two(date.month(), out);
    out.push(b'-');
    write_two(date.day(), out);
}

fn write_two(number: u32, out: &mut Vec<u8>) {
    let digit = |value: u32| b'0' + u8::try_from(value % 10).expect("a remainder of ten is one digit");
    out.extend_from_slice(&[digit(number / 10), digit(number)]);
}

/// The number that all of `bytes` spell, or `None` if one of them is no digit.
fn parse_number(bytes: &[u8]) -> Option<u32> {
    bytes.iter().try_fold(0, |sum, b| b.is_ascii_digit().then(|| sum * 10 + u32::from(b - b'0')))
}

fn parse_date(bytes: &[u8]) -> Option<NaiveDate> {
    if bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let year = parse_number(&bytes[..4])?;
    if year == 0 {
        return None;
    }
    NaiveDate::from_ymd_opt(year.cast_signed(), parse_number(&bytes[5..7])?, parse_number(&bytes[8..])?)
}

fn parse_time(bytes: &[u8]) -> Option<NaiveTime> {
    if bytes[2] != b':' || bytes[5] != b':' {
        return None;
    }
    NaiveTime::from_hms_opt(parse_number(&bytes[..2])?, parse_number(&bytes[3..5])?, parse_number(&bytes[6..])?)
}

/// The fraction at the start of `bytes`, none being zero, and what stands behind it.
fn parse_fraction(bytes: &[u8]) -> Option<(Fraction, &[u8])> {
    if bytes.first() != Some(&b'.') {
        return Some((Fraction { nanoseconds: 0, digits: 0 }, bytes));
    }
    let length = bytes[1..].iter().take_while(|b| b.is_ascii_digit()).count();
    if !(1..=9).contains(&length) {
        return None;
    }
    let (digits, rest) = bytes[1..].split_at(length);
    let significant = digits.iter().rposition(|&b| b != b'0').map_or(0, |last| last + 1);
    let missing = u32::try_from(9 - length).ok()?;
    let nanoseconds = parse_number(digits)? * 10_u32.pow(missing);
    let digits = match significant {
        0 => 0,
        1..=6 => 6,
        _ => 9,
    };
    Some((Fraction { nanoseconds, digits }, rest))
}

/// `Z`, `z`, `+HH:MM` or `+HHMM`, less than a day.
fn parse_offset(bytes: &[u8]) -> Option<TimeDelta> {
    let digits = match bytes {
        b"Z" | b"z" => return Some(TimeDelta::zero()),
        [b'+' | b'-', h, i, b':', m, n] | [b'+' | b'-', h, i, m, n] => [*h, *i, *m, *n],
        _ => return None,
    };
    let (hours, minutes) = (parse_number(&digits[..2])?, parse_number(&digits[2..])?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let ahead = TimeDelta::try_minutes(i64::from(hours * 60 + minutes))?;
    Some(if bytes[0] == b'-' { -ahead } else { ahead })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str, zone: &str) -> Option<String> {
        let mut out = Vec::new();
        PostedAt::parse(text, &Zone::named(zone).unwrap())?.write_canonical(&mut out);
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn times_are_read_in_their_zone_and_written_in_utc() {
        for (text, zone, expected) in [
            ("2026-07-15", "Europe/Berlin", Some("2026-07-15")),
            ("2026-07-15T09:03:00", "Europe/Berlin", Some("2026-07-15T07:03:00+00:00")),
            // Twice on that night; the first of the two, as the reference reads it.
            ("2026-10-25T02:30:00", "Europe/Berlin", Some("2026-10-25T00:30:00+00:00")),
            // Never on that night; read with the offset before the change.
            ("2026-03-29T02:30:00", "Europe/Berlin", Some("2026-03-29T01:30:00+00:00")),
            ("2026-07-15T09:03:00.10", "UTC", Some("2026-07-15T09:03:00.100000+00:00")),
            ("2026-07-15T09:03:00.000000001Z", "UTC", Some("2026-07-15T09:03:00.000000001+00:00")),
            ("0001-01-01T00:00:00+01:00", "UTC", None),
            ("9999-12-31T23:59:59-00:01", "UTC", None),
            ("0000-01-01", "UTC", None),
            ("2026-07-15T09:03:00+24:00", "UTC", None),
            ("2026-07-15T09:03:00+2:00", "UTC", None),
            ("2026-07-15T09:03:00.Z", "UTC", None),
            ("2026-07-15T09:03:00.1234567890Z", "UTC", None),
            ("2026-07-15T", "UTC", None),
            ("2026-07-1é", "UTC", None),
        ] {
            assert_eq!(canonical(text, zone).as_deref(), expected, "{text} in {zone}");
        }
    }

    #[test]
    fn a_zone_that_does_not_exist_is_refused() {
        assert_eq!(Zone::named("Europe/Nowhere").unwrap_err(), UnknownZone("Europe/Nowhere".into()));
    }
}
