//! Nothing lost, nothing twice: the files of records, put together in the order of the audit log, are the feed again.

use serde_json::Value;

use crate::env::{Env, Files};
use crate::golden;

/// Where each physical line of `feed` starts, and where the last one ends. LF, CR LF, CR CR LF and CR end a line.
fn line_starts(feed: &[u8]) -> Vec<usize> {
    let mut starts = vec![0];
    let mut at = 0;
    while at < feed.len() {
        at += match feed[at] {
            b'\n' => 1,
            b'\r' if feed[at + 1..].starts_with(b"\n") => 2,
            b'\r' if feed[at + 1..].starts_with(b"\r\n") => 3,
            b'\r' => 1,
            _ => {
                at += 1;
                continue;
            }
        };
        starts.push(at);
    }
    if starts.last() != Some(&feed.len()) {
        starts.push(feed.len());
    }
    starts
}

/// The middle of the name of the file that holds the records of a decision.
fn kind_of(decision: &str) -> &'static str {
    match decision {
        "ACCEPTED" => "accepted",
        "DUPLICATE_SUPPRESSED" => "suppressed",
        "IDEMPOTENCY_CONFLICT" => "conflicts",
        "HELD" => "held",
        "REJECTED" => "rejected",
        other => panic!("no feed here yields {other}"),
    }
}

/// Takes the records of `files` in the order of the audit log, and compares each with its place in the feed.
fn check(name: &str, feed: &[u8], mut files: Files) {
    let audit = files.keys().find(|name| name.ends_with(".audit.jsonl")).unwrap().clone();
    let audit = files.remove(&audit).unwrap();
    let lines = audit.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let lines: Vec<Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
    let starts = line_starts(feed);
    let number = |value: &Value| usize::try_from(value.as_u64().unwrap()).unwrap();
    let mut at = 0;
    // Every file of records begins with what stands in front of the first record that could be one.
    let prologue = match files.keys().find(|name| name.contains(".accepted.")) {
        Some(accepted) => shared_start(feed, &lines, &files[accepted]),
        None => panic!("{name}: there is an accepted file always"),
    };
    let mut taken: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for (place, line) in lines.iter().enumerate() {
        if line["event"] == "row.skipped" {
            assert_eq!(number(&line["offset"]), at, "{name}: {line}");
            at += number(&line["length"]);
        } else if line["event"] == "dedup.checked" {
            let start = starts[number(&line["line"]) - 1];
            let behind_mark = start + "\u{feff}".len();
            assert!(at == start || at == behind_mark && feed.starts_with("\u{feff}".as_bytes()), "{name}: {line}");
            let next = lines[place + 1..].iter().find_map(|line| line["line"].as_u64());
            let end = next.map_or(feed.len(), |line| starts[usize::try_from(line).unwrap() - 1]);
            let kind = kind_of(line["match_decision"].as_str().unwrap());
            let from = taken.entry(kind).or_insert(prologue);
            let file = &files[files.keys().find(|name| name.contains(&format!(".{kind}."))).unwrap()];
            assert!(file[*from..].starts_with(&feed[at..end]), "{name}: the {kind} file at {from}: {line}");
            *from += end - at;
            at = end;
        }
    }
    assert_eq!(at, feed.len(), "{name}: every byte has its line in the audit log");
    for (file, bytes) in files.iter().filter(|(name, _)| name.ends_with(".csv") || name.ends_with(".jsonl")) {
        let kinds = ["accepted", "suppressed", "conflicts", "held", "rejected"];
        let kind = kinds.into_iter().find(|kind| file.contains(&format!(".{kind}.")));
        let whole = taken.get(kind.unwrap()).copied().unwrap_or(prologue);
        assert_eq!(bytes.len(), whole, "{name}: nothing else stands in {file}");
    }
}

/// The length of the skipped lines at the start of `feed` that `file` begins with, too.
fn shared_start(feed: &[u8], lines: &[Value], file: &[u8]) -> usize {
    let leading = lines[1..].iter().take_while(|line| line["event"] == "row.skipped");
    let ends = leading.map(|line| line["offset"].as_u64().unwrap() + line["length"].as_u64().unwrap());
    let ends = ends.map(|end| usize::try_from(end).unwrap());
    // Blank lines behind the prologue are no part of it.
    ends.take_while(|end| file.starts_with(&feed[..*end])).last().unwrap_or(0)
}

#[test]
fn the_files_of_records_are_the_feed_again() {
    for (name, feed) in golden::feeds() {
        check(&name, &feed, golden::ingest(&name, &Env::embedded(), &[]));
    }
}
