//! The runner's own input: seeded, so that every machine times the same bytes.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use chrono::{Datelike, Months, NaiveDate, TimeDelta, Timelike};

/// The first line of every feed.
const HEADER: &str = "account_id,bank_txn_id,amount,currency,posted_at\n";

/// Accounts that one feed speaks of.
const ACCOUNTS: u64 = 512;

/// A calendar month.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Month(NaiveDate);

impl FromStr for Month {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let first = NaiveDate::parse_from_str(&format!("{text}-01"), "%Y-%m-%d");
        first.map(Self).map_err(|_| format!("`{text}` is no month: give one as 2026-07"))
    }
}

impl Month {
    /// The month `count` months earlier.
    pub(crate) fn earlier(self, count: u32) -> Self {
        Self(self.0.checked_sub_months(Months::new(count)).expect("no history starts before chrono's calendar"))
    }

    fn seconds(self) -> u64 {
        let days = self.0.checked_add_months(Months::new(1)).map_or(0, |next| (next - self.0).num_days());
        u64::try_from(days * 86_400).expect("a month has days")
    }
}

/// The order of the records' times within their month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeOrder {
    /// As a bank writes a statement.
    Ascending,
    /// As files look that were joined from many accounts: the harder case for the embedded store.
    Shuffled,
}

/// What a feed is to hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FeedPlan {
    pub(crate) records: u64,
    pub(crate) month: Month,
    pub(crate) order: TimeOrder,
    pub(crate) seed: u64,
}

/// A feed on disk.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    pub(crate) path: PathBuf,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl FeedPlan {
    /// Writes the feed to `path`: unique records of about 78 bytes, line ends LF.
    pub(crate) fn write(&self, path: &Path) -> io::Result<Feed> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let mut random = SplitMix(self.seed);
        out.write_all(HEADER.as_bytes())?;
        for index in 0..self.records {
            self.write_record(index, &mut random, &mut out)?;
        }
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        Ok(Feed { path: path.to_owned(), records: self.records, bytes: fs::metadata(path)?.len() })
    }

    fn write_record(&self, index: u64, random: &mut SplitMix, out: &mut impl Write) -> io::Result<()> {
        let account = SplitMix(random.below(ACCOUNTS)).next() % 1_000_000_000_000_000_000;
        let cents = 1 + random.below(1_000_000);
        let sign = if random.below(10) < 6 { "-" } else { "" };
        let currency = ["EUR", "EUR", "EUR", "EUR", "EUR", "EUR", "USD", "GBP"][random.index(8)];
        let second = match self.order {
            TimeOrder::Ascending => index * self.month.seconds() / self.records,
            TimeOrder::Shuffled => random.below(self.month.seconds()),
        };
        let first = self.month.0;
        let at = first.and_time(chrono::NaiveTime::MIN) + TimeDelta::seconds(second.cast_signed());
        // The bank's id carries month and number: it alone makes every record of every feed unique.
        write!(
            out,
            "DE{check:02}{account:018},TXN{year:02}{month:02}{index:09},{sign}{whole}.{fraction:02},{currency},",
            check = 10 + account % 88,
            year = first.year() % 100,
            month = first.month(),
            whole = cents / 100,
            fraction = cents % 100,
        )?;
        writeln!(
            out,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}+00:00",
            at.year(),
            at.month(),
            at.day(),
            at.hour(),
            at.minute(),
            at.second()
        )
    }
}

/// Steele, Lea and Flood's generator: eight bytes of state, good enough for amounts, the same on every machine.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("an index below a length fits")
    }
}
