//! `CanonicalForm`: the bytes that the hashes are computed from.
//!
//! Frozen: any change here lets every record of the past in a second time.

use super::posted_at::PostedAt;
use super::text::trim;
use super::{
    Amount, Claim, ClaimScope, Currency, Field, FieldChecks, IdentityHash, PostedDay, RawRecord, SourceHash, Zone,
};

/// Version of the canonical form; written to stores, which refuse another one.
pub const CANONICAL_VERSION: u32 = 1;

/// Brings records into their canonical form, in one buffer that it keeps.
#[derive(Debug, Clone, Default)]
pub struct Canonicalizer {
    zone: Zone,
    json: Vec<u8>,
}

/// A record in its canonical form.
#[derive(Debug)]
pub struct Canonical<'a> {
    json: &'a [u8],
    parts: Parts,
    pub amount: Amount,
    pub currency: Currency,
    pub posted_day: PostedDay,
}

/// Where in the canonical JSON the values stand.
#[derive(Debug)]
struct Parts {
    account_end: usize,
    amount_start: usize,
    amount_end: usize,
    bank_id_end: usize,
    posted_start: usize,
    posted_end: usize,
}

impl Canonicalizer {
    /// A canonicalizer that reads times without offset in `zone`.
    pub fn new(zone: Zone) -> Self {
        Self { zone, json: Vec::new() }
    }

    /// The canonical form of `raw`, or the first field that has none, in the order of the reference.
    pub fn form<'a>(&'a mut self, raw: &RawRecord<'a>) -> Result<Canonical<'a>, Field> {
        let account_id = trim(raw.account_id);
        let bank_txn_id = trim(raw.bank_txn_id);
        if account_id.is_empty() {
            return Err(Field::AccountId);
        }
        if bank_txn_id.is_empty() {
            return Err(Field::BankTxnId);
        }
        let currency = Currency::parse(trim(raw.currency)).ok_or(Field::Currency)?;
        let posted_at = PostedAt::parse(trim(raw.posted_at), &self.zone).ok_or(Field::PostedAt)?;
        let amount = Amount::parse(trim(raw.amount)).ok_or(Field::Amount)?;
        self.json.clear();
        let out = &mut self.json;
        out.extend_from_slice(b"{\"account_id\":\"");
        write_escaped(account_id, out);
        let account_end = out.len();
        out.extend_from_slice(b"\",\"amount\":\"");
        let amount_start = out.len();
        amount.write_canonical(currency, out);
        let amount_end = out.len();
        out.extend_from_slice(b"\",\"bank_txn_id\":\"");
        write_escaped(bank_txn_id, out);
        let bank_id_end = out.len();
        out.extend_from_slice(b"\",\"currency\":\"");
        out.extend_from_slice(currency.as_str().as_bytes());
        out.extend_from_slice(b"\",\"posted_at\":\"");
        let posted_start = out.len();
        posted_at.write_canonical(out);
        let posted_end = out.len();
        out.extend_from_slice(b"\"}");
        let parts = Parts { account_end, amount_start, amount_end, bank_id_end, posted_start, posted_end };
        Ok(Canonical { json: &self.json, parts, amount, currency, posted_day: posted_at.day() })
    }
}

impl Canonical<'_> {
    /// The canonical JSON: ASCII, keys sorted, no blanks.
    pub fn json(&self) -> &str {
        std::str::from_utf8(self.json).expect("canonical JSON is ASCII")
    }

    /// The hash over all five fields.
    pub fn source_hash(&self) -> SourceHash {
        SourceHash::of(self.json)
    }

    /// The claim of this record as the `row`-th of its feed.
    pub fn claim(&self, scope: ClaimScope, row: u64) -> Claim {
        let (source_hash, identity, checks) = (self.source_hash(), self.identity_hash(), self.checks());
        Claim { source_hash, identity, checks, scope, posted_day: self.posted_day, row }
    }

    /// A short check of each field that the identity leaves open.
    fn checks(&self) -> FieldChecks {
        let Parts { amount_start, amount_end, posted_start, posted_end, .. } = self.parts;
        let (amount, posted_at) = (&self.json[amount_start..amount_end], &self.json[posted_start..posted_end]);
        FieldChecks::of(amount, self.currency.as_bytes(), posted_at)
    }

    /// The hash over account and bank id alone.
    pub fn identity_hash(&self) -> IdentityHash {
        // The JSON of these two fields is that of all five without what stands between and behind them.
        let Parts { account_end, amount_end, bank_id_end, .. } = self.parts;
        let (account, bank_id) = (&self.json[..account_end], &self.json[amount_end..bank_id_end]);
        IdentityHash::of_parts([account, bank_id, b"\"}"])
    }
}

/// Appends `text` as the inside of a JSON string: ASCII only, all else as `\u00e9` in lower case, as Python's
/// `json.dumps` writes.
fn write_escaped(text: &str, out: &mut Vec<u8>) {
    let plain = |b: &u8| matches!(b, b' '..=b'~') && !matches!(b, b'"' | b'\\');
    if text.as_bytes().iter().all(plain) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    for c in text.chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\u{8}' => out.extend_from_slice(b"\\b"),
            '\u{c}' => out.extend_from_slice(b"\\f"),
            ' '..='~' => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.extend_from_slice(b"\\u");
                    super::write_hex(&unit.to_be_bytes(), out);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row of the frozen table: canonical JSON, both hashes, or the field at fault.
    #[test]
    fn the_golden_table_holds() {
        let table = include_str!("../../fixtures/vectors/source_hash.jsonl");
        for (index, line) in table.lines().enumerate() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let record = &row["record"];
            let text = |key: &str| record[key].as_str().unwrap();
            let raw = RawRecord {
                account_id: text("account_id"),
                bank_txn_id: text("bank_txn_id"),
                amount: text("amount"),
                currency: text("currency"),
                posted_at: text("posted_at"),
            };
            let zone = Zone::named(record["zone"].as_str().unwrap_or("UTC")).unwrap();
            let mut canonicalizer = Canonicalizer::new(zone);
            match canonicalizer.form(&raw) {
                Ok(form) => {
                    assert_eq!(row["canonical"].as_str(), Some(form.json()), "line {}", index + 1);
                    assert_eq!(row["source_hash"], form.source_hash().to_string(), "line {}", index + 1);
                    assert_eq!(row["identity_hash"], form.identity_hash().to_string(), "line {}", index + 1);
                }
                Err(field) => assert_eq!(row["error"], field.name(), "line {}", index + 1),
            }
        }
        assert_eq!(table.lines().count(), 266);
    }
}
