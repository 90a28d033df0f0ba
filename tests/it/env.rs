//! The harness: the real binary in a world of its own. Nothing of the machine's settings, clock or stores comes in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::SystemTime;

use tempfile::TempDir;

use crate::test_server::TestServer;

/// The instant that stands in all outputs.
pub(crate) const NOW: &str = "2026-07-15T09:03:00+00:00";

/// The header of the canonical feed.
pub(crate) const HEADER: &str = "account_id,bank_txn_id,amount,currency,posted_at";

/// A kind of store that the tests run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Embedded,
    /// A server of the test's own.
    Redis,
}

/// Every kind of store. A new row needs a variant, and an arm of `start`.
pub(crate) const STORES: &[StoreKind] = &[StoreKind::Embedded, StoreKind::Redis];

/// Whether the long modes are asked for, as the README lists them.
pub(crate) fn is_long() -> bool {
    std::env::var_os("FEEDS_LONG").is_some_and(|value| !value.is_empty() && value != "0")
}

/// File names and what the files hold.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Files and folders: the length of each, when it was changed, and its bytes.
pub(crate) type Everything = BTreeMap<PathBuf, (u64, SystemTime, Vec<u8>)>;

/// A working folder, a home, and a store, all gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Env {
    folder: TempDir,
    root: PathBuf,
    pub server: Option<Rc<TestServer>>,
    key_prefix: String,
}

/// The folders of a world.
const FOLDERS: [&str; 2] = ["feeds", "home"];

/// How a command ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Env {
    /// A world with a store of this kind that nobody has used.
    pub(crate) fn new(kind: StoreKind) -> Self {
        Self::start(match kind {
            StoreKind::Embedded => None,
            StoreKind::Redis => Some(Rc::new(TestServer::start(&[]))),
        })
    }

    /// A world with the embedded store, which is what the program uses if nothing is set.
    pub(crate) fn embedded() -> Self {
        Self::new(StoreKind::Embedded)
    }

    /// Another world; a server is shared, under another prefix.
    pub(crate) fn fresh(&self) -> Self {
        Self::start(self.server.clone())
    }

    fn start(server: Option<Rc<TestServer>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in FOLDERS {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let key_prefix = format!("{}:", root.file_name().unwrap().display());
        Self { folder, root, server, key_prefix }
    }

    /// Leaves the folders behind, for a person to look at; returns the one that holds all.
    pub(crate) fn keep_folder(&mut self) -> &Path {
        self.folder.disable_cleanup(true);
        &self.root
    }

    /// A path in the working folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join("feeds").join(name)
    }

    /// The embedded store's folder, if nothing is set.
    pub(crate) fn store_folder(&self) -> PathBuf {
        self.root.join("home/.local/state/feeddedup/store")
    }

    /// Where the locks on feeds are.
    pub(crate) fn lock_folder(&self) -> PathBuf {
        match self.server {
            Some(_) => self.root.join("home/.local/state/feeddedup/locks"),
            None => self.store_folder().join("locks"),
        }
    }

    /// Writes a file into the working folder.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// The binary with `words`, in this world.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feeddedup"));
        command.args(words).current_dir(self.path("")).env_clear().env("HOME", self.root.join("home"));
        if let Some(server) = &self.server {
            command.env("FEEDDEDUP_STORE", server.url()).env("FEEDDEDUP_KEY_PREFIX", &self.key_prefix);
            // A debug build on a busy machine is no outage.
            command.env("FEEDDEDUP_LOCK_TIMEOUT_MS", "500");
        }
        command
    }

    /// `command` under `strace` with these options; what it traces is at `trace_path`.
    pub(crate) fn under_strace(&self, command: &Command, options: &[&str]) -> Command {
        let mut strace = Command::new("strace");
        strace.args(["-s", "0", "-o"]).arg(self.trace_path()).args(options);
        strace.arg(command.get_program()).args(command.get_args()).current_dir(self.path("")).env_clear();
        strace.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        strace.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        strace
    }

    /// Where the last `strace` of this world wrote what it saw.
    pub(crate) fn trace_path(&self) -> PathBuf {
        self.root.join("strace.log")
    }

    /// Makes the lease of `run` be over, as if its worker had shown no sign of life for long. The store is a server.
    pub(crate) fn end_lease(&self, run: &str) {
        let reply = self.ask_server(&format!("HSET {}run:{run} lease 1", self.key_prefix));
        assert!(reply.starts_with(":0"), "the run had no lease: {reply}");
    }

    /// Claims `hash` as a writer does that knows nothing of this program. The store is a server.
    pub(crate) fn claim_as_other_writer(&self, hash: &str, marker: &str) {
        let reply = self.ask_server(&format!("SET {}{hash} {marker} NX EX 1000", self.key_prefix));
        assert!(reply.ends_with("+OK\r\n"), "{reply}");
    }

    /// Asks the server for `command`; returns its reply as it came.
    pub(crate) fn ask_server(&self, command: &str) -> String {
        self.server.as_ref().expect("this world's store is a server").ask(command)
    }

    /// Runs the binary with `words`.
    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        self.finish(self.command(words), b"")
    }

    /// Runs `ingest` with the fixed instant.
    pub(crate) fn ingest(&self, words: &[&str]) -> Ran {
        self.run(&[&["ingest", "--now", NOW], words].concat())
    }

    /// Runs a command of this world with `input` on standard input.
    pub(crate) fn finish(&self, command: Command, input: &[u8]) -> Ran {
        let output = assert_cmd::Command::from_std(command).write_stdin(input).output().unwrap();
        Ran { code: output.status.code(), stdout: self.told(&output.stdout), stderr: self.told(&output.stderr) }
    }

    /// What the program said, with stable words for this world's folders and server.
    pub(crate) fn told(&self, text: &[u8]) -> String {
        let text = String::from_utf8(text.to_vec()).unwrap();
        let text = text.replace(self.root.to_str().unwrap(), "[root]");
        match &self.server {
            Some(server) => text.replace(&server.url(), "[store]"),
            None => text.replace("file:[root]/home/.local/state/feeddedup/store", "[store]"),
        }
    }

    /// All files of the working folder, those of folders in it left out.
    pub(crate) fn files(&self) -> Files {
        files_of(&self.path(""))
    }

    /// All files of the working folder that a run published, journals left out: they tell of times and hosts.
    pub(crate) fn published(&self) -> Files {
        let is_output = |name: &str| {
            let mut parts = name.rsplit('.').skip(1);
            let kinds = ["accepted", "suppressed", "conflicts", "held", "rejected", "unverified", "audit", "summary"];
            !name.starts_with('.') && parts.next().is_some_and(|kind| kinds.contains(&kind))
        };
        self.files().into_iter().filter(|(name, _)| is_output(name)).collect()
    }

    /// A file of the working folder, as text.
    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Keeps a copy of this world as it is, for `restore`. Its server must serve no other.
    pub(crate) fn keep(&self) {
        for folder in FOLDERS {
            copy_folder(&self.root.join(folder), &self.root.join("kept").join(folder));
        }
        if self.server.is_some() {
            self.ask_server(&copy_keys(0, 1));
        }
    }

    /// Makes this world what it was when it was kept. Files that are there stay the same files, because a lock is told by
    /// its inode.
    pub(crate) fn restore(&self) {
        for folder in FOLDERS {
            let (kept, folder) = (self.root.join("kept").join(folder), self.root.join(folder));
            remove_others(&kept, &folder);
            copy_folder(&kept, &folder);
        }
        if self.server.is_some() {
            self.ask_server(&copy_keys(1, 0));
        }
    }

    /// Everything in this world, down to the times of change.
    pub(crate) fn everything(&self) -> Everything {
        let mut seen = BTreeMap::new();
        FOLDERS.iter().for_each(|folder| look_into(&self.root.join(folder), &mut seen));
        seen
    }

    /// Fails unless every file and folder of this world is as it was, down to the time of its last change.
    #[track_caller]
    pub(crate) fn check_untouched(&self, before: &Everything) {
        let now = self.everything();
        let mut paths: Vec<_> =
            now.keys().chain(before.keys()).filter(|path| now.get(*path) != before.get(*path)).collect();
        // The embedded engine's table of readers: who reads must stand in it, or a writer might reuse the pages being read.
        paths.retain(|path| !path.ends_with("lock.mdb"));
        assert!(paths.is_empty(), "changed: {paths:?}");
    }
}

impl Ran {
    /// Fails unless the command ended with `code` and said exactly `stderr`, and nothing on standard output.
    #[track_caller]
    pub(crate) fn check(&self, code: i32, stderr: &str) {
        assert_same("standard error", &self.stderr, stderr);
        assert_same("standard output", &self.stdout, "");
        assert_eq!(self.code, Some(code), "the exit code");
    }

    /// Fails unless all went well and nothing was said but that the store is new.
    #[track_caller]
    pub(crate) fn check_silent(&self) {
        self.said_besides_store().check(0, "");
    }

    /// The same without the line that says that the store was created.
    pub(crate) fn said_besides_store(&self) -> Self {
        let stderr = self.stderr.replace("created the store `[store]`\n", "");
        Self { code: self.code, stdout: self.stdout.clone(), stderr }
    }
}

/// The files of `folder`, those of folders in it left out.
pub(crate) fn files_of(folder: &Path) -> Files {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    paths.map(|path| (name(&path), std::fs::read(&path).unwrap())).collect()
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            copy_folder(&path, &to);
        } else {
            std::fs::copy(&path, &to).unwrap();
        }
    }
}

/// Removes from `folder` what `kept` has not.
fn remove_others(kept: &Path, folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let (path, kept) = (entry.as_ref().unwrap().path(), kept.join(entry.unwrap().file_name()));
        match (path.is_dir(), kept.exists()) {
            (true, true) => remove_others(&kept, &path),
            (true, false) => std::fs::remove_dir_all(&path).unwrap(),
            (false, true) => {}
            (false, false) => std::fs::remove_file(&path).unwrap(),
        }
    }
}

/// The commands that make one database of a server what another is.
fn copy_keys(from: u32, to: u32) -> String {
    let script =
        format!("for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('COPY', key, key, 'DB', {to}) end");
    format!("SELECT {to}\r\nFLUSHDB\r\nSELECT {from}\r\nEVAL \"{script}\" 0")
}

fn look_into(path: &Path, seen: &mut Everything) {
    let about = path.symlink_metadata().unwrap();
    let bytes = if about.is_file() { std::fs::read(path).unwrap() } else { Vec::new() };
    seen.insert(path.to_owned(), (about.len(), about.modified().unwrap(), bytes));
    if about.is_dir() {
        std::fs::read_dir(path).unwrap().for_each(|entry| look_into(&entry.unwrap().path(), seen));
    }
}

/// A file of the repository.
pub(crate) fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(path)
}

/// Fails with the lines that differ unless `found` is `expected`.
#[track_caller]
pub(crate) fn assert_same(what: &str, found: &str, expected: &str) {
    if found != expected {
        panic!("{what} is not as expected (- expected, + found):\n{}", diff(expected, found));
    }
}

/// Fails unless the files are the same, byte for byte.
#[track_caller]
pub(crate) fn assert_same_files(what: &str, found: &Files, expected: &Files) {
    if let Some(difference) = difference(found, expected) {
        panic!("{what}: {difference}");
    }
}

/// What tells the files apart; none if they are the same, byte for byte.
pub(crate) fn difference(found: &Files, expected: &Files) -> Option<String> {
    let (found_names, names) = (found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    if found_names != names {
        return Some(format!("the files are {found_names:?}, and should be {names:?}"));
    }
    let (name, bytes) = expected.iter().find(|(name, bytes)| found[*name] != **bytes)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let lines = diff(&text(bytes), &text(&found[name]));
    Some(format!("{name} is not as expected (- expected, + found):\n{lines}"))
}

/// The lines between the common start and the common end, control characters made visible.
fn diff(old: &str, new: &str) -> String {
    let lines = |text: &str| text.split_inclusive('\n').map(|line| line.escape_debug().to_string()).collect::<Vec<_>>();
    let (old, new) = (lines(old), lines(new));
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let end = old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(|(a, b)| a == b).count();
    let marked = |mark: &str, lines: &[String]| {
        let differing = &lines[start..lines.len() - end];
        let shown = differing.iter().take(20).map(|line| format!("{mark} {line}\n")).collect::<String>();
        if differing.len() > 20 { format!("{shown}{mark} and {} lines more\n", differing.len() - 20) } else { shown }
    };
    format!("  {start} equal lines\n{}{}  {end} equal lines\n", marked("-", &old), marked("+", &new))
}
