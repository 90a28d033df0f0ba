//! Where values come from: flags over variables over `feeddedup.toml` over defaults.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::environment::Environment;
use super::failure::{ExitCode, Failure};
use super::settings::{Key, OTHER_VARIABLES, VARIABLE_PREFIX};
use super::small_file::read_text;
use super::value::{Raw, Refusal, Value};

/// The name of the settings file.
pub const FILE_NAME: &str = "feeddedup.toml";

/// The largest settings file, in bytes.
const FILE_LEN_MAX: u64 = 1 << 20;

/// Whence a value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    /// The flag, with its dashes.
    Flag(String),
    Variable(String),
    File {
        path: PathBuf,
        /// From 1.
        line: usize,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::File { path, line } => write!(f, "file {}:{line}", path.display()),
        }
    }
}

impl Origin {
    /// The place as a message names it.
    pub fn place(&self) -> String {
        match self {
            Self::Default => "by default".to_owned(),
            Self::Flag(flag) => format!("from `{flag}`"),
            Self::Variable(name) => format!("in `{name}`"),
            Self::File { path, line } => format!("in `{}:{line}`", path.display()),
        }
    }

    /// The exit code of a value that is refused: what was typed just now is a wrong command line.
    pub fn exit(&self) -> ExitCode {
        match self {
            Self::Flag(_) => ExitCode::Usage,
            Self::Default | Self::Variable(_) | Self::File { .. } => ExitCode::Settings,
        }
    }
}

/// A value and whence it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    pub value: T,
    pub origin: Origin,
}

/// The settings flags as they were typed, by key.
pub type FlagWords = BTreeMap<&'static str, OsString>;

/// Everything that can set a value, the nearest first.
#[derive(Debug)]
pub struct Layers<'a> {
    flags: &'a FlagWords,
    environment: &'a Environment,
    files: Vec<SettingsFile>,
}

/// A value as it was found.
struct Found<'a> {
    raw: Raw<'a>,
    origin: Origin,
    /// The value as it was written.
    written: String,
    /// How many layers are nearer.
    depth: usize,
}

impl<'a> Layers<'a> {
    /// Reads the settings files; refuses variables and keys that are not in `keys`.
    pub fn read(flags: &'a FlagWords, environment: &'a Environment, keys: &[Key]) -> Result<Self, Failure> {
        refuse_unknown_variables(environment, keys)?;
        // What the working directory's file shows needs no folder: paths in it are relative to it already.
        let mut places = vec![(environment.working_dir.join(FILE_NAME), environment.working_dir.clone())];
        if let Some(home) = &environment.config_home {
            let folder = home.join("feeddedup");
            places.push((folder.join(FILE_NAME), folder));
        }
        let mut files = Vec::new();
        for (path, folder) in places {
            files.extend(SettingsFile::read(path, folder, keys)?);
        }
        Ok(Self { flags, environment, files })
    }

    fn find(&self, key: &str) -> Option<Found<'_>> {
        let key_flag = flag_of(key);
        if let Some(words) = self.flags.get(key) {
            let origin = Origin::Flag(key_flag);
            return Some(Found { raw: Raw::Words(words), origin, written: words.display().to_string(), depth: 0 });
        }
        let variable = variable_of(key);
        if let Some(words) = self.environment.variable(&variable) {
            let (origin, written) = (Origin::Variable(variable), words.display().to_string());
            return Some(Found { raw: Raw::Words(words), origin, written, depth: 1 });
        }
        let mut files = self.files.iter().enumerate();
        files.find_map(|(place, file)| file.find(key, place + 2))
    }

    /// How many layers are nearer than the one that sets `key`; none if none does.
    pub fn depth_of(&self, key: &str) -> Option<usize> {
        self.find(key).map(|found| found.depth)
    }

    /// The value of a key that has no default.
    pub fn optional<T: Value>(&self, key: &str) -> Result<Option<Setting<T>>, Failure> {
        let Some(found) = self.find(key) else { return Ok(None) };
        match T::read(&found.raw) {
            Ok(value) => Ok(Some(Setting { value, origin: found.origin })),
            Err(refusal) => Err(refused(key, &found, refusal, &T::wanted())),
        }
    }

    /// The value of a key whose default is `default`.
    pub fn required<T: Value>(&self, key: &str, default: &str) -> Result<Setting<T>, Failure> {
        let found = self.optional(key)?;
        Ok(found.unwrap_or_else(|| {
            let value = T::read(&Raw::Words(default.as_ref())).expect("a default is in its own range");
            Setting { value, origin: Origin::Default }
        }))
    }
}

/// The flag of `key`, with its dashes.
pub fn flag_of(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}

/// The variable of `key`.
pub fn variable_of(key: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", key.to_uppercase())
}

fn refused(key: &str, found: &Found<'_>, refusal: Refusal, wanted: &str) -> Failure {
    let place = found.origin.place();
    let is_number = found.written.parse::<i64>().is_ok();
    let failure = match refusal {
        Refusal::Unwanted if is_number => format!("`{key}` {place} is {}", found.written),
        Refusal::Unwanted => format!("`{key}` {place} is `{}`", found.written),
        Refusal::Unshown(_) => format!("`{key}` {place} is not usable"),
    };
    let failure = Failure::new(found.origin.exit(), failure).hint(format!("give {wanted}"));
    match refusal {
        Refusal::Unwanted => failure,
        Refusal::Unshown(cause) => failure.caused_by(cause),
    }
}

fn refuse_unknown_variables(environment: &Environment, keys: &[Key]) -> Result<(), Failure> {
    for name in environment.variables.keys() {
        let Some(name) = name.to_str().filter(|name| name.starts_with(VARIABLE_PREFIX)) else { continue };
        let is_known = OTHER_VARIABLES.contains(&name) || keys.iter().any(|key| variable_of(key.name) == name);
        if is_known || environment.variable(name).is_none() {
            continue;
        }
        let known: Vec<String> = keys.iter().map(|key| variable_of(key.name)).collect();
        let known = known.iter().map(String::as_str).chain(OTHER_VARIABLES);
        return Err(Failure::settings(format!("there is no setting for the variable `{name}`")).hint(suggestion(
            name,
            known,
            "unset it: `feeddedup config show` lists the settings",
        )));
    }
    Ok(())
}

/// One `feeddedup.toml`, read.
#[derive(Debug)]
struct SettingsFile {
    path: PathBuf,
    /// What relative paths in it are relative to.
    folder: PathBuf,
    values: Vec<FileValue>,
}

#[derive(Debug)]
struct FileValue {
    key: String,
    line: usize,
    value: Typed,
    written: String,
}

/// A value of a file that some key may have.
#[derive(Debug)]
enum Typed {
    Text(String),
    Integer(i64),
    Boolean(bool),
    Other,
}

impl SettingsFile {
    /// The file, or nothing if there is none.
    fn read(path: PathBuf, folder: PathBuf, keys: &[Key]) -> Result<Option<Self>, Failure> {
        let unreadable = |cause: &dyn fmt::Display| {
            Failure::settings(format!("could not read the settings in `{}`", path.display())).caused_by(cause)
        };
        let text = match read_text(&path, FILE_LEN_MAX) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(unreadable(&error)),
        };
        let line_at = |offset: usize| text.bytes().take(offset).filter(|b| *b == b'\n').count() + 1;
        let table = DeTable::parse(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_at(span.start));
            Failure::settings(format!("`{}:{line}` is not TOML", path.display())).caused_by(error.message())
        })?;
        let mut values = Vec::new();
        for (key, value) in table.get_ref() {
            let line = line_at(key.span().start);
            refuse_unknown_key(&path, line, key.get_ref(), keys)?;
            let written = text.get(value.span()).unwrap_or_default().to_owned();
            values.push(FileValue { key: key.get_ref().to_string(), line, value: typed(value), written });
        }
        Ok(Some(Self { path, folder, values }))
    }

    fn find(&self, key: &str, depth: usize) -> Option<Found<'_>> {
        let found = self.values.iter().find(|value| value.key == key)?;
        let raw = match &found.value {
            Typed::Text(text) => Raw::Text(text, &self.folder),
            Typed::Integer(number) => Raw::Integer(*number),
            Typed::Boolean(switch) => Raw::Boolean(*switch),
            Typed::Other => Raw::Other,
        };
        let origin = Origin::File { path: self.path.clone(), line: found.line };
        Some(Found { raw, origin, written: found.written.clone(), depth })
    }
}

fn typed(value: &Spanned<DeValue<'_>>) -> Typed {
    match value.get_ref() {
        DeValue::String(text) => Typed::Text(text.to_string()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(Typed::Other, Typed::Integer)
        }
        DeValue::Boolean(switch) => Typed::Boolean(*switch),
        DeValue::Float(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => Typed::Other,
    }
}

fn refuse_unknown_key(path: &Path, line: usize, name: &str, keys: &[Key]) -> Result<(), Failure> {
    if keys.iter().any(|key| key.name == name) {
        return Ok(());
    }
    let known = keys.iter().map(|key| key.name);
    let hint = suggestion(name, known, "remove it: `feeddedup config show` lists the settings");
    Err(Failure::settings(format!("there is no setting `{name}`, which `{}:{line}` gives", path.display())).hint(hint))
}

/// "did you mean" the nearest of `known`, or `otherwise` if none is near.
fn suggestion<'a>(word: &str, known: impl Iterator<Item = &'a str>, otherwise: &str) -> String {
    let plain = word.to_lowercase().replace('-', "_");
    let nearest = known.map(|name| (distance(&plain, &name.to_lowercase()), name)).min();
    match nearest {
        // A third of the letters may differ: beyond that, the likeness is chance.
        Some((edits, name)) if edits <= name.len() / 3 => format!("did you mean `{name}`?"),
        Some(_) | None => otherwise.to_owned(),
    }
}

/// How many letters must be added, removed or replaced to turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested_and_far_ones_are_not() {
        let known = ["batch_size", "fail_mode", "store"];
        let suggested = |word| suggestion(word, known.into_iter(), "-");
        assert_eq!(suggested("batch-size"), "did you mean `batch_size`?");
        assert_eq!(suggested("bacth_size"), "did you mean `batch_size`?");
        assert_eq!(suggested("stor"), "did you mean `store`?");
        assert_eq!(suggested("timeout"), "-");
    }

    #[test]
    fn distances_count_single_letters() {
        for (a, b, edits) in [("", "", 0), ("a", "", 1), ("", "ab", 2), ("kitten", "sitting", 3), ("ab", "ba", 2)] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }
}
