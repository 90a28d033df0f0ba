//! The claims of a feed as a file of commands, for `redis-cli --pipe`: the ceiling of what any client can reach.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use feeddedup::domain::{Canonicalizer, Claim, ClaimScope, RawRecord, Zone};

use crate::feed::Feed;

/// As the program's own: seven years.
const TTL_SECONDS: &str = "220924800";
/// As long as the run ids that the program makes.
const RUN_ID: &str = "r-00000000000000000000000000000000";

/// As long as the references of the program.
const REFERENCE: [u8; 8] = [0x5a; 8];

/// Entries of payments in a hash.
const FILL: u64 = 32;

/// What is claimed of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// The source hash.
    Content,
    /// The source hash, and an entry of the payment beside it.
    ContentAndPayment,
}

impl Claimed {
    /// Replies that a server gives to the commands of one record.
    pub(crate) fn replies(self) -> u64 {
        match self {
            Self::Content => 1,
            Self::ContentAndPayment => 2,
        }
    }
}

/// Writes the commands that claim every record of `feed`, with keys and markers as long as the program's.
pub(crate) fn write_commands(feed: &Feed, claimed: Claimed, path: &Path) -> anyhow::Result<()> {
    let lines = BufReader::with_capacity(1 << 20, File::open(&feed.path).context("the feed is gone")?).lines();
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut canonicalizer = Canonicalizer::new(Zone::default());
    for (row, line) in lines.enumerate().skip(1) {
        let line = line?;
        let record = parse(&line).ok_or_else(|| anyhow!("row {row} of the feed has not five fields"))?;
        let form = canonicalizer.form(&record).map_err(|field| anyhow!("row {row}: {}", field.complaint()))?;
        let claim = form.claim(ClaimScope::Payment, row as u64);
        let key = format!("dedup:bankfeed:{}", claim.source_hash);
        let marker = format!("{RUN_ID}:{row}|2026-07-15T09:03:00+00:00|1");
        let set = ["SET", &key, &marker, "NX", "GET", "EX", TTL_SECONDS];
        write_command(&set.map(str::as_bytes), &mut out)?;
        if claimed == Claimed::ContentAndPayment {
            let (key, field, value) = entry(&claim, feed.records);
            write_command(&[b"HSETNX", key.as_bytes(), &field, &value], &mut out)?;
        }
    }
    out.flush()?;
    Ok(())
}

/// Key, field and value of a payment's entry in a store that is made for so many records.
fn entry(claim: &Claim, records: u64) -> (String, Vec<u8>, Vec<u8>) {
    let bits = records.div_ceil(FILL).next_power_of_two().trailing_zeros().max(8);
    let identity = claim.identity.as_bytes();
    let leading = u32::from_be_bytes([identity[0], identity[1], identity[2], identity[3]]);
    let digits = (bits as usize).div_ceil(4);
    let key = format!("dedup:bankfeed:i:{:0digits$x}", leading >> (32 - bits));
    let skip = bits as usize / 8;
    let row = claim.row.to_be_bytes();
    let unused = (claim.row.leading_zeros() / 8) as usize;
    (
        key,
        identity[skip..skip + 20].to_vec(),
        [&REFERENCE, claim.content().as_bytes().as_slice(), &row[unused..]].concat(),
    )
}

/// The fields of a line of our own feed, which never quotes.
fn parse(line: &str) -> Option<RawRecord<'_>> {
    let mut fields = line.split(',');
    Some(RawRecord {
        account_id: fields.next()?,
        bank_txn_id: fields.next()?,
        amount: fields.next()?,
        currency: fields.next()?,
        posted_at: fields.next()?,
    })
}

fn write_command(words: &[&[u8]], out: &mut impl Write) -> std::io::Result<()> {
    write!(out, "*{}\r\n", words.len())?;
    for word in words {
        write!(out, "${}\r\n", word.len())?;
        out.write_all(word)?;
        out.write_all(b"\r\n")?;
    }
    Ok(())
}
