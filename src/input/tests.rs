//! Readers of every format: the lines of a feed tile it, whatever stands in it.

use std::io::Read;

use proptest::prelude::*;

use super::*;

/// A source that hands out `piece` bytes at a time.
struct Drip {
    bytes: Vec<u8>,
    at: usize,
    piece: usize,
}

impl Read for Drip {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let len = self.piece.min(out.len()).min(self.bytes.len() - self.at);
        out[..len].copy_from_slice(&self.bytes[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

/// Each line of `feed` as `line number: what it is`, after checking that the lines tile the feed.
fn read(feed: &[u8], extension: &str, profile: &Profile, piece: usize) -> Result<Vec<String>, InputError> {
    let source = Box::new(Drip { bytes: feed.to_vec(), at: 0, piece });
    let (_, mut reader) = open_feed(source, "feed", Some(extension), profile)?;
    let mut blocks = vec![reader.prologue().clone()];
    let mut block = FeedBlock::default();
    while reader.read_block(&mut block)? {
        blocks.push(block.clone());
    }
    let mut found = Vec::new();
    let mut tiled = Vec::new();
    for block in &blocks {
        assert_eq!(block.offset, tiled.len() as u64);
        assert_eq!(block.lines.iter().map(|line| line.len as usize).sum::<usize>(), block.raw.len());
        tiled.extend_from_slice(&block.raw);
        for line in &block.lines {
            let what = match (&line.content, block.fields(&line.content)) {
                (_, Some(raw)) => [raw.account_id, raw.bank_txn_id, raw.amount, raw.currency, raw.posted_at].join("|"),
                (LineContent::Rejected(reason), None) => format!("rejected: {}", reason.reason),
                (LineContent::Skipped(rule), None) => rule.name().to_owned(),
                (LineContent::Fields { .. }, None) => unreachable!(),
            };
            found.push(format!("{}: {what}", line.line_number));
        }
    }
    assert_eq!(tiled, feed, "the lines tile the feed");
    Ok(found)
}

fn check(feed: &[u8], extension: &str, expected: &[&str]) {
    for piece in [1, 7, 1 << 20] {
        assert_eq!(read(feed, extension, &Profile::default(), piece).unwrap(), expected, "in pieces of {piece}");
    }
}

const HEADER: &str = "account_id,bank_txn_id,amount,currency,posted_at";

#[test]
fn every_line_end_and_mark_is_kept_to_its_line() {
    let feed = format!(
        "\u{feff}{HEADER}\r\nA,1,1.00,EUR,2026-01-01\r\r\n\nA,2,2.00,EUR,2026-01-01\rA,\"3\n3\",\"3,5\",EUR,2026-01-01\n\
         A,4,4.00,EUR,2026-01-01"
    );
    check(
        feed.as_bytes(),
        "csv",
        &[
            "1: byte_order_mark",
            "1: header",
            "2: A|1|1.00|EUR|2026-01-01",
            "3: blank",
            "4: A|2|2.00|EUR|2026-01-01",
            "5: A|3\n3|3,5|EUR|2026-01-01",
            "7: A|4|4.00|EUR|2026-01-01",
        ],
    );
}

#[test]
fn bad_rows_leave_their_neighbours_alone() {
    let mut feed = format!("{HEADER}\nA,1,1,EUR,2026-01-01\nA,\"2,2,EUR,2026-01-01\nA,3,3,EUR\n").into_bytes();
    feed.extend_from_slice(
        b"A,\xff,4,EUR,2026-01-01\nA,5\0,5,EUR,2026-01-01\n\xef\xbb\xbfA,6,6,EUR,2026-01-01\nA,7,7,EUR,2026-01-01\n",
    );
    check(
        &feed,
        "csv",
        &[
            "1: header",
            "2: A|1|1|EUR|2026-01-01",
            "3: rejected: a quote mark opens a text and none closes it",
            "4: rejected: the row has 4 columns where the header has 5",
            "5: rejected: the text is not UTF-8",
            "6: rejected: the text holds a NUL character",
            "7: rejected: a byte order mark stands inside the feed",
            "8: A|7|7|EUR|2026-01-01",
        ],
    );
}

#[test]
fn json_numbers_keep_their_digits_and_repeated_keys_are_rejected() {
    let feed = br#"{"account_id":"A","bank_txn_id":17,"amount":100.500,"currency":"EUR","posted_at":"2026-01-01","x":{"y":[1]}}

{"account_id":"A","amount":1E5,"bank_txn_id":"\u00e9","currency":"EUR","posted_at":"2026-01-01"}
{"account_id":"A","account_id":"B","amount":1,"bank_txn_id":"3","currency":"EUR","posted_at":"2026-01-01"}
{"account_id":"A","amount":1,"bank_txn_id":"4","currency":"EUR","posted_at":"2026-01-01","x":{"y":1,"y":2}}
{"account_id":"A","amount":null,"bank_txn_id":"5","currency":"EUR","posted_at":"2026-01-01"}
{"account_id":"A"
[]
{"account_id":"A","bank_txn_id":"8","currency":"EUR","posted_at":"2026-01-01"}
{"account_id":"A","amount":1,"bank_txn_id":"9","currency":"EUR","posted_at":"2026-01-01"} x"#;
    check(
        feed,
        "jsonl",
        &[
            "1: A|17|100.500|EUR|2026-01-01",
            "2: blank",
            "3: A|\u{e9}|1E5|EUR|2026-01-01",
            "4: rejected: an object holds a key more than once",
            "5: rejected: an object holds a key more than once",
            "6: rejected: the value is no text",
            "7: rejected: the line ends inside an object",
            "8: rejected: the line is no JSON object",
            "9: rejected: the key is missing",
            "10: rejected: the line is no JSON at byte 91",
        ],
    );
}

#[test]
fn what_is_no_statement_is_refused_as_a_whole() {
    let message = |feed: &[u8], extension: &str| match read(feed, extension, &Profile::default(), 64) {
        Err(error) => error.to_string(),
        Ok(lines) => panic!("read as {lines:?}"),
    };
    assert_eq!(message(b"", "csv"), "feed: the feed is empty and has no header");
    assert_eq!(message(b"\n\n", "csv"), "feed: the feed has no header");
    assert_eq!(message(b"a,b\n1,2\n", "csv"), "feed:1: the first line is no header with the columns that are needed");
    assert_eq!(
        message(b"account_id,amount\n1,2\n", "csv"),
        "feed:1: there is no column `bank_txn_id` for `bank_txn_id`"
    );
    assert_eq!(
        message(format!("{HEADER},amount\n").as_bytes(), "csv"),
        "feed:1: the header names `amount` more than once"
    );
    assert!(message(b"[{\"a\":1}]", "jsonl").starts_with("feed:1: the feed is one JSON array"));
    assert!(message(b"\xff\xfea\0", "csv").contains("UTF-16"));
    let endless = [HEADER.as_bytes(), b"\n", &vec![b'x'; 3 << 20]].concat();
    assert_eq!(message(&endless, "csv"), "feed:2: the line is longer than 1 MiB, which no statement has");
    assert_eq!(message(&vec![b'{'; 3 << 20], "jsonl"), "feed:1: the line is longer than 1 MiB, which no statement has");
}

#[test]
fn a_record_longer_than_a_block_is_read_whole() {
    let note = "x\n".repeat(200_000);
    let feed = format!("{HEADER},note\nA,1,1,EUR,2026-01-01,\"{note}\"\nA,2,2,EUR,2026-01-01,\n");
    let lines = read(feed.as_bytes(), "csv", &Profile::default(), 10_000).unwrap();
    assert_eq!(lines, ["1: header", "2: A|1|1|EUR|2026-01-01", "200003: A|2|2|EUR|2026-01-01"]);
    let unclosed = format!("{HEADER}\nA,\"1,1,EUR,2026-01-01\n{}", "A,2,2,EUR,2026-01-01\n".repeat(100_000));
    assert_eq!(read(unclosed.as_bytes(), "csv", &Profile::default(), 10_000).unwrap().len(), 100_002);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// No panic, the lines tile the feed, and neither depends on how the bytes arrive.
    #[test]
    fn any_bytes_are_tiled(feed in "[a,\"\n\r x\u{e9}\u{0}]{0,60}", piece in 1_usize..9) {
        let feed = format!("{HEADER}\n{feed}");
        let whole = read(feed.as_bytes(), "csv", &Profile::default(), 1 << 20).unwrap();
        prop_assert_eq!(read(feed.as_bytes(), "csv", &Profile::default(), piece).unwrap(), whole);
    }

    #[test]
    fn any_json_bytes_are_tiled(feed in "[{}\\[\":,a1\n\r \\\\u]{0,60}") {
        let feed = format!("{{\n{feed}");
        prop_assert!(read(feed.as_bytes(), "jsonl", &Profile::default(), 3).is_ok());
    }

    /// Quoting a field or not is no difference, whatever stands in it.
    #[test]
    fn quoted_fields_come_out_as_they_went_in(values in prop::array::uniform5("[a-c,\"\n\r ]{0,6}")) {
        let quoted: Vec<String> = values.iter().map(|value| format!("\"{}\"", value.replace('"', "\"\""))).collect();
        let feed = format!("{HEADER}\n{}\n", quoted.join(","));
        let lines = read(feed.as_bytes(), "csv", &Profile::default(), 5).unwrap();
        // A text that holds rows of its own is rejected on purpose.
        prop_assume!(lines.len() == 2);
        prop_assert_eq!(&lines[1], &format!("2: {}", values.join("|")));
    }
}
