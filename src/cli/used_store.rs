//! The store of a command: opened, held against what is remembered of it, and remembered.

use super::failure::Failure;
use super::settings::Settings;
use super::taking_back_failure::unknown;
use super::terminal::Terminal;
use crate::domain::{Interrupt, RunId};
use crate::store::{self, Access, Store, StoreConfig, StoreError};

/// A store that is open.
pub(super) struct UsedStore<'a> {
    pub store: Box<dyn Store>,
    settings: &'a Settings,
    access: Access,
    /// The random value in the store; none for a store that does not exist.
    sentinel: Option<String>,
}

impl<'a> UsedStore<'a> {
    /// Opens the store that the settings name. Its creation is said, always.
    pub(super) fn open(
        settings: &'a Settings,
        access: Access,
        terminal: &Terminal,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Self> {
        let config = settings.store_config(access == Access::Read, terminal)?;
        let config = StoreConfig { access, interrupt: interrupt.clone(), ..config };
        let state = settings.state()?;
        let remembered = state.remembered_age(&config.location, &config.prefix)?;
        let opened = store::open(&config)?;
        state.check_age(&config.location, &config.prefix, remembered, opened.age)?;
        let used = Self { store: opened.store, settings, access, sentinel: opened.sentinel };
        used.remember(opened.age)?;
        if opened.is_new {
            terminal.say(&format!("created the store `{}`", config.location.address()));
        }
        Ok(used)
    }

    /// Whether there is a store; one that does not exist can be looked at.
    pub(super) fn exists(&self) -> bool {
        self.sentinel.is_some()
    }

    /// Makes the store older and remembers its age: an older copy of it must not pass for it.
    ///
    /// What the command did stands, whether this is remembered or not: a failure here must not say otherwise.
    pub(super) fn advance_age(&mut self, terminal: &Terminal) {
        let age = self.store.advance_age().map_err(Failure::from);
        if let Err(failure) = age.and_then(|age| self.remember(age)) {
            terminal.warn(&format!("the age of the store was not remembered: {}", failure.error));
        }
    }

    /// Remembers that the store was this old when it was used; who only looks remembers nothing.
    fn remember(&self, age: u64) -> Result<(), Failure> {
        match (&self.sentinel, self.access) {
            (Some(sentinel), Access::Write { .. }) => {
                let prefix = self.settings.key_prefix.value.as_str();
                self.settings.state()?.remember(self.settings.store_location()?, prefix, sentinel, age)
            }
            (Some(_) | None, Access::Read) | (None, Access::Write { .. }) => Ok(()),
        }
    }
}

/// Opens the store for what is to be done with `run`, which a store that does not exist does not know.
pub(super) fn open_for_run<'a>(
    settings: &'a Settings,
    access: Access,
    terminal: &Terminal,
    run: &RunId,
) -> anyhow::Result<UsedStore<'a>> {
    // Nothing waits for a signal: killed at any instruction and repeated, such a command comes to the same end.
    match UsedStore::open(settings, access, terminal, &Interrupt::default()) {
        Err(error) if matches!(error.downcast_ref(), Some(StoreError::Missing { .. })) => Err(unknown(run).into()),
        opened => opened.map_err(|error| opening_failure(error).into()),
    }
}

/// What an error of the store means to a command that takes no feed in.
pub(super) fn failure(error: StoreError) -> Failure {
    let hint = match &error {
        StoreError::Unreachable { .. } => "start the store and repeat the command",
        StoreError::Busy { .. } => "repeat the command once the store takes writes again",
        StoreError::Interrupted { .. } => "repeat the command",
        StoreError::Io { .. } => "mend the cause and repeat the command",
        StoreError::Forgotten { .. } => "put the newest copy of the store back and repeat the command",
        StoreError::Corrupt { .. } => {
            "keep a copy of the store, then put the newest sound copy back and repeat the command"
        }
        StoreError::Denied { .. }
        | StoreError::Unfit { .. }
        | StoreError::Missing { .. }
        | StoreError::OtherVersion { .. } => return error.into(),
    };
    Failure::from(error).hint(hint)
}

/// The same of whatever came up in opening the store.
pub(super) fn opening_failure(error: anyhow::Error) -> Failure {
    match error.downcast::<StoreError>() {
        Ok(error) => failure(error),
        Err(error) => Failure::of(error),
    }
}
