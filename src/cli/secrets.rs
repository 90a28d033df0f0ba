//! The store's password: found here, shown nowhere.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::failure::Failure;
use super::small_file::read_text;
use crate::store::Secret;

/// The variable that may hold the password itself.
pub const PASSWORD_VARIABLE: &str = "FEEDDEDUP_REDIS_PASSWORD";

/// The name of the systemd credential.
const CREDENTIAL_NAME: &str = "feeddedup-redis";

/// The longest password file, in bytes.
const PASSWORD_FILE_LEN_MAX: u64 = 64 * 1024;

/// Where a password may be, besides the file that is set.
#[derive(Clone, Default)]
pub struct SecretSources {
    credentials_dir: Option<PathBuf>,
    variable: Option<OsString>,
}

impl fmt::Debug for SecretSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretSources").finish_non_exhaustive()
    }
}

/// A password, and what is to be said of the place where it was.
#[derive(Debug)]
pub struct FoundSecret {
    pub secret: Secret,
    pub warning: Option<String>,
}

impl SecretSources {
    /// The places that the environment names.
    pub fn of(environment: &Environment) -> Self {
        Self {
            credentials_dir: environment.folder("CREDENTIALS_DIRECTORY").map(Path::to_owned),
            variable: environment.variable(PASSWORD_VARIABLE).map(OsString::from),
        }
    }

    /// The password in `file`, else in the systemd credential, else in the variable; none if nobody gave one.
    pub fn password(&self, file: Option<&Path>) -> Result<Option<FoundSecret>, Failure> {
        if let Some(path) = file {
            let secret = read_secret(path).map_err(|error| unreadable(path, &error))?;
            return Ok(Some(FoundSecret { secret, warning: warning_for(path) }));
        }
        if let Some(path) = self.credentials_dir.as_ref().map(|dir| dir.join(CREDENTIAL_NAME)) {
            match read_secret(&path) {
                Ok(secret) => return Ok(Some(FoundSecret { secret, warning: None })),
                // A unit may have credentials that are not for us.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unreadable(&path, &error)),
            }
        }
        match &self.variable {
            None => Ok(None),
            Some(words) => match words.to_str() {
                Some(text) => Ok(Some(FoundSecret { secret: Secret::new(text.to_owned()), warning: None })),
                None => Err(Failure::settings(format!("the password in `{PASSWORD_VARIABLE}` is not UTF-8"))),
            },
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::settings(format!("could not read the password in `{}`", path.display())).caused_by(error)
}

/// The text of a file without the line end that editors add.
fn read_secret(path: &Path) -> io::Result<Secret> {
    let text = read_text(path, PASSWORD_FILE_LEN_MAX)?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() { Err(io::Error::other("it is empty")) } else { Ok(Secret::new(line.to_owned())) }
}

#[cfg(unix)]
fn warning_for(path: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(path).ok()?.permissions().mode();
    let is_open = mode & 0o044 != 0;
    is_open.then(|| format!("others can read the password in `{0}`: run `chmod 600 {0}`", path.display()))
}

#[cfg(not(unix))]
fn warning_for(_: &Path) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWORD: &str = "s3cr3t";

    fn sources(dir: Option<&Path>, variable: Option<&str>) -> SecretSources {
        SecretSources { credentials_dir: dir.map(Path::to_owned), variable: variable.map(OsString::from) }
    }

    fn revealed(sources: &SecretSources, file: Option<&Path>) -> Option<String> {
        sources.password(file).unwrap().map(|found| found.secret.reveal().to_owned())
    }

    #[test]
    fn the_file_wins_over_the_credential_and_that_over_the_variable() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        fs::write(&file, "of the file \r\n").unwrap();
        let all = sources(Some(dir.path()), Some("of the variable"));
        assert_eq!(revealed(&all, None).as_deref(), Some("of the variable"), "a credential need not be there");
        fs::write(dir.path().join(CREDENTIAL_NAME), "of the credential\n").unwrap();
        assert_eq!(revealed(&all, None).as_deref(), Some("of the credential"));
        assert_eq!(revealed(&all, Some(&file)).as_deref(), Some("of the file "), "only the line end is cut");
        assert_eq!(revealed(&sources(None, None), None), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_can_read_is_warned_of() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        fs::write(&file, PASSWORD).unwrap();
        for (mode, is_warned_of) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let found = sources(None, None).password(Some(&file)).unwrap().unwrap();
            assert_eq!(found.warning.is_some(), is_warned_of, "{mode:o}");
            assert!(!format!("{found:?}").contains(PASSWORD));
        }
    }

    #[test]
    fn a_file_that_is_missing_or_empty_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        let sources = sources(None, Some(PASSWORD));
        assert_eq!(sources.password(Some(&file)).unwrap_err().exit.number(), 78);
        fs::write(&file, "\n").unwrap();
        let failure = sources.password(Some(&file)).unwrap_err();
        assert_eq!((failure.exit.number(), failure.causes[0].as_str()), (78, "it is empty"));
        assert!(!format!("{sources:?}").contains(PASSWORD));
    }
}
