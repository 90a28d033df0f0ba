//! Every failure: its message word for word, its exit code, and that nothing is left half-written.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::process::Command;

use sha2::{Digest as _, Sha256};

use crate::env::{Env, HEADER, NOW, STORES, StoreKind, files_of};
use crate::stopped::StoppedRun;

const ROW: &str = "DE-main,T1,-12.50,EUR,2026-07-01\n";

/// A feed of the canonical columns with two records, 1.00 and -12.50 EUR.
fn feed() -> String {
    format!("{HEADER}\n{ROW}DE-main,T2,1.00,EUR,2026-07-02\n")
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `ingest words` over `july.csv` holding `content` ends with `code`, says `stderr`, and leaves nothing but the feed.
#[track_caller]
fn check_feed(content: impl AsRef<[u8]>, words: &[&str], code: i32, stderr: &str) {
    for store in STORES {
        let env = Env::new(*store);
        env.write("july.csv", &content);
        env.ingest(&[&["july.csv"], words].concat()).said_besides_store().check(code, stderr);
        let left: Vec<_> = env.files().into_keys().filter(|name| !name.ends_with(".journal.jsonl")).collect();
        assert_eq!(left, ["july.csv"], "nothing is half-written on {store:?}");
    }
}

/// The whole command line of words ends with `code` and says `stderr`, in a folder that holds a good feed.
#[track_caller]
fn check_words(words: &[&str], code: i32, stderr: &str) {
    let env = Env::embedded();
    env.write("july.csv", feed());
    env.run(words).check(code, stderr);
    assert_eq!(env.files().into_keys().collect::<Vec<_>>(), ["july.csv"]);
    assert!(!env.store_folder().exists(), "no store was made");
}

#[test]
fn an_input_that_is_not_there_or_no_file() {
    let env = Env::embedded();
    std::fs::create_dir(env.path("folder.csv")).unwrap();
    symlink("nowhere", env.path("dangling.csv")).unwrap();
    let gone = "caused by: No such file or directory (os error 2)";
    env.ingest(&["gone.csv"]).check(66, &format!("error: cannot open `gone.csv`\n  {gone}\n"));
    env.ingest(&["dangling.csv"]).check(66, &format!("error: cannot open `dangling.csv`\n  {gone}\n"));
    env.ingest(&["folder.csv"]).check(66, "error: cannot open `folder.csv`\n  caused by: is a directory\n");
    env.run(&["hash", "gone.csv"]).check(66, &format!("error: cannot open `gone.csv`\n  {gone}\n"));
    assert!(!env.store_folder().exists(), "no store was made");
}

#[test]
fn a_feed_that_is_no_statement() {
    let utf16: Vec<u8> = [0xff, 0xfe].into_iter().chain(feed().encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let convert = "  hint: convert it, or ask the bank for CSV in UTF-8\n";
    let needed = "the first line is no header with the columns that are needed";
    let name_them = "  hint: name the feed's own columns in a profile and give it with `--profile`\n";
    check_feed("", &[], 65, "error: july.csv: the feed is empty and has no header\n");
    check_feed("\n\n", &[], 65, "error: july.csv: the feed has no header\n");
    check_feed(ROW.repeat(3), &[], 65, &format!("error: july.csv:1: {needed}\n{name_them}"));
    check_feed(utf16, &[], 65, &format!("error: july.csv: the text is UTF-16, and UTF-8 is needed\n{convert}"));
    check_feed(
        b"\x1f\x8b\x08\0",
        &[],
        65,
        &format!("error: july.csv: the file is compressed with gzip, which this version does not read\n{convert}"),
    );
    check_feed(
        "x".repeat(3 << 20),
        &[],
        65,
        "error: july.csv:1: the line is longer than 1 MiB, which no statement has\n",
    );
}

#[test]
fn a_column_that_is_not_there() {
    let header = HEADER.replace("amount", "betrag");
    check_feed(
        format!("\n{header}\n{ROW}"),
        &[],
        65,
        "error: july.csv:2: there is no column `amount` for `amount`\n  hint: the header has `account_id`, \
         `bank_txn_id`, `betrag`, `currency`, `posted_at`\n",
    );
    check_feed(
        format!("{HEADER},amount\n"),
        &[],
        65,
        "error: july.csv:1: the header names `amount` more than once\n  hint: name a column that stands there once, \
         or give the field as a constant\n",
    );
}

#[test]
fn a_json_document_instead_of_lines() {
    let env = Env::embedded();
    env.write("july.jsonl", "\n[\n{}]\n");
    env.ingest(&["july.jsonl"]).check(
        65,
        "error: july.jsonl:1: the feed is one JSON array, and JSON lines are needed: an object on each line\n",
    );
}

#[test]
fn gates_that_do_not_hold() {
    let freed = "  hint: nothing is published and no claim is kept: correct the feed, the profile or the expectation\n";
    check_feed(
        feed(),
        &["--expect-records", "3"],
        65,
        &format!("error: july.csv: the feed has 2 records where 3 are expected\n{freed}"),
    );
    check_feed(
        feed(),
        &["--expect-records", "2", "--expect-total", "EUR=-11.51"],
        65,
        &format!("error: july.csv: the feed's total is -11.50 EUR where -11.51 is expected\n{freed}"),
    );
    check_feed(
        format!("{HEADER}\n{}", "bad\n".repeat(20)),
        &[],
        65,
        &format!(
            "error: july.csv: 20 of 20 records are rejected, more than 50 %: the profile does not fit\n  caused by: \
             july.csv:2: rejected: the row has 1 column where the header has 5\n{freed}"
        ),
    );
    check_feed(
        format!("{HEADER}\n{}{}", ROW.repeat(180), "bad\n".repeat(20)),
        &["--reject-limit", "9"],
        65,
        &format!(
            "error: july.csv: 20 of 200 records are rejected, more than 9 %: the profile does not fit\n  caused by: \
             july.csv:182: rejected: the row has 1 column where the header has 5\n{freed}"
        ),
    );
}

#[test]
fn a_gate_that_does_not_hold_leaves_the_records_to_others() {
    for store in STORES {
        let env = Env::new(*store);
        env.write("july.csv", feed());
        assert_eq!(env.ingest(&["july.csv", "--expect-records", "3"]).code, Some(65));
        env.write("again.csv", format!("{}\n", feed()));
        env.ingest(&["again.csv"]).check_silent();
        assert_eq!(env.text("again.accepted.csv"), feed());
    }
}

#[test]
fn an_output_folder_that_is_not_there() {
    let create = "  hint: create it, or give another with `--out-dir`\n";
    check_words(
        &["ingest", "july.csv", "--out-dir", "out"],
        73,
        &format!(
            "error: there is no output folder `out`\n  caused by: No such file or directory (os error 2)\n{create}"
        ),
    );
    check_words(
        &["ingest", "july.csv", "--out-dir", "july.csv"],
        73,
        &format!("error: there is no output folder `july.csv`\n  caused by: not a directory\n{create}"),
    );
}

/// Runs the binary with `words` where `out` is a small file system of its own, mounted with `options`; the test sees
/// what is left in it as standard output.
fn run_in_small_disk(env: &Env, options: &str, words: &[&str]) -> crate::env::Ran {
    std::fs::create_dir_all(env.path("out")).unwrap();
    let inner = env.command(words);
    let mut command = Command::new("unshare");
    let script = format!("mount -t tmpfs -o {options} tmpfs out || exit 99; \"$@\"; code=$?; ls -A out; exit $code");
    command.args(["--map-root-user", "--mount", "sh", "-c", &script, "sh"]).arg(inner.get_program());
    command.args(inner.get_args()).current_dir(inner.get_current_dir().unwrap()).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = env.finish(command, b"");
    let is_mounted = ran.code != Some(99) && !ran.stderr.contains("unshare:");
    assert!(is_mounted, "this test mounts a file system in a namespace of its own, and may not: {}", ran.stderr);
    ran
}

/// A feed whose accepted file needs more than 64 KiB.
fn large_feed() -> String {
    let rows: String =
        (0..2_000).map(|row| format!("DE-main,LONG-TRANSACTION-ID-{row:06},1.00,EUR,2026-07-01\n")).collect();
    format!("{HEADER}\n{rows}")
}

#[test]
fn a_disk_without_room_for_the_outputs() {
    for store in STORES {
        let env = Env::new(*store);
        env.write("july.csv", large_feed());
        let words = ["ingest", "july.csv", "--out-dir", "out", "--run-id", "r-july"];
        let ran = run_in_small_disk(&env, "size=64k", &words).said_besides_store();
        assert_eq!(ran.stdout, "july.journal.jsonl\n", "nothing is half-written");
        crate::env::assert_same(
            "standard error",
            &ran.stderr,
            "error: could not write `[root]/feeds/out/july.accepted.csv`\n  caused by: No space left on device \
             (os error 28)\n  hint: nothing of this feed is published: mend the cause and repeat the command, the run \
             goes on\n",
        );
        assert_eq!(ran.code, Some(74));
        env.ingest(&["july.csv", "--run-id", "r-july"]).check_silent();
        assert_eq!(env.text("july.accepted.csv"), large_feed(), "repeated with room, the run goes on");
    }
}

#[test]
fn a_disk_without_room_for_the_store() {
    let env = Env::embedded();
    env.write("july.csv", large_feed());
    let ran = run_in_small_disk(&env, "size=64k", &["ingest", "july.csv", "--store", "file:out/store"]);
    assert_eq!(ran.stdout, "store\n");
    let told = ran.stderr.replace("created the store `file:out/store`\n", "");
    crate::env::assert_same(
        "standard error",
        &told,
        "error: could not use the store at `out/store`\n  caused by: no storage space\n  hint: \
         nothing of this input is published: mend the cause and repeat the command, it goes on where it stopped\n",
    );
    assert_eq!(ran.code, Some(74));
    let left: Vec<_> = env.files().into_keys().filter(|name| !name.ends_with(".journal.jsonl")).collect();
    assert_eq!(left, ["july.csv"], "nothing is half-written");
}

#[test]
fn a_folder_that_cannot_be_written_to() {
    let env = Env::embedded();
    env.write("july.csv", feed());
    let ran = run_in_small_disk(&env, "ro", &["ingest", "july.csv", "--out-dir", "out"]).said_besides_store();
    ran.check(
        73,
        "error: could not write the journal `[root]/feeds/out/july.journal.jsonl`\n  caused by: Read-only file system \
         (os error 30)\n  hint: nothing of this feed is published: mend the cause and repeat the command, the run goes \
         on\n",
    );
}

#[test]
fn a_store_that_is_not_there_and_must_not_be_made() {
    for store in STORES {
        let env = Env::new(*store);
        env.write("july.csv", feed());
        env.ingest(&["july.csv", "--create-store", "false"]).check(
            78,
            "error: there is no store at `[store]`, and `create_store` is false\n  hint: set `store` to the store that \
             is in use, or give `--create-store true` once to begin a new one\n",
        );
        assert_eq!(env.files().into_keys().collect::<Vec<_>>(), ["july.csv"]);
    }
}

#[test]
fn a_store_that_is_an_older_copy_or_cut_off() {
    let env = Env::embedded();
    let data = env.store_folder().join("data.mdb");
    env.write("july.csv", feed());
    env.ingest(&["july.csv"]).check_silent();
    let older = std::fs::read(&data).unwrap();
    env.write("august.csv", format!("{HEADER}\n{}", ROW.replace("2026-07", "2026-08").replace("T1", "T3")));
    env.ingest(&["august.csv"]).check_silent();
    let newer = std::fs::read(&data).unwrap();
    std::fs::write(&data, &older).unwrap();
    let ran = env.ingest(&["august.csv"]);
    assert_eq!(ran.code, Some(76), "{ran:?}");
    assert!(ran.stderr.contains("is an older copy of itself"), "{}", ran.stderr);
    std::fs::write(&data, &newer[..2 * 4096]).unwrap();
    let ran = env.ingest(&["august.csv"]);
    assert_eq!(ran.code, Some(76), "{ran:?}");
    assert!(ran.stderr.contains("`data.mdb` was cut off"), "{}", ran.stderr);
    std::fs::write(&data, &newer).unwrap();
    env.ingest(&["august.csv"]).check_silent();
}

#[test]
fn a_store_that_others_use_meanwhile_is_no_older_copy() {
    for store in STORES {
        // Before and behind the reading of what is remembered of the store: it is looked at, opened, and looked at once
        // more, first for the store's identity, then for its age, and then to remember the new age.
        for look in 1..=6 {
            let env = Env::new(*store);
            env.write("june.csv", feed());
            env.write("july.csv", format!("{HEADER}\n{ROW}"));
            env.ingest(&["june.csv"]).check_silent();
            let memories = env.store_folder().with_file_name("stores");
            let names: Vec<_> = files_of(&memories).into_keys().collect();
            let memory = memories.join(names.first().expect("it remembers the store"));
            let command = env.command(&["ingest", "june.csv", "--now", NOW]);
            let stopped = StoppedRun::start_until(&env, &command, ("statx", look), &[memory.to_str().unwrap()]);
            env.ingest(&["july.csv"]).check(0, "");
            stopped.go_on().check(0, "");
        }
    }
}

#[test]
fn a_store_that_was_used_and_is_gone() {
    let env = Env::embedded();
    env.write("july.csv", feed());
    env.ingest(&["july.csv"]).check_silent();
    let files = env.files();
    let restore = "  hint: nothing of this input is published: put the newest copy of the store back before anything is \
             ingested again; what was taken in since that copy is accepted again\n";
    std::fs::remove_dir_all(env.store_folder()).unwrap();
    let gone = "error: the store at `[store]` has forgotten its claims\n  caused by: its folder is empty or gone\n";
    env.ingest(&["july.csv"]).check(76, &format!("{gone}{restore}"));
    env.ingest(&["july.csv", "--dry-run"]).check(76, &format!("{gone}{restore}"));
    let other = Env::embedded();
    other.write("july.csv", feed());
    other.ingest(&["july.csv"]).check_silent();
    std::fs::rename(other.store_folder(), env.store_folder()).unwrap();
    let another = "error: the store at `[store]` has forgotten its claims\n  caused by: it is another store than the one \
                   that was used before\n";
    env.ingest(&["july.csv"]).check(76, &format!("{another}{restore}"));
    assert_eq!(env.files(), files, "nothing is written");
}

#[test]
fn a_server_that_forgot_or_would_forget() {
    let env = Env::new(StoreKind::Redis);
    env.write("july.csv", feed());
    env.ingest(&["july.csv"]).check_silent();
    let files = env.files();
    env.ask_server("CONFIG SET maxmemory-policy allkeys-lru");
    env.ingest(&["july.csv"]).check(
        78,
        "error: the store at `[store]` cannot be trusted with claims\n  caused by: its `maxmemory-policy` is \
         `allkeys-lru`, under which it drops claims\n  hint: set `maxmemory-policy noeviction` on the server, in its \
         configuration file too\n",
    );
    env.ask_server("CONFIG SET maxmemory-policy noeviction");
    env.ask_server("FLUSHALL");
    for words in [&["july.csv"][..], &["july.csv", "--dry-run"]] {
        env.ingest(words).check(
            76,
            "error: the store at `[store]` has forgotten its claims\n  caused by: it was used before and is empty now, or \
             has another prefix\n  hint: nothing of this input is published: put the newest copy of the store back \
             before anything is ingested again; what was taken in since that copy is accepted again\n",
        );
    }
    assert_eq!(env.files(), files, "nothing is written");
}

#[test]
fn a_server_that_nobody_runs() {
    let env = Env::embedded();
    env.write("july.csv", feed());
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let url = format!("redis://127.0.0.1:{port}/0");
    for dry in [&[][..], &["--dry-run"]] {
        env.ingest(&[&["july.csv", "--store", &url], dry].concat()).check(
            75,
            &format!(
                "error: no answer from the store at `{url}`\n  caused by: Connection refused (os error 111)\n  hint: \
                 nothing of this input is published: start the store and repeat the command, it goes on where it \
                 stopped\n"
            ),
        );
    }
    assert_eq!(env.files().into_keys().collect::<Vec<_>>(), ["july.csv"]);
}

#[test]
fn a_server_that_does_not_answer_is_gone_on_with_later() {
    let env = Env::new(StoreKind::Redis);
    env.write("july.csv", large_feed());
    env.ingest(&["july.csv", "--run-id", "r-0"]).check_silent();
    let server = env.server.as_ref().unwrap();
    env.write("august.csv", large_feed().replace("DE-main", "US-main"));
    server.pause();
    let ran = env.ingest(&["august.csv", "--run-id", "r-august"]);
    server.resume();
    assert!(ran.stderr.starts_with("error: no answer from the store at `[store]`\n  caused by: "), "{}", ran.stderr);
    assert_eq!(ran.code, Some(75));
    env.ingest(&["august.csv", "--run-id", "r-august"]).check(0, "");
    assert_eq!(env.text("august.accepted.csv"), env.text("august.csv"));
}

#[test]
fn a_run_id_of_another_feed_or_for_several() {
    for store in STORES {
        let env = Env::new(*store);
        env.write("july.csv", feed());
        env.write("august.csv", feed().replace("T1", "T8"));
        env.ingest(&["july.csv", "--run-id", "r-1"]).check_silent();
        let files = env.files();
        env.ingest(&["august.csv", "--run-id", "r-1"]).check(
            2,
            "error: run `r-1` is over another feed, which was `july.csv`\n  hint: give another `--run-id`, or none\n",
        );
        env.ingest(&["july.csv", "august.csv", "--run-id", "r-2"]).check(
            2,
            "error: `--run-id` goes with one input, and there are 2\n  hint: give a command for each input\n",
        );
        assert_eq!(env.files(), files, "nothing is written");
    }
}

#[test]
fn a_feed_that_another_process_ingests() {
    for store in STORES {
        let env = Env::new(*store);
        env.write("july.csv", feed());
        let folder = env.lock_folder();
        std::fs::create_dir_all(&folder).unwrap();
        let lock = File::create(folder.join(format!("{}.lock", hex(feed().as_bytes())))).unwrap();
        lock.try_lock().unwrap();
        env.ingest(&["july.csv"]).said_besides_store().check(
            75,
            "error: the feed is being ingested already, by another process\n  hint: let it finish: the feed is decided \
             there\n",
        );
        assert_eq!(env.files().into_keys().collect::<Vec<_>>(), ["july.csv"]);
        drop(lock);
        env.ingest(&["july.csv"]).check_silent();
    }
}

#[test]
fn values_that_are_refused_name_their_place() {
    let range = "  hint: give a number from 1 to 10,000\n";
    check_words(
        &["ingest", "july.csv", "--batch-size", "0"],
        2,
        &format!("error: `batch_size` from `--batch-size` is 0\n{range}"),
    );
    let env = Env::embedded();
    env.write("july.csv", feed());
    let mut command = env.command(&["ingest", "july.csv"]);
    command.env("FEEDDEDUP_BATCH_SIZE", "many");
    env.finish(command, b"").check(78, &format!("error: `batch_size` in `FEEDDEDUP_BATCH_SIZE` is `many`\n{range}"));
    let mut command = env.command(&["ingest", "july.csv"]);
    command.env("FEEDDEDUP_BACTH_SIZE", "1");
    env.finish(command, b"").check(
        78,
        "error: there is no setting for the variable `FEEDDEDUP_BACTH_SIZE`\n  hint: did you mean \
         `FEEDDEDUP_BATCH_SIZE`?\n",
    );
    env.write("feeddedup.toml", "\nbatch_size = 10001\n");
    env.ingest(&["july.csv"]).check(78, &format!("error: `batch_size` in `feeddedup.toml:2` is 10001\n{range}"));
    env.write("feeddedup.toml", "batch-size = 1\n");
    env.ingest(&["july.csv"]).check(
        78,
        "error: there is no setting `batch-size`, which `feeddedup.toml:1` gives\n  hint: did you mean `batch_size`?\n",
    );
    env.write("feeddedup.toml", "batch_size = \n");
    let ran = env.ingest(&["july.csv"]);
    assert!(ran.stderr.starts_with("error: `feeddedup.toml:1` is not TOML\n"), "{}", ran.stderr);
    assert_eq!(ran.code, Some(78));
    assert!(!env.store_folder().exists(), "no store was made");
}

#[test]
fn a_password_on_the_command_line_is_refused_and_not_repeated() {
    let words = ["ingest", "july.csv", "--store", "redis://alice:s3cr3t@localhost:6379/0"];
    check_words(
        &words,
        2,
        "error: `--store` holds a password, which others on this machine could read\n  hint: give it by \
         `password_file`, the systemd credential `feeddedup-redis` or FEEDDEDUP_REDIS_PASSWORD\n",
    );
}

#[test]
fn what_this_version_does_not_have_is_refused() {
    for (flag, value, error) in [
        ("--fail-mode", "open", "`fail_mode` from `--fail-mode` is `open`, which this version does not have"),
        ("--layout", "compact", "`layout` from `--layout` is `compact`, which this version does not have"),
    ] {
        let env = Env::embedded();
        env.write("july.csv", feed());
        let ran = env.ingest(&["july.csv", flag, value]);
        assert!(ran.stderr.starts_with(&format!("error: {error}\n  hint: leave it at ")), "{}", ran.stderr);
        assert_eq!(ran.code, Some(2));
    }
}

#[test]
fn a_profile_that_cannot_be_followed() {
    let env = Env::embedded();
    env.write("july.csv", feed());
    env.ingest(&["july.csv", "--profile", "gone.toml"])
        .check(78, "error: cannot read the profile `gone.toml`\n  caused by: No such file or directory (os error 2)\n");
    env.write("bank.toml", "\ndecimal_mark = \"'\"\n");
    env.ingest(&["july.csv", "--profile", "bank.toml"])
        .check(78, "error: bank.toml:2: `'` is no decimal mark; there are `.` and `,`\n");
}

#[test]
fn words_that_do_not_go_together() {
    let usage = |words: &[&str], stderr: &str| check_words(words, 2, stderr);
    usage(
        &["ingest", "-"],
        "error: cannot tell where the files of standard input should go\n  hint: give `--name` or `--out-dir`\n",
    );
    usage(
        &["ingest", "-", "-", "--out-dir", "."],
        "error: standard input can be read once only\n  hint: give `-` once\n",
    );
    usage(
        &["ingest", "july.csv", "july.csv", "--name", "x"],
        "error: `--name` goes with one input, and there are 2\n  hint: give a command for each input\n",
    );
    usage(&["ingest", "july.csv", "--tag", "a=1", "--tag", "a=2"], "error: the tag `a` is given twice\n");
    for words in [&["ingest"][..], &["swallow"], &["ingest", "july.csv", "--now", "yesterday"]] {
        let env = Env::embedded();
        let ran = env.run(words);
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    }
}
