//! The state directory: where it is, and the memory of which stores were used.
//!
//! The locks of runs are kept there too, by others.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::environment::Environment;
use super::failure::{ExitCode, Failure};
use super::layers::{Origin, Setting};
use super::small_file::read_text;
use crate::domain::Digest;
use crate::store::StoreLocation;

/// The version of the files in `stores`.
const MEMORY_VERSION: u32 = 1;

/// The largest file in `stores`, in bytes.
const MEMORY_LEN_MAX: u64 = 64 * 1024;

/// Where the state directory is if no setting says so: systemd's, or else the user's own.
pub fn default_place(environment: &Environment) -> Option<Setting<PathBuf>> {
    // A unit may have several; ours is the first.
    if let Some(first) = environment.first_folder("STATE_DIRECTORY") {
        return Some(Setting { value: first, origin: Origin::Variable("STATE_DIRECTORY".to_owned()) });
    }
    let home = environment.state_home.as_ref()?;
    Some(Setting { value: home.join("feeddedup"), origin: Origin::Default })
}

/// The failure of a command that needs a state directory where nothing says which.
pub fn without_home() -> Failure {
    Failure::settings("cannot tell where the state directory is: HOME is not set")
        .hint("set `state_dir`, or StateDirectory= in a systemd unit")
}

/// What is remembered of a store.
#[derive(Debug, Serialize, Deserialize)]
struct Memory {
    version: u32,
    address: String,
    prefix: String,
    sentinel: String,
    /// How old the store was when it was last used.
    #[serde(default)]
    age: u64,
}

/// The folder for what must outlast a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// The state directory at `path`; it need not exist yet.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The random value that the store held when it was last used under `prefix`; none if it never was.
    pub fn remembered(&self, location: &StoreLocation, prefix: &str) -> Result<Option<String>, Failure> {
        Ok(self.memory(location, prefix)?.map(|memory| memory.sentinel))
    }

    /// How old the store was when it was last used under `prefix`; 0 if it never was.
    pub fn remembered_age(&self, location: &StoreLocation, prefix: &str) -> Result<u64, Failure> {
        Ok(self.memory(location, prefix)?.map_or(0, |memory| memory.age))
    }

    /// Fails if the store, which is `age` old, was older when it was last used: it is a copy from before.
    ///
    /// `remembered` must have been read before the age was: another process may use the store in between.
    pub fn check_age(&self, location: &StoreLocation, prefix: &str, remembered: u64, age: u64) -> Result<(), Failure> {
        if remembered <= age {
            return Ok(());
        }
        let file = self.memory_file(location, prefix)?;
        let address = address_of(location)?;
        Err(Failure::new(
            ExitCode::StoreForgot,
            format!("the store at `{}` is an older copy of itself", String::from_utf8_lossy(&address)),
        )
        .caused_by(format!("it is of age {age}, and was of age {remembered} when it was last used"))
        .hint(format!(
            "put the newest copy back; to go on with this one, knowing that it accepts again what was taken in \
                 since, delete `{}`",
            file.display()
        )))
    }

    fn memory(&self, location: &StoreLocation, prefix: &str) -> Result<Option<Memory>, Failure> {
        let path = self.memory_file(location, prefix)?;
        let text = match read_text(&path, MEMORY_LEN_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(&path, ExitCode::InputOutput, &error)),
        };
        let memory: Memory = serde_json::from_str(&text).map_err(|error| {
            let hint =
                "without it a store that forgot goes unnoticed: delete it only if the store is known to be whole";
            unreadable(&path, ExitCode::Settings, &error).hint(hint)
        })?;
        if memory.version == MEMORY_VERSION && memory.prefix == prefix {
            return Ok(Some(memory));
        }
        let found = format!("it has version {}, and this program knows {MEMORY_VERSION}", memory.version);
        Err(unreadable(&path, ExitCode::StoreForgot, &found).hint("use the version of feeddedup that wrote it"))
    }

    /// Remembers the random value of a store and its age. A dry run must not call this.
    ///
    /// Written beside, synced, then renamed: a crash leaves the old memory or the new one, never none.
    pub fn remember(&self, location: &StoreLocation, prefix: &str, sentinel: &str, age: u64) -> Result<(), Failure> {
        // Of two processes that remember at once the one that saw less may come last: less is the safe side.
        if self.memory(location, prefix)?.is_some_and(|known| known.sentinel == sentinel && known.age == age) {
            return Ok(());
        }
        let path = self.memory_file(location, prefix)?;
        let memory = Memory {
            version: MEMORY_VERSION,
            address: String::from_utf8_lossy(&address_of(location)?).into_owned(),
            prefix: prefix.to_owned(),
            sentinel: sentinel.to_owned(),
            age,
        };
        let mut text = serde_json::to_vec(&memory).expect("plain fields are JSON");
        text.push(b'\n');
        replace(&path, &text).map_err(|error| Failure::output(&path, &error))
    }

    /// The file of a store: named by a hash, because an address is no file name.
    fn memory_file(&self, location: &StoreLocation, prefix: &str) -> Result<PathBuf, Failure> {
        let mut name = address_of(location)?;
        name.push(0);
        name.extend_from_slice(prefix.as_bytes());
        Ok(self.path.join("stores").join(format!("{}.json", Digest::of(&name))))
    }
}

/// The address that means the same store wherever the program is started.
fn address_of(location: &StoreLocation) -> Result<Vec<u8>, Failure> {
    match location {
        // The folder above is asked for its real name, and not the store: one that is gone must have the name it had.
        StoreLocation::File(path) => {
            let whole = std::path::absolute(path).map_err(|error| Failure::output(path, &error))?;
            let real = whole.parent().and_then(|parent| parent.canonicalize().ok());
            let whole = match (real, whole.file_name()) {
                (Some(parent), Some(name)) => parent.join(name),
                _ => whole,
            };
            Ok([b"file:", whole.as_os_str().as_encoded_bytes()].concat())
        }
        StoreLocation::Redis { address, .. } => Ok(address.clone().into_bytes()),
    }
}

fn unreadable(path: &Path, exit: ExitCode, cause: &dyn std::fmt::Display) -> Failure {
    Failure::new(exit, format!("could not read what is remembered of the store in `{}`", path.display()))
        .caused_by(cause)
}

/// Makes `path` hold `text`, at once and for good.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let folder = path.parent().expect("a file of the state directory is in a folder");
    create_folders(folder)?;
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let temporary = path.with_extension(format!("{:016x}.tmp", u64::from_ne_bytes(random)));
    let written = write_synced(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        // The first error counts; a temporary that stays is harmless.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    File::open(folder)?.sync_all()
}

fn write_synced(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text)?;
    file.sync_all()
}

/// Creates `folder` and what is above it, for this user alone, and syncs each folder that got a new one.
fn create_folders(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        create_folders(parent)?;
    }
    match create_private(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(unix)]
fn create_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().mode(0o700).create(folder)
}

#[cfg(not(unix))]
fn create_private(folder: &Path) -> io::Result<()> {
    fs::create_dir(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(text: &str) -> StoreLocation {
        StoreLocation::parse(text).unwrap()
    }

    #[test]
    fn a_store_is_remembered_by_address_and_prefix() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::at(dir.path().join("a").join("state"));
        let db1 = location("redis://alice:s3cr3t@db1:6379/0");
        assert_eq!(state.remembered(&db1, "p:"), Ok(None));
        assert!(!state.path().exists(), "asking makes nothing");
        state.remember(&db1, "p:", "one", 1).unwrap();
        state.remember(&db1, "p:", "two", 1).unwrap();
        assert_eq!(state.remembered(&db1, "p:"), Ok(Some("two".into())));
        assert_eq!(state.remembered(&location("redis://db1:6379/0"), "p:"), Ok(Some("two".into())));
        assert_eq!(state.remembered(&db1, "q:"), Ok(None));
        assert_eq!(state.remembered(&location("redis://db2:6379/0"), "p:"), Ok(None));
        let files: Vec<_> = fs::read_dir(state.path().join("stores")).unwrap().map(|f| f.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        assert!(!fs::read_to_string(&files[0]).unwrap().contains("s3cr3t"));
    }

    #[test]
    fn a_relative_store_is_remembered_by_its_absolute_path() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::at(dir.path().to_owned());
        state.remember(&location("file:some/store"), "p:", "one", 1).unwrap();
        let whole = std::env::current_dir().unwrap().join("some").join("store");
        assert_eq!(state.remembered(&StoreLocation::File(whole), "p:"), Ok(Some("one".into())));
    }

    #[test]
    fn a_memory_that_cannot_be_read_is_not_taken_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::at(dir.path().to_owned());
        let store = location("file:/s");
        state.remember(&store, "p:", "one", 1).unwrap();
        let path = state.memory_file(&store, "p:").unwrap();
        fs::write(&path, "").unwrap();
        assert_eq!(state.remembered(&store, "p:").unwrap_err().exit.number(), 78);
        fs::write(&path, r#"{"version":2,"address":"file:/s","prefix":"p:","sentinel":"x"}"#).unwrap();
        assert_eq!(state.remembered(&store, "p:").unwrap_err().exit.number(), 76);
    }

    #[test]
    fn an_older_copy_is_told_by_its_age() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::at(dir.path().to_owned());
        let store = location("file:/s");
        assert_eq!(state.remembered_age(&store, "p:"), Ok(0));
        state.remember(&store, "p:", "one", 7).unwrap();
        let remembered = state.remembered_age(&store, "p:").unwrap();
        assert_eq!(state.check_age(&store, "p:", remembered, 7), Ok(()));
        assert_eq!(state.check_age(&store, "p:", remembered, 6).unwrap_err().exit.number(), 76);
    }

    #[test]
    fn systemd_comes_before_the_home_directory() {
        let mut environment = Environment { state_home: Some("/h/.local/state".into()), ..Environment::default() };
        assert_eq!(default_place(&environment).unwrap().value, Path::new("/h/.local/state/feeddedup"));
        environment.variables.insert("STATE_DIRECTORY".into(), "/var/lib/a:/var/lib/b".into());
        assert_eq!(default_place(&environment).unwrap().value, Path::new("/var/lib/a"));
        assert_eq!(default_place(&Environment::default()), None);
    }
}
