//! A million records against an oracle that sorts: of equal records the first row is accepted, and no other.
//!
//! `FEEDS_LONG=1` takes ten million.

use std::collections::BTreeMap;

use crate::env::{Env, HEADER, STORES, is_long};

/// Records of a feed, unless the long mode is asked for.
const RECORDS: usize = 1_000_000;

/// Records of a feed in the long mode.
const RECORDS_LONG: usize = 10_000_000;

/// SplitMix64: small, seeded, and the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A generated feed: its text, where each record ends in it, and which record it is; none for a line that is no record.
struct Generated {
    text: String,
    ends: Vec<usize>,
    identities: Vec<Option<u64>>,
}

/// A feed of new records from `first` on, and of some that stood in it before, spelled anew.
fn generate(first: u64, records: usize, random: &mut Random) -> Generated {
    let mut feed = Generated { text: format!("{HEADER}\n"), ends: Vec::new(), identities: Vec::new() };
    let mut fresh = first;
    for _ in 0..records {
        let identity = match random.below(100) {
            0 => None,
            // Near or far, one in twenty was there before.
            1..=5 if fresh > first => Some(first + random.below(fresh - first)),
            _ => {
                fresh += 1;
                Some(fresh - 1)
            }
        };
        push_record(identity, random.below(4), &mut feed.text);
        feed.ends.push(feed.text.len());
        feed.identities.push(identity);
    }
    feed
}

/// One record in one of four spellings of the same content.
fn push_record(identity: Option<u64>, spelling: u64, text: &mut String) {
    use std::fmt::Write as _;
    let Some(id) = identity else { return text.push_str("DE-main,no-amount,n/a,EUR,2026-07-01\n") };
    let (account, cents, day) = (id % 97, id % 1_000_000, id % 28 + 1);
    let (whole, tenth) = (cents / 10, cents % 10);
    let written = match spelling {
        0 => writeln!(text, "ACC-{account:03},TX-{id:012},{whole}.{tenth},EUR,2026-07-{day:02}"),
        1 => writeln!(text, "ACC-{account:03},TX-{id:012},{whole}.{tenth}0,eur,2026-07-{day:02}"),
        2 => writeln!(text, "\"ACC-{account:03}\",\"TX-{id:012}\",+{whole}.{tenth}000,EUR,2026-07-{day:02}"),
        _ => writeln!(text, " ACC-{account:03},TX-{id:012} ,0{whole}.{tenth}, EUR,2026-07-{day:02}\r"),
    };
    written.expect("a string takes all text");
}

/// The records of `feed` by the file that they belong to, of those that are in none of `earlier`.
fn sorted_out(feed: &Generated, earlier: &Generated) -> BTreeMap<&'static str, String> {
    let known = sorted(earlier);
    let sorted = sorted(feed);
    let mut kinds = vec!["rejected"; feed.identities.len()];
    for (place, (identity, row)) in sorted.iter().enumerate() {
        let is_known = known.binary_search_by_key(identity, |(known, _)| *known).is_ok();
        let is_repeated = place > 0 && sorted[place - 1].0 == *identity;
        kinds[*row] = if is_known || is_repeated { "suppressed" } else { "accepted" };
    }
    let header = || format!("{HEADER}\n");
    let mut files = BTreeMap::from(["accepted", "suppressed", "rejected"].map(|kind| (kind, header())));
    let mut start = HEADER.len() + 1;
    for (kind, end) in kinds.into_iter().zip(&feed.ends) {
        files.get_mut(kind).expect("all kinds are there").push_str(&feed.text[start..*end]);
        start = *end;
    }
    files
}

/// Identities with their rows, the first row of equal ones first.
fn sorted(feed: &Generated) -> Vec<(u64, usize)> {
    let numbered = feed.identities.iter().enumerate();
    let mut sorted: Vec<_> = numbered.filter_map(|(row, identity)| Some(((*identity)?, row))).collect();
    sorted.sort_unstable();
    sorted
}

fn check(env: &Env, name: &str, feed: &Generated, earlier: &Generated) {
    env.write(&format!("{name}.csv"), &feed.text);
    let ran = env.run(&["ingest", &format!("{name}.csv"), "-q"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    for (kind, expected) in sorted_out(feed, earlier) {
        let found = env.text(&format!("{name}.{kind}.csv"));
        let differs = found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
        assert!(found == expected, "the {kind} file of {name} differs from the oracle's in line {differs:?}");
    }
}

#[test]
fn a_million_records_are_sorted_out_as_the_oracle_does() {
    let records = if is_long() { RECORDS_LONG } else { RECORDS };
    let random = &mut Random(20_260_715);
    let nothing = Generated { text: String::new(), ends: Vec::new(), identities: Vec::new() };
    let july = generate(0, records, random);
    // Half of it is new.
    let august = generate(july.identities.len() as u64 * 9 / 10, records / 5, random);
    for store in STORES {
        let env = Env::new(*store);
        check(&env, "july", &july, &nothing);
        check(&env, "august", &august, &july);
    }
}
