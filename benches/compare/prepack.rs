//! The claims of a feed as a file of commands, for `redis-cli --pipe`: the ceiling of what any client can reach.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use feeddedup::domain::{Canonicalizer, RawRecord, Zone};

use crate::feed::Feed;

/// As the program's own: seven years.
const TTL_SECONDS: &str = "220924800";
/// As long as the run ids that the program makes.
const RUN_ID: &str = "r-00000000000000000000000000000000";

/// Writes the commands that claim every record of `feed`, with keys and markers as long as the program's.
pub(crate) fn write_commands(feed: &Feed, path: &Path) -> anyhow::Result<()> {
    let lines = BufReader::with_capacity(1 << 20, File::open(&feed.path).context("the feed is gone")?).lines();
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut canonicalizer = Canonicalizer::new(Zone::default());
    for (row, line) in lines.enumerate().skip(1) {
        let line = line?;
        let record = parse(&line).ok_or_else(|| anyhow!("row {row} of the feed has not five fields"))?;
        let form = canonicalizer.form(&record).map_err(|field| anyhow!("row {row}: {}", field.complaint()))?;
        let key = format!("dedup:bankfeed:{}", form.source_hash());
        let marker = format!("{RUN_ID}:{row}|2026-07-15T09:03:00+00:00|1");
        write_command(&["SET", &key, &marker, "NX", "GET", "EX", TTL_SECONDS], &mut out)?;
    }
    out.flush()?;
    Ok(())
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

fn write_command(words: &[&str], out: &mut impl Write) -> std::io::Result<()> {
    write!(out, "*{}\r\n", words.len())?;
    words.iter().try_for_each(|word| write!(out, "${}\r\n{word}\r\n", word.len()))
}
