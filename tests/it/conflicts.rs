//! Payments that come again with other content: diverted, explained without a value, on both stores alike.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::env::{Env, HEADER, NOW, STORES, StoreKind, assert_same_files};
use crate::stopped::StoppedRun;

fn feed(rows: &[&str]) -> String {
    format!("{HEADER}\n{}\n", rows.join("\n"))
}

const JUNE: &str = "DE-main,B-1,100.00,EUR,2026-06-30";

/// A world in which June was taken in, as run `r-june`.
fn after_june(store: StoreKind) -> Env {
    let env = Env::new(store);
    env.write("june.csv", feed(&[JUNE, "DE-main,B-2,5.00,EUR,2026-06-30", "DE-sub,B-1,7.00,EUR,2026-06-30"]));
    env.ingest(&["june.csv", "--run-id", "r-june"]).check_silent();
    env
}

/// The audit log's lines of records in conflict.
fn conflicts_in(audit: &str) -> Vec<Value> {
    let lines = audit.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.filter(|line: &Value| line["match_decision"] == "IDEMPOTENCY_CONFLICT").collect()
}

/// The source hash and the identity hash of the first record of `feed`.
fn hashes(env: &Env, feed: &str) -> (String, String) {
    let ran = env.run(&["hash", feed, "--json"]);
    let first: Value = serde_json::from_str(ran.stdout.lines().next().unwrap()).unwrap();
    let text = |key: &str| first[key].as_str().unwrap().to_owned();
    (text("source_hash"), text("identity_hash"))
}

#[test]
fn a_changed_payment_is_diverted_and_told_with_the_fields_that_differ_and_where_the_first_one_stands() {
    let mut outputs = Vec::new();
    for store in STORES {
        let env = after_june(*store);
        let rows = [
            JUNE,
            "DE-main,B-1,100.01,EUR,2026-06-30",
            "DE-main,B-1,100.00,USD,2026-06-30",
            "DE-main,B-1,100.00,EUR,2026-07-01",
            "DE-main,B-1,99.00,CHF,2026-07-02T10:00:00Z",
            "DE-main,B-3,1.00,EUR,2026-07-01",
        ];
        env.write("july.csv", feed(&rows));
        let words = ["july.csv", "--run-id", "r-july", "--conflict-limit", "100"];
        env.ingest(&words).check(
            3,
            "july.csv:3: conflict: the payment was taken in before with another amount, in row 1 of `june.csv` (run \
             `r-june`)\n\
             july.csv:4: conflict: the payment was taken in before with another currency, in row 1 of `june.csv` (run \
             `r-june`)\n\
             july.csv:5: conflict: the payment was taken in before with another posted_at, in row 1 of `june.csv` (run \
             `r-june`)\n\
             july.csv:6: conflict: the payment was taken in before with another amount, currency and posted_at, in row 1 \
             of `june.csv` (run `r-june`)\n\
             run `r-july` published: 6 records: 1 accepted, 1 suppressed, 4 conflicting\n",
        );
        assert_eq!(env.text("july.conflicts.csv"), feed(&rows[1..5]));
        assert_eq!(env.text("july.suppressed.csv"), feed(&rows[..1]));
        assert_eq!(env.text("july.accepted.csv"), feed(&rows[5..]));
        let summary: Value = serde_json::from_str(&env.text("july.summary.json")).unwrap();
        assert_eq!(summary["decisions"]["IDEMPOTENCY_CONFLICT"]["records"], 4);
        assert_eq!(summary["gates"]["conflicts_per_million"], 666_666);
        assert_eq!(summary["exit_code"], 3);

        let conflicts = conflicts_in(&env.text("july.audit.jsonl"));
        let changed: Vec<_> = conflicts.iter().map(|line| line["changed_fields"].clone()).collect();
        let expected =
            [json!(["amount"]), json!(["currency"]), json!(["posted_at"]), json!(["amount", "currency", "posted_at"])];
        assert_eq!(changed, expected);
        let (original, identity) = hashes(&env, "june.csv");
        for line in &conflicts {
            assert_eq!(line["idempotency_key"], identity);
            assert_eq!(line["original_hash"], original[..24]);
            assert_eq!(line["new_hash"], line["source_hash"]);
            assert_eq!(
                (&line["first_trace_id"], &line["first_file"], &line["first_seen_at"]),
                (&"r-june:1".into(), &"june.csv".into(), &NOW.into())
            );
            assert_eq!(line["reason"], "published_run");
            assert_eq!(line["ErrorCode"], "IDEMPOTENCY_CONFLICT");
            assert_eq!(line["PreviousResourceUri"], "feeddedup:trace/r-june:1");
            assert_eq!(line["PreviousPayloadHash"], original[..24]);
        }
        let audit = env.text("july.audit.jsonl");
        for value in ["DE-main", "B-1", "100.0", "99.00", "CHF", "2026-06-30", "2026-07-02"] {
            assert!(!audit.contains(value), "{value} in {audit}");
        }
        outputs.push(env.published());
    }
    for other in &outputs[1..] {
        assert_same_files("another store", other, &outputs[0]);
    }
}

#[test]
fn machines_are_told_of_every_conflict_in_a_shape_that_they_know() {
    let env = after_june(StoreKind::Embedded);
    env.write("july.csv", feed(&[&JUNE.replace("100.00", "7.00"), JUNE]));
    let ran = env.ingest(&["july.csv", "--json"]);
    assert_eq!(ran.code, Some(3));
    let run: Value = serde_json::from_str(ran.stdout.lines().next().unwrap()).unwrap();
    let conflicts = run["conflicts"].as_array().unwrap();
    assert_eq!(conflicts.len(), 1);
    let (original, identity) = hashes(&env, "june.csv");
    let (new, _) = hashes(&env, "july.csv");
    let expected = json!({
        "row": 1,
        "line": 2,
        "idempotency_key": identity,
        "original_hash": original[..24],
        "new_hash": new,
        "changed_fields": ["amount"],
        "ErrorCode": "IDEMPOTENCY_CONFLICT",
        "ErrorDescription": "the payment was taken in before with another amount",
        "PreviousResourceUri": "feeddedup:trace/r-june:1",
        "PreviousPayloadHash": original[..24],
    });
    assert_eq!(conflicts[0], expected);
}

#[test]
fn of_two_contents_in_one_feed_the_first_row_is_accepted_whatever_the_batch_and_the_day() {
    for store in STORES {
        let mut outputs = Vec::new();
        for batch_size in ["1", "2", "1000"] {
            let env = Env::new(*store);
            let rows = [
                "DE-main,B-1,1.00,EUR,2026-07-09",
                "DE-main,B-1,2.00,EUR,2026-07-01",
                "DE-main,B-1,1.00,EUR,2026-07-09",
                "DE-main,B-1,2.00,EUR,2026-07-01",
                "DE-main,B-1,3.00,EUR,2026-07-09",
            ];
            env.write("july.csv", feed(&rows));
            let common = ["july.csv", "--run-id", "r-july", "--conflict-limit", "100"];
            let ran = env.ingest(&[&common[..], &["--batch-size", batch_size]].concat());
            assert_eq!(ran.code, Some(3), "{ran:?}");
            assert!(
                ran.stderr.contains(
                    "july.csv:3: conflict: the payment was taken in before with another amount and \
                 posted_at, in row 1 of this feed\n"
                ),
                "{}",
                ran.stderr
            );
            assert_eq!(env.text("july.accepted.csv"), feed(&rows[..1]));
            assert_eq!(env.text("july.suppressed.csv"), feed(&rows[2..3]));
            assert_eq!(env.text("july.conflicts.csv"), feed(&[rows[1], rows[3], rows[4]]));
            outputs.push(env.published());
        }
        for other in &outputs[1..] {
            assert_same_files("another batch size", other, &outputs[0]);
        }
    }
}

#[test]
fn without_the_check_every_content_is_a_record_and_with_it_again_each_of_them_is_known() {
    for store in STORES {
        let env = after_june(*store);
        let changed = [JUNE.replace("100.00", "1.00"), JUNE.replace("2026-06-30", "2026-07-01")];
        env.write("july.csv", feed(&[&changed[0], &changed[1]]));
        env.ingest(&["july.csv", "--drift-check", "false"]).check_silent();
        assert_eq!(env.text("july.accepted.csv"), env.text("july.csv"));
        let third = JUNE.replace("100.00", "3.00");
        env.write("august.csv", feed(&[JUNE, &changed[0], &changed[1], &third]));
        env.ingest(&["august.csv", "--conflict-limit", "100", "-q"]).check(3, "");
        assert_eq!(env.text("august.suppressed.csv"), feed(&[JUNE, &changed[0], &changed[1]]));
        assert_eq!(env.text("august.conflicts.csv"), feed(&[&third]));
        env.write("september.csv", feed(&[&third]));
        env.ingest(&["september.csv", "--drift-check", "false"]).check_silent();
        assert_eq!(env.text("september.accepted.csv"), feed(&[&third]), "in conflict it was claimed by nobody");
    }
}

#[test]
fn a_bank_that_numbers_its_records_anew_is_stopped_before_anything_is_sealed() {
    for store in STORES {
        let env = Env::new(*store);
        let rows = |first: u32| {
            (0..400).fold(String::new(), |mut rows, number| {
                let id = first + number;
                writeln!(rows, "DE-main,B-{number},{id}.00,EUR,2026-07-{:02}", number % 28 + 1).unwrap();
                rows
            })
        };
        env.write("june.csv", format!("{HEADER}\n{}", rows(0)));
        env.ingest(&["june.csv", "--run-id", "r-june"]).check_silent();
        // The last 380 records are as they were.
        let (june, anew) = (rows(0), rows(1_000));
        let mixed = |changed: usize| -> String {
            anew.lines().take(changed).chain(june.lines().skip(changed)).map(|line| format!("{line}\n")).collect()
        };
        env.write("july.csv", format!("{HEADER}\n{}", mixed(21)));
        env.ingest(&["july.csv"]).check(
            65,
            "error: july.csv: 21 of 400 records are in conflict with earlier ones, more than 5 %: the bank may have numbered its \
             records anew\n  caused by: july.csv:2: conflict: the payment was taken in before with another amount, in \
             row 1 of `june.csv` (run `r-june`)\n  hint: nothing is published and no claim is kept: repeat the command \
             with `--dry-run` and `--conflict-limit 100` to see what differs\n",
        );
        assert!(!env.files().contains_key("july.summary.json"));
        env.write("august.csv", format!("{HEADER}\n{}", mixed(20)));
        let ran = env.ingest(&["august.csv", "-q"]);
        assert_eq!(ran.code, Some(3), "5 % are not more than 5 %: {ran:?}");
        env.write("few.csv", format!("{HEADER}\n{}", anew.lines().skip(100).take(1).collect::<String>()));
        assert_eq!(env.ingest(&["few.csv", "-q"]).code, Some(3), "one is too few to count");
        assert_eq!(
            env.ingest(&["few.csv", "-q", "--conflict-limit", "4"]).code,
            Some(65),
            "a limit that is set counts"
        );
    }
}

#[test]
fn a_payment_of_a_run_that_is_not_published_is_held_and_decided_once_it_is() {
    for store in STORES {
        let env = after_june(*store);
        env.write("july.csv", feed(&["DE-main,B-7,1.00,EUR,2026-07-01"]));
        env.write("august.csv", feed(&["DE-main,B-7,2.00,EUR,2026-07-01"]));
        let july = || env.command(&["ingest", "july.csv", "--run-id", "r-july", "--lease-s", "3600"]);
        let stopped = StoppedRun::start(&env, &july());
        assert_eq!(env.ingest(&["august.csv", "-q"]).code, Some(3));
        assert_eq!(env.text("august.held.csv"), env.text("august.csv"));
        let held: Value =
            env.text("august.audit.jsonl").lines().nth(2).map(|line| serde_json::from_str(line).unwrap()).unwrap();
        assert_eq!((&held["reason"], &held["first_trace_id"]), (&"run_not_published".into(), &"r-july:1".into()));
        stopped.kill();
        env.finish(july(), b"").check(0, "");
        env.ingest(&["august.csv", "-q"]).check(3, "");
        assert_eq!(env.text("august.2.conflicts.csv"), env.text("august.csv"));
    }
}

#[test]
fn a_dry_run_foretells_conflicts_and_leaves_no_trace() {
    for store in STORES {
        let env = after_june(*store);
        let changed = JUNE.replace("100.00", "1.00");
        env.write(
            "july.csv",
            feed(&[JUNE, &changed, "DE-main,C,1.00,EUR,2026-07-01", "DE-main,C,2.00,EUR,2026-07-01"]),
        );
        let ran = env.ingest(&["july.csv", "--dry-run", "--json", "--conflict-limit", "100"]);
        let told: Value = serde_json::from_str(ran.stdout.lines().next().unwrap()).unwrap();
        assert_eq!(
            (&told["decisions"]["ACCEPTED"], &told["decisions"]["IDEMPOTENCY_CONFLICT"], ran.code),
            (&1.into(), &2.into(), Some(3)),
            "{ran:?}"
        );
        let ran = env.ingest(&["july.csv", "--conflict-limit", "100"]);
        assert!(ran.stderr.contains("4 records: 1 accepted, 1 suppressed, 2 conflicting"), "{ran:?}");
    }
}

#[test]
fn a_run_that_is_taken_back_leaves_its_payments_to_another_content() {
    for store in STORES {
        let env = after_june(*store);
        env.run(&["revert", "r-june", "-q"]).check(0, "");
        let changed = JUNE.replace("100.00", "1.00");
        env.write("july.csv", feed(&[&changed, JUNE]));
        env.ingest(&["july.csv", "-q"]).check(3, "");
        assert_eq!(env.text("july.accepted.csv"), feed(&[&changed]));
        assert_eq!(env.text("july.conflicts.csv"), feed(&[JUNE]));
    }
}

/// Another writer's claim has no run: the payment is known by the first run that meets it.
#[test]
fn a_payment_of_another_writer_is_known_from_its_second_sight_on() {
    let env = Env::new(StoreKind::Redis);
    env.write("june.csv", feed(&[JUNE]));
    let (hash, _) = hashes(&env, "june.csv");
    env.claim_as_other_writer(&hash, "webhook-7|2026-06-30T10:00:00Z");
    env.ingest(&["june.csv", "--run-id", "r-june", "-q"]).said_besides_store();
    assert_eq!(env.text("june.suppressed.csv"), feed(&[JUNE]));
    env.write("july.csv", feed(&[&JUNE.replace("100.00", "1.00")]));
    let ran = env.ingest(&["july.csv"]);
    assert!(ran.stderr.contains("in row 1 of `june.csv` (run `r-june`)"), "{ran:?}");
}
