//! Signals: the first ends a run in order, so that repeating it goes on; the second ends the program at once.
//!
//! Nothing here waits for a time to pass: a test waits for a sign, such as a line of the journal, and holds a run where
//! it wants it by a pipe that nobody writes to or reads from, or by a server that is paused.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, fcntl_setfl, mkfifoat};
use rustix::process::{Pid, Signal, kill_process};

use crate::env::{Env, Files, HEADER, NOW, Ran, STORES, StoreKind, assert_same, assert_same_files};

/// No wait of these tests takes longer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Records that take a second at least where each is claimed by itself.
const RECORDS: u32 = 20_000;

/// The signals that ask for an end, and the exit code of each.
const SIGNALS: [(Signal, &str, i32); 3] =
    [(Signal::HUP, "SIGHUP", 129), (Signal::INT, "SIGINT", 130), (Signal::TERM, "SIGTERM", 143)];

/// What to do after an interruption.
const HINT: &str = "  hint: nothing of this feed is published: repeat the command to go on\n";

/// The run of these tests, whose outputs are the same bytes each time.
const INGEST: [&str; 6] = ["ingest", "july.csv", "--now", NOW, "--run-id", "r-july"];

/// What makes it slow enough to be met while it claims.
const SLOWLY: [&str; 2] = ["--batch-size", "1"];

/// A feed whose every tenth record is the one before it, once more.
fn feed() -> String {
    let ids = (0..RECORDS).map(|row| if row % 10 == 9 { row - 1 } else { row });
    let rows = ids.map(|id| format!("DE-main,T{id},1.00,EUR,2026-07-{:02}\n", id % 28 + 1));
    format!("{HEADER}\n{}", rows.collect::<String>())
}

/// A world with the feed, and a store that was used before.
fn world(env: Env) -> Env {
    env.write("june.csv", format!("{HEADER}\nDE-main,T0,1.00,EUR,2026-07-01\n"));
    env.ingest(&["june.csv", "--run-id", "r-june"]).check_silent();
    for (name, _) in env.files().into_iter().filter(|(name, _)| name.starts_with("june.")) {
        std::fs::remove_file(env.path(&name)).unwrap();
    }
    env.write("july.csv", feed());
    env
}

/// What the run leaves that nobody disturbs.
fn undisturbed(env: &Env) -> Files {
    let env = world(env.fresh());
    env.run(&INGEST).check(0, "");
    env.published()
}

/// The binary with `words`, started by way of the program `way`.
fn by_way_of(way: &[&str], env: &Env, words: &[&str]) -> Command {
    let inner = env.command(words);
    let mut command = Command::new(way[0]);
    command.args(&way[1..]).arg(inner.get_program()).args(inner.get_args());
    command.current_dir(inner.get_current_dir().unwrap()).env_clear();
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The binary with `words`. A test that itself runs in the background may ignore signals, and its children with it.
fn command(env: &Env, words: &[&str]) -> Command {
    by_way_of(&["/usr/bin/env", "--default-signal=HUP,INT,TERM"], env, words)
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits until `is_now`; `child` must not end before.
#[track_caller]
fn wait_until(child: &mut Child, mut is_now: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_now() {
        if let Some(status) = child.try_wait().unwrap() {
            let mut stderr = String::new();
            child.stderr.take().map(|mut stream| stream.read_to_string(&mut stderr));
            panic!("it ended before the sign, with {status}: {stderr}");
        }
        assert!(Instant::now() < deadline, "the sign does not come");
        std::thread::yield_now();
    }
}

/// Waits until the program catches `signal`.
#[track_caller]
fn wait_until_caught(child: &mut Child, signal: Signal) {
    let path = format!("/proc/{}/status", child.id());
    wait_until(child, || {
        let status = std::fs::read_to_string(&path).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
    });
}

/// Waits until the journal of the run has a line of `event`.
#[track_caller]
fn wait_for_event(env: &Env, child: &mut Child, event: &str) {
    let (path, line) = (env.path("july.journal.jsonl"), format!("\"event\":\"{event}\""));
    wait_until(child, || std::fs::read_to_string(&path).unwrap_or_default().contains(&line));
}

/// How often the program's thread for signals went to sleep; none while it is awake.
fn sleeps(process: u32) -> Option<u64> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let mut statuses = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("status")).ok());
    let status = statuses.find(|status| status.starts_with("Name:\tsignals\n"))?;
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    if value("State:")?.starts_with('S') { value("voluntary_ctxt_switches:")?.parse().ok() } else { None }
}

/// Sends `signal`, and waits until the program has noticed it: its thread for signals sleeps again.
#[track_caller]
fn ask(child: &mut Child, signal: Signal) {
    let process = child.id();
    let mut before = None;
    wait_until(child, || {
        before = sleeps(process);
        before.is_some()
    });
    send(child, signal);
    wait_until(child, || sleeps(process) > before);
}

/// Waits for the end of `child`, doing `meanwhile`.
#[track_caller]
fn end(child: &mut Child, mut meanwhile: impl FnMut(&Child)) -> Option<i32> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it does not end");
        }
        meanwhile(child);
        std::thread::yield_now();
    }
}

/// How `child` ended by itself, and what it said.
#[track_caller]
fn ended(env: &Env, mut child: Child) -> Ran {
    let code = end(&mut child, |_| {});
    let output = child.wait_with_output().unwrap();
    Ran { code, stdout: env.told(&output.stdout), stderr: env.told(&output.stderr) }
}

/// Nothing is published or half-written, and the run's journal says why it stopped.
#[track_caller]
fn check_left(env: &Env, reason: &str) {
    assert_eq!(env.files().into_keys().collect::<Vec<_>>(), ["july.csv", "july.journal.jsonl"]);
    let journal = env.text("july.journal.jsonl");
    let line = format!("\"event\":\"run.stopped\",\"run_id\":\"r-july\",\"epoch\":1,\"reason\":\"{reason}");
    assert!(journal.contains(&line), "{journal}");
}

/// The repeated run leaves what one leaves that nobody disturbed.
#[track_caller]
fn check_repeated(env: &Env, expected: &Files) {
    env.run(&INGEST).check(0, "");
    assert_same_files("interrupted and repeated", &env.published(), expected);
    assert!(env.text("july.journal.jsonl").contains("\"epoch\":2"), "the run was gone on with");
}

/// A pipe that holds as much as it can: whoever writes to it waits until somebody reads.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'\n'; 4096]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}

#[test]
fn the_first_signal_ends_a_run_in_order_and_repeating_it_goes_on() {
    for store in STORES {
        let first = Env::new(*store);
        let expected = undisturbed(&first);
        for (signal, name, code) in SIGNALS {
            let env = world(first.fresh());
            let mut child = command(&env, &[&INGEST[..], &SLOWLY].concat()).spawn().unwrap();
            wait_for_event(&env, &mut child, "run.opened");
            send(&child, signal);
            let error = format!("interrupted by {name} in the middle of `july.csv`");
            ended(&env, child).check(code, &format!("error: {error}\n{HINT}"));
            check_left(&env, &error);
            check_repeated(&env, &expected);
        }
    }
}

#[test]
fn a_run_that_waits_for_its_server_is_interrupted() {
    let env = world(Env::new(StoreKind::Redis));
    let expected = undisturbed(&env);
    let server = env.server.as_ref().unwrap();
    let waiting = "interrupted by SIGTERM while waiting for the store at ";
    let told = format!("error: {waiting}`[store]`\n  caused by: the server did not answer in time\n{HINT}");
    // While it opens the store.
    server.pause();
    let mut child = command(&env, &INGEST).spawn().unwrap();
    wait_until_caught(&mut child, Signal::TERM);
    send(&child, Signal::TERM);
    ended(&env, child).check(143, &told);
    server.resume();
    // While it claims.
    let mut child = command(&env, &[&INGEST[..], &SLOWLY].concat()).spawn().unwrap();
    let keys = || env.ask_server("DBSIZE");
    wait_for_event(&env, &mut child, "run.opened");
    let opened = keys();
    // The note on the feed is the first key that comes then, a claim the next.
    wait_until(&mut child, || keys() != opened);
    let noted = keys();
    wait_until(&mut child, || keys() != noted);
    server.pause();
    send(&child, Signal::TERM);
    let ran = ended(&env, child);
    server.resume();
    ran.check(143, &told);
    check_left(&env, waiting);
    check_repeated(&env, &expected);
}

#[test]
fn the_second_signal_ends_the_program_at_once() {
    for store in STORES {
        let first = Env::new(*store);
        let expected = undisturbed(&first);
        let env = world(first.fresh());
        // Nobody reads what it says, so that it cannot end by itself.
        let (reader, writer) = full_pipe();
        let mut command = command(&env, &[&INGEST[..], &SLOWLY].concat());
        let mut child = command.stderr(writer).spawn().unwrap();
        wait_for_event(&env, &mut child, "run.opened");
        if let Some(server) = &env.server {
            server.pause();
        }
        send(&child, Signal::INT);
        wait_for_event(&env, &mut child, "run.stopped");
        let code = end(&mut child, |child| send(child, Signal::TERM));
        if let Some(server) = &env.server {
            server.resume();
        }
        drop((reader, command));
        assert_eq!(code, Some(143));
        check_left(&env, "interrupted by SIGINT ");
        check_repeated(&env, &expected);
    }
}

#[test]
fn a_program_that_cannot_look_up_ends_at_the_second_signal() {
    let env = world(Env::embedded());
    for (signal, _, code) in SIGNALS {
        let (_reader, writer) = pipe().unwrap();
        let mut command = command(&env, &["hash", "july.csv"]);
        let mut child = command.stdout(writer.try_clone().unwrap()).spawn().unwrap();
        // It writes to a pipe that takes no more.
        wait_until(&mut child, || {
            let mut room = [PollFd::new(&writer, PollFlags::OUT)];
            poll(&mut room, Some(&Timespec::default())).unwrap() == 0
        });
        ask(&mut child, signal);
        assert_eq!(child.try_wait().unwrap(), None, "the first one does not");
        assert_eq!(end(&mut child, |child| send(child, signal)), Some(code));
    }
}

#[test]
fn signals_that_the_parent_ignored_stay_ignored() {
    for store in STORES {
        let env = world(Env::new(*store));
        let nohup = ["/usr/bin/env", "--default-signal=INT,TERM", "nohup"];
        let words = [&INGEST[..], &["--batch-size", "20"]].concat();
        let mut child = by_way_of(&nohup, &env, &words).spawn().unwrap();
        wait_for_event(&env, &mut child, "run.opened");
        send(&child, Signal::HUP);
        ended(&env, child).check(0, "");
    }
    let env = world(Env::embedded());
    let in_background = ["/usr/bin/env", "--default-signal=HUP,TERM", "--ignore-signal=INT"];
    let mut child = by_way_of(&in_background, &env, &["hash", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    wait_until_caught(&mut child, Signal::HUP);
    send(&child, Signal::INT);
    child.stdin.take().unwrap().write_all(format!("{HEADER}\n").as_bytes()).unwrap();
    ended(&env, child).check(0, "");
}

#[test]
fn a_pipe_that_nobody_writes_to_is_not_waited_for_any_longer() {
    let env = world(Env::embedded());
    mkfifoat(CWD, env.path("fifo.csv"), Mode::RUSR | Mode::WUSR).unwrap();
    let stdin = ["ingest", "-", "--name", "july"];
    for (words, shown, hint) in [
        (&stdin[..], "-", HINT),
        (&["ingest", "-", "--name", "july", "--dry-run"], "-", HINT),
        (&["ingest", "fifo.csv"], "fifo.csv", HINT),
        (&["hash", "-"], "-", ""),
        (&["hash", "fifo.csv"], "fifo.csv", ""),
    ] {
        for (signal, name, code) in SIGNALS {
            let mut child = command(&env, words).stdin(Stdio::piped()).spawn().unwrap();
            // Held, so that the pipe has no end.
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(format!("{HEADER}\nDE-main,T1,1.00,EUR,2026-07-02\n").as_bytes()).unwrap();
            wait_until_caught(&mut child, signal);
            send(&child, signal);
            let error = format!("error: interrupted by {name} in the middle of `{shown}`\n{hint}");
            ended(&env, child).check(code, &error);
        }
    }
    assert_eq!(env.files().into_keys().collect::<Vec<_>>(), ["july.csv"]);
}

#[test]
fn a_named_pipe_is_read_to_its_end_once_somebody_writes_to_it() {
    let env = world(Env::embedded());
    mkfifoat(CWD, env.path("fifo.csv"), Mode::RUSR | Mode::WUSR).unwrap();
    let child = command(&env, &["ingest", "fifo.csv"]).spawn().unwrap();
    // Waits for the program to open its end, and writes more than a pipe holds.
    env.write("fifo.csv", feed());
    ended(&env, child).check(0, "");
    assert!(env.text("fifo.accepted.csv").contains(",T19998,"));
}

#[test]
fn feeds_behind_an_interrupted_one_are_not_begun() {
    let env = world(Env::embedded());
    let words = ["ingest", "july.csv", "august.csv", "september.csv", "--json", "--batch-size", "1"];
    let mut child = command(&env, &words).spawn().unwrap();
    wait_for_event(&env, &mut child, "run.opened");
    send(&child, Signal::TERM);
    let ran = ended(&env, child);
    let error = "interrupted by SIGTERM in the middle of `july.csv`";
    assert_same("stderr", &ran.stderr, &format!("error: {error}\n{HINT}stopped: 2 of 3 feeds were not begun\n"));
    let failure = format!("{{\"type\":\"failure\",\"file\":\"july.csv\",\"error\":\"{error}\",\"exit_code\":143}}\n");
    assert_same("stdout", &ran.stdout, &format!("{failure}{{\"type\":\"end\",\"exit_code\":143}}\n"));
    assert_eq!(ran.code, Some(143));
}

#[test]
fn feeds_behind_a_published_one_are_not_begun_either() {
    for store in STORES {
        let first = Env::new(*store);
        let told = "error: interrupted by SIGHUP after `july.csv` was published\n";
        let not_begun = "stopped: 2 of 3 feeds were not begun\n";
        for (words, stderr) in [
            (&["ingest", "july.csv", "--json"][..], told.to_owned()),
            (&["ingest", "july.csv", "august.csv", "september.csv", "--json"], format!("{told}{not_begun}")),
        ] {
            let env = world(first.fresh());
            // It stands still where it would print that the run is published.
            let (mut reader, writer) = full_pipe();
            let mut command = command(&env, words);
            let mut child = command.stdout(writer).spawn().unwrap();
            drop(command);
            wait_for_event(&env, &mut child, "run.published");
            ask(&mut child, Signal::HUP);
            let mut stdout = String::new();
            reader.read_to_string(&mut stdout).unwrap();
            assert!(stdout.ends_with("}\n{\"type\":\"end\",\"exit_code\":129}\n"), "{stdout}");
            assert!(!stdout.contains("\"type\":\"failure\""), "{stdout}");
            let ran = ended(&env, child);
            assert_same("stderr", &ran.stderr, &stderr);
            assert_eq!(ran.code, Some(129));
        }
    }
}
