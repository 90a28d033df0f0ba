//! The feeds that the operator named: files, standard input, and the profile to read them with.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::args::STANDARD_INPUT;
use super::failure::{ExitCode, Failure};
use super::settings::Settings;
use super::small_file::read_text;
use crate::domain::Interrupt;
use crate::input::Profile;
use crate::pipeline::{FeedBytes, FeedFile, IngestError, Pipe};

/// The largest profile, in bytes.
const PROFILE_LEN_MAX: u64 = 1024 * 1024;

/// Bytes that are spooled at once: what a pipe holds.
const SPOOLED_AT_ONCE: usize = 64 * 1024;

/// A feed and where its outputs go.
#[derive(Debug)]
pub(super) struct NamedFeed {
    pub feed: FeedFile,
    /// The absolute folder of the outputs.
    pub folder: PathBuf,
    /// What output names start with.
    pub stem: String,
}

/// The profile that the settings name, or the canonical one.
pub(super) fn profile(settings: &Settings) -> Result<Profile, Failure> {
    let Some(path) = settings.profile_file() else { return Ok(Profile::default()) };
    let unreadable =
        |error: &io::Error| Failure::settings(format!("cannot read the profile `{}`", path.display())).caused_by(error);
    let text = read_text(path, PROFILE_LEN_MAX).map_err(|error| unreadable(&error))?;
    Profile::from_toml(&text).map_err(|error| {
        let place = if error.line == 0 { String::new() } else { format!(":{}", error.line) };
        Failure::settings(format!("{}{place}: {}", path.display(), error.reason))
    })
}

/// The feed at `path`, for a command that only reads it.
pub(super) fn readable(path: &Path, interrupt: &Interrupt) -> FeedFile {
    let is_stdin = path.as_os_str() == STANDARD_INPUT;
    let named = (!is_stdin).then(|| path.to_owned());
    let is_pipe = is_stdin || path.metadata().is_ok_and(|about| !(about.is_file() || about.is_dir()));
    let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    FeedFile {
        bytes: if is_pipe {
            FeedBytes::Pipe { path: named, interrupt: interrupt.clone() }
        } else {
            FeedBytes::Path(path.to_owned())
        },
        shown: path.display().to_string(),
        name: if is_stdin { "stdin".to_owned() } else { file_name },
        extension: path.extension().map(|extension| extension.to_string_lossy().into_owned()),
    }
}

/// The feed at `path` with the names for its outputs. A pipe is spooled beside them: a feed is read twice.
pub(super) fn named(
    path: &Path,
    name: Option<&str>,
    settings: &Settings,
    interrupt: &Interrupt,
) -> Result<NamedFeed, Failure> {
    let mut feed = readable(path, interrupt);
    let is_stdin = path.as_os_str() == STANDARD_INPUT;
    // Told before anything is said of folders that only exist if the feed does.
    let cannot_open =
        |error| Failure::new(ExitCode::NoInput, format!("cannot open `{}`", path.display())).caused_by(error);
    if !is_stdin {
        path.metadata().map_err(cannot_open)?;
    }
    let own_folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = match output_folder(settings)? {
        Some(folder) => folder,
        None if is_stdin => existing_folder(Path::new("."))?,
        None => existing_folder(own_folder)?,
    };
    let stem = match (name, path.file_stem()) {
        (Some(name), _) => name.to_owned(),
        (None, Some(stem)) if !is_stdin => stem.to_string_lossy().into_owned(),
        (None, _) => "stdin".to_owned(),
    };
    if let FeedBytes::Pipe { path, .. } = &feed.bytes {
        let pipe = Pipe::open(path.as_deref(), interrupt).map_err(cannot_open)?;
        let spooled = spool(pipe, &folder);
        // An interruption comes to light as a pipe that could not be read to its end.
        if let Some(signal) = interrupt.asked() {
            return Err(IngestError::Interrupted { feed: feed.shown, signal }.into());
        }
        feed.bytes = FeedBytes::Spooled(Arc::new(spooled?));
    }
    if is_stdin {
        feed.name.clone_from(&stem);
    }
    Ok(NamedFeed { feed, folder, stem })
}

/// The folder that the settings name for outputs; none if they go beside what they are made of.
pub(super) fn output_folder(settings: &Settings) -> Result<Option<PathBuf>, Failure> {
    settings.output_folder().map(existing_folder).transpose()
}

/// The absolute path of `folder`, which must be one.
fn existing_folder(folder: &Path) -> Result<PathBuf, Failure> {
    let found = folder.canonicalize().and_then(|folder| match folder.is_dir() {
        true => Ok(folder),
        false => Err(io::ErrorKind::NotADirectory.into()),
    });
    found.map_err(|error| {
        Failure::new(ExitCode::CannotCreate, format!("there is no output folder `{}`", folder.display()))
            .caused_by(error)
            .hint("create it, or give another with `--out-dir`")
    })
}

/// What can be read once only, in a file without a name: it goes away with the process, however that ends.
fn spool(pipe: Pipe, folder: &Path) -> Result<File, Failure> {
    let fail =
        |error: io::Error| Failure::output(folder, &error).hint("what comes through a pipe is spooled there first");
    let mut spool = tempfile::tempfile_in(folder).map_err(fail)?;
    io::copy(&mut BufReader::with_capacity(SPOOLED_AT_ONCE, pipe), &mut spool).map_err(fail)?;
    Ok(spool)
}
