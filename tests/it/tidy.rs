//! Rules on the source, read from the source: what may name what, and how long things may be.

use std::collections::BTreeMap;
use std::path::Path;

use feeddedup::domain::Decision;
use feeddedup::input::FORMATS;

use crate::env::fixture;
use crate::golden;

/// Most lines of a function.
const FUNCTION_LINES_MAX: usize = 70;

/// Most lines of a file, its tests aside.
const FILE_LINES_MAX: usize = 800;

/// What each module may name of the others. `cli` may name all of them.
const DIRECTIONS: [(&str, &[&str]); 7] = [
    ("domain", &[]),
    ("input", &["domain"]),
    ("store", &["domain"]),
    ("run", &["domain"]),
    ("output", &["domain"]),
    ("pipeline", &["domain", "input", "store", "run", "output"]),
    ("cli", &["domain", "input", "store", "run", "output", "pipeline"]),
];

/// What stands in few places only: the words, and where they may.
const PLACES: [(&str, &[&str]); 14] = [
    ("csv_core::", &["input/csv_feed.rs"]),
    ("heed::", &["store/lmdb_store"]),
    // Elsewhere it would be called without the lock.
    ("write_txn(", &["store/lmdb_store/writer_lock.rs"]),
    ("redis::", &["store/redis_store"]),
    ("clap::", &["cli/"]),
    ("clap_complete::", &["cli/"]),
    ("anyhow::", &["cli/"]),
    ("indicatif::", &["cli/progress.rs"]),
    ("std::env::", &["cli/environment.rs", "main.rs"]),
    // The second counts cores; the third waits for signals.
    ("thread::", &["pipeline/", "cli/commands/ingest.rs", "cli/signals.rs"]),
    ("signal_hook::", &["cli/signals.rs"]),
    ("Utc::", &["run/clock.rs"]),
    // Leases in an embedded store go by this machine's clock.
    ("SystemTime", &["run/clock.rs", "store/lmdb_store/records.rs"]),
    ("etcetera::", &["cli/environment.rs"]),
];

/// A file of the repository: its path below the folder that was asked for, and its text.
type Source = (String, String);

fn sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found = Vec::new();
    collect(&root, &root, &mut found);
    assert!(!found.is_empty(), "{folder} has no source");
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Whether a whole file of `src` is compiled for tests only.
fn is_test_file(name: &str) -> bool {
    let stem = name.trim_end_matches(".rs");
    stem == "store/test_server" || stem == "store/conformance" || stem.ends_with("tests") || stem.contains("/tests/")
}

/// The part of a file that is no test; its tests stand at its end.
fn without_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod tests {").next().unwrap()
}

/// The source of the program, its tests left out.
fn program() -> Vec<Source> {
    let files = sources("src").into_iter().filter(|(name, _)| !is_test_file(name));
    files.map(|(name, text)| (name, without_tests(&text).to_owned())).collect()
}

/// Fails with all faults at once.
#[track_caller]
fn assert_none(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Whether `text` has `words` where no longer name ends in them.
fn names(text: &str, words: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(words).any(|(at, _)| !text[..at].chars().next_back().is_some_and(is_part))
}

/// The text without comments, so that prose may speak of anything.
fn code(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn functions_and_files_are_short() {
    let mut faults = Vec::new();
    for folder in ["src", "tests", "benches"] {
        for (name, text) in sources(folder) {
            let lines: Vec<_> = text.lines().collect();
            for (start, line) in lines.iter().enumerate().filter(|(_, line)| is_function(line)) {
                let indent = &line[..line.len() - line.trim_start().len()];
                let end = format!("{indent}}}");
                let length = lines[start..].iter().position(|line| *line == end).map_or(1, |length| length + 1);
                if length > FUNCTION_LINES_MAX && !line.ends_with(';') && !line.ends_with('}') {
                    faults.push(format!("{folder}/{name}:{}: a function of {length} lines", start + 1));
                }
            }
            let length = without_tests(&text).lines().count();
            if length > FILE_LINES_MAX && folder == "src" && !is_test_file(&name) {
                faults.push(format!("{folder}/{name}: {length} lines"));
            }
        }
    }
    assert_none(faults);
}

/// Whether a function begins on `line`; the formatter puts its words there in this order.
fn is_function(line: &str) -> bool {
    let mut words = line.trim_start();
    for word in ["pub ", "pub(crate) ", "pub(super) ", "const ", "async ", "unsafe "] {
        words = words.strip_prefix(word).unwrap_or(words);
    }
    words.starts_with("fn ")
}

#[test]
fn modules_name_only_those_below_them() {
    let mut faults = Vec::new();
    for (module, allowed) in DIRECTIONS {
        for (name, text) in program() {
            if !name.starts_with(&format!("{module}/")) {
                continue;
            }
            let text = code(&text);
            for (other, _) in DIRECTIONS.iter().filter(|(other, _)| *other != module && !allowed.contains(other)) {
                if names(&text, &format!("crate::{other}")) || names(&text, &format!("super::super::{other}")) {
                    faults.push(format!("src/{name} names `{other}`"));
                }
            }
            if text.contains("crate::{") {
                faults.push(format!("src/{name} names several modules at once, which this test cannot read"));
            }
        }
    }
    assert_none(faults);
}

#[test]
fn crates_clocks_threads_and_the_environment_have_their_places() {
    let mut faults = Vec::new();
    for (name, text) in program() {
        let text = code(&text);
        for (words, places) in PLACES {
            let is_named = names(&text, words);
            if is_named && !places.iter().any(|place| name.starts_with(place)) {
                faults.push(format!("src/{name} names `{words}`, which belongs in {}", places.join(", ")));
            }
        }
    }
    assert_none(faults);
}

#[test]
fn domain_types_have_no_wire_format() {
    let files = program().into_iter().filter(|(name, _)| name.starts_with("domain/"));
    assert_none(
        files.filter(|(_, text)| text.contains("serde")).map(|(name, _)| format!("src/{name} names serde")).collect(),
    );
}

#[test]
fn nothing_is_left_undone_ignored_or_waited_for() {
    // Put together here, so that this file does not hold them.
    let banned = [["TO", "DO"], ["FIX", "ME"], ["#[ig", "nore"], ["thread::sl", "eep"]].map(|parts| parts.concat());
    let mut faults = Vec::new();
    for folder in ["src", "tests", "benches"] {
        for (name, text) in sources(folder) {
            for word in &banned {
                // A benchmark samples its contenders, and its server is a process of another program.
                let may_wait = word.ends_with("sleep") && folder == "benches";
                if text.contains(word) && !may_wait {
                    faults.push(format!("{folder}/{name} has `{word}`"));
                }
            }
        }
    }
    assert_none(faults);
}

#[test]
fn the_map_in_lib_rs_names_every_module() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs")).unwrap();
    let modules: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    assert_eq!(modules.len(), DIRECTIONS.len(), "{modules:?}");
    for module in modules {
        assert!(DIRECTIONS.iter().any(|(known, _)| *known == module), "no direction for `{module}`");
        assert!(text.contains(&format!("//! | [`{module}`] | ")), "`{module}` is not on the map");
    }
}

#[test]
fn every_module_says_what_it_is_for() {
    let has_head = |(name, text): &Source| name == "main.rs" || text.starts_with("//! ");
    let faults = sources("src").into_iter().chain(sources("tests")).filter(|source| !has_head(source));
    assert_none(faults.map(|(name, _)| format!("{name} has no head")).collect());
}

#[test]
fn every_format_and_decision_has_its_feed() {
    let feeds = golden::feeds();
    for (_, name, extensions) in FORMATS {
        let has_feed =
            extensions.iter().any(|extension| feeds.keys().any(|feed| feed.ends_with(&format!(".{extension}"))));
        assert!(has_feed, "no feed of format `{name}`");
    }
    let mut met = BTreeMap::new();
    for feed in feeds.keys() {
        for name in crate::env::files_of(&fixture("golden").join(feed)).into_keys() {
            met.insert(name.split('.').nth(1).unwrap_or_default().to_owned(), ());
        }
    }
    for decision in [Decision::Accepted, Decision::Suppressed, Decision::Rejected] {
        assert!(met.contains_key(decision.file_kind()), "no feed yields {decision:?}");
    }
}
