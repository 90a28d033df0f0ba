//! What the program takes from the process around it, in one value that tests can make up.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use etcetera::base_strategy::Xdg;

/// Variables and folders of the process.
#[derive(Clone, Default)]
pub struct Environment {
    pub variables: BTreeMap<OsString, OsString>,
    /// Where `feeddedup.toml` is looked for first; blank is the working directory itself.
    pub working_dir: PathBuf,
    /// `$XDG_CONFIG_HOME`, or else `.config` in the home directory.
    pub config_home: Option<PathBuf>,
    /// `$XDG_STATE_HOME`, or else `.local/state` in the home directory.
    pub state_home: Option<PathBuf>,
}

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        let mut environment = Self { variables: std::env::vars_os().collect(), ..Self::default() };
        // Without HOME the crate asks the user database: a service would then keep its claims where nobody told it to.
        let is_told = |variable| environment.variable("HOME").or(environment.variable(variable)).is_some();
        let (has_config, has_state) = (is_told("XDG_CONFIG_HOME"), is_told("XDG_STATE_HOME"));
        if let Ok(xdg) = Xdg::new() {
            environment.config_home = has_config.then(|| xdg.config_dir());
            environment.state_home = xdg.state_dir().filter(|_| has_state);
        }
        environment
    }

    /// The value of a variable; an empty one is as good as none.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// A variable that names a folder.
    pub fn folder(&self, name: &str) -> Option<&Path> {
        self.variable(name).map(Path::new)
    }

    /// The first of the folders that a variable lists, with colons between them.
    pub fn first_folder(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).and_then(|words| std::env::split_paths(words).next())
    }
}

impl fmt::Debug for Environment {
    // Values are left out: one of them may be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("working_dir", &self.working_dir).finish_non_exhaustive()
    }
}
