//! Every setting once: key, flag, variable, default, range and help are one row of the table below.
//!
//! A new key is a new row; its type says what it may be. The flag is the key in kebab-case, the variable the key in
//! capitals behind `FEEDDEDUP_`. The manual must name it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::environment::Environment;
use super::failure::Failure;
use super::layers::{FlagWords, Layers, Origin, Setting};
use super::secrets::SecretSources;
use super::state_dir::{self, StateDir};
use super::terminal::Terminal;
use super::value::{FailMode, Layout, Percent, Text, Value, Whole};
use crate::domain::Interrupt;
use crate::store::{Access, StoreConfig, StoreLocation};

/// In front of every variable of the program.
pub const VARIABLE_PREFIX: &str = "FEEDDEDUP_";

/// Variables with the prefix that are no settings.
pub const OTHER_VARIABLES: [&str; 1] = [super::secrets::PASSWORD_VARIABLE];

/// What is known of a key before any value is read.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// What stands for the value in help texts.
    pub placeholder: &'static str,
    /// What a value must be, where that is worth telling.
    pub range: fn() -> Option<String>,
    /// None where the program chooses.
    pub default: Option<&'static str>,
}

/// A key with its value, as `config show` lists it.
#[derive(Debug)]
pub struct Shown {
    pub key: &'static str,
    /// Null where nothing is set.
    pub value: serde_json::Value,
    pub origin: Origin,
}

/// The type of a row's field.
macro_rules! slot {
    ($type:ty, unset) => { Option<Setting<$type>> };
    ($type:ty, $default:literal) => { Setting<$type> };
}

macro_rules! default_text {
    (unset) => {
        None
    };
    ($default:literal) => {
        Some($default)
    };
}

macro_rules! read_slot {
    ($layers:expr, $key:expr, unset) => {
        $layers.optional($key)?
    };
    ($layers:expr, $key:expr, $default:literal) => {
        $layers.required($key, $default)?
    };
}

macro_rules! settings {
    ($($(#[doc = $help:literal])+ $name:ident: $type:ty = $default:tt, $placeholder:literal;)+) => {
        /// Every key of the program, in the order in which it is shown.
        pub static KEYS: &[Key] = &[$(Key {
            name: stringify!($name),
            help: concat!($($help),+),
            placeholder: $placeholder,
            range: <$type as Value>::range,
            default: default_text!($default),
        }),+];

        /// What the program was told, from wherever it was told.
        #[derive(Debug)]
        pub struct Settings {
            $($(#[doc = $help])+ pub $name: slot!($type, $default),)+
            /// Where a password may be; never the password.
            pub secret_sources: SecretSources,
        }

        impl Settings {
            fn of_layers(layers: &Layers<'_>, secret_sources: SecretSources) -> Result<Self, Failure> {
                Ok(Self { $($name: read_slot!(layers, stringify!($name), $default),)+ secret_sources })
            }

            /// Every key with its value and origin, without secrets.
            pub fn shown(&self) -> Vec<Shown> {
                vec![$(self.$name.shown(stringify!($name))),+]
            }
        }
    };
}

settings! {
    /// Keep claims in this store.
    store: StoreLocation = unset, "STORE";
    /// Create the store if there is none.
    create_store: bool = "true", "BOOL";
    /// Keep what must outlast a run in this folder.
    state_dir: PathBuf = unset, "DIR";
    /// Write the files of a run into this folder instead of beside the feed.
    out_dir: PathBuf = unset, "DIR";
    /// Read feeds as this profile says.
    profile: PathBuf = unset, "FILE";
    /// Let a claim live this many days; the embedded store keeps claims for good in this version.
    dedup_ttl_days: Whole<30, 3653> = "2557", "DAYS";
    /// Let a claim live this many years; stands in for `dedup_ttl_days`.
    retention_years: Whole<1, 10> = unset, "YEARS";
    /// Take equal keys for one record within this many seconds; without effect in this version.
    key_window_s: Whole<60, 2_678_400> = "86400", "SECONDS";
    /// Put this in front of every key in the store.
    key_prefix: Text = "dedup:bankfeed:", "TEXT";
    /// Wait this long for the store without any progress.
    lock_timeout_ms: Whole<10, 500> = "50", "MILLISECONDS";
    /// Give the store up after this many failures in a row.
    breaker_threshold: Whole<1, 20> = "5", "COUNT";
    /// Try a store that was given up again after this many seconds; without effect in this version.
    breaker_reset_s: Whole<1, 3600> = "30", "SECONDS";
    /// Stop when the store is out of reach (`closed`); this version does not have `open`.
    fail_mode: FailMode = "closed", "MODE";
    /// Go on trying a store that is out of reach for this many seconds; without effect in this version.
    max_outage_s: Whole<0, 86_400> = "0", "SECONDS";
    /// Leave a run alone for this many seconds after the last sign of life of its worker.
    lease_s: Whole<10, 3600> = "60", "SECONDS";
    /// Divert records whose payment was taken in before with other content.
    drift_check: bool = "true", "BOOL";
    /// Lay claims out in this way; this version does not have `compact`.
    layout: Layout = "shared", "LAYOUT";
    /// Make a new Redis store for this many records.
    expected_records: Whole<1, 5_000_000_000> = "4000000", "COUNT";
    /// Send this many claims in one round trip or transaction; chosen by the store if not set.
    batch_size: Whole<1, 10_000> = unset, "COUNT";
    /// Use this many threads; one for each core if not set.
    threads: Whole<1, 64> = unset, "COUNT";
    /// Publish only what this many replicas of the store have.
    wait_replicas: Whole<0, 5> = "0", "COUNT";
    /// Wait this long for replicas.
    wait_timeout_ms: Whole<1, 10_000> = "10", "MILLISECONDS";
    /// Refuse a feed of whose records more than this share is rejected; by default not before 20 are.
    reject_limit: Percent = "50", "PERCENT";
    /// Refuse a feed of whose records more than this share is in conflict; by default not before 20 are.
    conflict_limit: Percent = "5", "PERCENT";
    /// Log in to the store as this user.
    username: Text = unset, "NAME";
    /// Read the store's password from this file.
    password_file: PathBuf = unset, "FILE";
}

/// A field of `Settings`, set or not.
trait Slot {
    fn shown(&self, key: &'static str) -> Shown;
}

impl<T: Value> Slot for Setting<T> {
    fn shown(&self, key: &'static str) -> Shown {
        Shown { key, value: self.value.shown(), origin: self.origin.clone() }
    }
}

impl<T: Value> Slot for Option<Setting<T>> {
    fn shown(&self, key: &'static str) -> Shown {
        match self {
            Some(setting) => setting.shown(key),
            None => Shown { key, value: serde_json::Value::Null, origin: Origin::Default },
        }
    }
}

impl Settings {
    /// Settles every key from the flags, the environment and the settings files.
    pub fn resolve(flags: &FlagWords, environment: &Environment) -> Result<Self, Failure> {
        let layers = Layers::read(flags, environment, KEYS)?;
        let mut settings = Self::of_layers(&layers, SecretSources::of(environment))?;
        settings.settle_retention(&layers)?;
        settings.refuse_what_is_not_built()?;
        settings.refuse_typed_password()?;
        if settings.state_dir.is_none() {
            settings.state_dir = state_dir::default_place(environment);
        }
        if settings.store.is_none() {
            let folder = settings.state_dir.as_ref().map(|dir| dir.value.join("store"));
            settings.store =
                folder.map(|folder| Setting { value: StoreLocation::File(folder), origin: Origin::Default });
        }
        Ok(settings)
    }

    /// Makes `dedup_ttl_days` what counts, and leaves `retention_years` set only if it decided.
    fn settle_retention(&mut self, layers: &Layers<'_>) -> Result<(), Failure> {
        let (Some(years), depth) = (self.retention_years.clone(), layers.depth_of("retention_years")) else {
            return Ok(());
        };
        match (layers.depth_of("dedup_ttl_days"), depth) {
            (Some(days), Some(years)) if days < years => self.retention_years = None,
            (days, years_depth) if days == years_depth => {
                return Err(Failure::new(
                    years.origin.exit(),
                    format!(
                        "both `retention_years` and `dedup_ttl_days` are set, {} and {}",
                        years.origin.place(),
                        self.dedup_ttl_days.origin.place()
                    ),
                )
                .hint("give one of them: a year is 365.25 days, rounded up"));
            }
            (Some(_) | None, Some(_) | None) => {
                let days = (years.value.get() * 1461).div_ceil(4);
                let value = Whole::new(days).expect("1 to 10 years are 366 to 3,653 days");
                self.dedup_ttl_days = Setting { value, origin: years.origin };
            }
        }
        Ok(())
    }

    /// Refuses what the contract has and this version has not: to take the setting and ignore it would be a lie.
    fn refuse_what_is_not_built(&self) -> Result<(), Failure> {
        let refusals = [
            (self.fail_mode.value == FailMode::Open, self.fail_mode.shown("fail_mode"), "leave it at `closed`"),
            (self.layout.value == Layout::Compact, self.layout.shown("layout"), "leave it at `shared`"),
        ];
        match refusals.into_iter().find(|(is_refused, ..)| *is_refused) {
            None => Ok(()),
            Some((_, Shown { key, value, origin }, hint)) => {
                let value = value.as_str().map_or_else(|| value.to_string(), |text| format!("`{text}`"));
                let error = format!("`{key}` {} is {value}, which this version does not have", origin.place());
                Err(Failure::new(origin.exit(), error).hint(hint))
            }
        }
    }

    /// A command line can be read by every user of the machine, and stays in the shell's history.
    fn refuse_typed_password(&self) -> Result<(), Failure> {
        match &self.store {
            Some(Setting { value, origin: Origin::Flag(flag) }) if value.holds_password() => Err(Failure::usage(
                format!("`{flag}` holds a password, which others on this machine could read"),
            )
            .hint("give it by `password_file`, the systemd credential `feeddedup-redis` or FEEDDEDUP_REDIS_PASSWORD")),
            Some(_) | None => Ok(()),
        }
    }

    /// The state directory; an error where none is set and there is no home directory.
    pub fn state(&self) -> Result<StateDir, Failure> {
        match &self.state_dir {
            Some(setting) => Ok(StateDir::at(setting.value.clone())),
            None => Err(state_dir::without_home()),
        }
    }

    /// The store's place, by default in the state directory.
    pub fn store_location(&self) -> Result<&StoreLocation, Failure> {
        self.store.as_ref().map(|setting| &setting.value).ok_or_else(state_dir::without_home)
    }

    /// How to reach the store: place, login, and what is remembered of it. `reading` forbids to create anything.
    pub fn store_config(&self, reading: bool, terminal: &Terminal) -> Result<StoreConfig, Failure> {
        let location = self.store_location()?.clone();
        let prefix = self.key_prefix.value.as_str().to_owned();
        let remembered = self.state()?.remembered(&location, &prefix)?;
        let password = match &location {
            StoreLocation::File(_) => None,
            StoreLocation::Redis { .. } => {
                let file = self.password_file.as_ref().map(|setting| setting.value.as_path());
                let found = self.secret_sources.password(file)?;
                found.iter().filter_map(|found| found.warning.as_ref()).for_each(|line| terminal.warn(line));
                found.map(|found| found.secret)
            }
        };
        let access = if reading { Access::Read } else { Access::Write { create: self.create_store.value } };
        Ok(StoreConfig {
            location,
            prefix,
            expected_records: self.expected_records.value.get(),
            claim_ttl: self.claim_ttl(),
            lock_timeout: Duration::from_millis(self.lock_timeout_ms.value.get()),
            batch_size: self.batch_size.as_ref().map(|setting| small(setting.value.get())),
            replicas_min: u32::try_from(self.wait_replicas.value.get()).expect("at most 5 replicas are waited for"),
            replicas_timeout: Duration::from_millis(self.wait_timeout_ms.value.get()),
            failures_max: u32::try_from(self.breaker_threshold.value.get()).expect("a threshold is at most 20"),
            username: self.username.as_ref().map(|setting| setting.value.as_str().to_owned()),
            password,
            remembered,
            access,
            // Settings know of no signals: who opens the store puts in what can interrupt it.
            interrupt: Interrupt::default(),
        })
    }

    /// Where locks on feeds are.
    pub fn lock_folder(&self) -> Result<PathBuf, Failure> {
        let folder = match self.store_location()?.folder() {
            // Beside the store: whoever uses it meets the same locks.
            Some(folder) => folder.to_owned(),
            None => self.state()?.path().to_owned(),
        };
        Ok(folder.join("locks"))
    }

    /// How long a claim lives.
    pub fn claim_ttl(&self) -> Duration {
        Duration::from_secs(self.dedup_ttl_days.value.get() * 86_400)
    }

    /// How many threads are asked for; none to use one for each core.
    pub fn thread_count(&self) -> Option<usize> {
        self.threads.as_ref().map(|setting| small(setting.value.get()))
    }

    /// The folder for the files of a run, if it is not the feed's own.
    pub fn output_folder(&self) -> Option<&Path> {
        self.out_dir.as_ref().map(|setting| setting.value.as_path())
    }

    /// The file of the profile.
    pub fn profile_file(&self) -> Option<&Path> {
        self.profile.as_ref().map(|setting| setting.value.as_path())
    }
}

fn small(number: u64) -> usize {
    usize::try_from(number).expect("the ranges of counts fit every machine")
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
