//! Tests of the settings as a whole: precedence, ranges, origins, refusals.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::cli::layers::variable_of;

/// A working directory, a home with settings of its own, and variables.
struct World {
    dir: TempDir,
    environment: Environment,
    flags: FlagWords,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("work")).unwrap();
        fs::create_dir_all(dir.path().join("config/feeddedup")).unwrap();
        let environment = Environment {
            working_dir: dir.path().join("work"),
            config_home: Some(dir.path().join("config")),
            state_home: Some(dir.path().join("state")),
            ..Environment::default()
        };
        Self { dir, environment, flags: FlagWords::new() }
    }

    fn flag(mut self, key: &'static str, value: &str) -> Self {
        self.flags.insert(key, OsString::from(value));
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.variables.insert(name.into(), value.into());
        self
    }

    fn work_file(self, text: &str) -> Self {
        fs::write(self.path("work/feeddedup.toml"), text).unwrap();
        self
    }

    fn home_file(self, text: &str) -> Self {
        fs::write(self.path("config/feeddedup/feeddedup.toml"), text).unwrap();
        self
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.dir.path().join(inside)
    }

    fn settings(&self) -> Settings {
        Settings::resolve(&self.flags, &self.environment).unwrap()
    }

    /// The exit code and the whole message, with the world's folder cut out.
    fn refusal(&self) -> (u8, String) {
        let failure = Settings::resolve(&self.flags, &self.environment).unwrap_err();
        let mut out = Vec::new();
        failure.render(false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        (failure.exit.number(), text.replace(&format!("{}/", self.dir.path().display()), ""))
    }
}

#[test]
fn the_nearest_layer_wins_and_is_named() {
    let world = World::new();
    let lease = |world: &World| {
        let lease = world.settings().lease_s;
        (lease.value.get(), lease.origin)
    };
    assert_eq!(lease(&world), (60, Origin::Default));
    let world = world.home_file("lease_s = 61\n");
    let file = world.path("config/feeddedup/feeddedup.toml");
    assert_eq!(lease(&world), (61, Origin::File { path: file, line: 1 }));
    let world = world.work_file("# near\n\nlease_s = 62\n");
    let file = world.path("work/feeddedup.toml");
    assert_eq!(lease(&world), (62, Origin::File { path: file, line: 3 }));
    let world = world.variable("FEEDDEDUP_LEASE_S", "");
    assert_eq!(lease(&world).0, 62, "an empty variable sets nothing");
    let world = world.variable("FEEDDEDUP_LEASE_S", "63");
    assert_eq!(lease(&world), (63, Origin::Variable("FEEDDEDUP_LEASE_S".into())));
    let world = world.flag("lease_s", "64");
    assert_eq!(lease(&world), (64, Origin::Flag("--lease-s".into())));
}

#[test]
fn every_key_takes_the_ends_of_its_range_and_nothing_beyond() {
    let numbers = [
        ("dedup_ttl_days", 30, 3653),
        ("retention_years", 1, 10),
        ("key_window_s", 60, 2_678_400),
        ("lock_timeout_ms", 10, 500),
        ("breaker_threshold", 1, 20),
        ("breaker_reset_s", 1, 3600),
        ("max_outage_s", 0, 86_400),
        ("lease_s", 10, 3600),
        ("batch_size", 1, 10_000),
        ("threads", 1, 64),
        ("wait_timeout_ms", 1, 10_000),
        ("reject_limit", 0, 100),
        ("conflict_limit", 0, 100),
    ];
    let resolve_flag = |key, value: i64| World::new().flag(key, &value.to_string());
    let resolve_file = |key: &str, value: i64| World::new().work_file(&format!("{key} = {value}\n"));
    for (key, min, max) in numbers {
        for value in [min, max] {
            for world in [resolve_flag(key, value), resolve_file(key, value)] {
                let shown = world.settings().shown().into_iter().find(|shown| shown.key == key).unwrap();
                assert_eq!(shown.value, serde_json::json!(value), "{key}");
            }
        }
        for value in [min - 1, max + 1] {
            assert_eq!(resolve_flag(key, value).refusal().0, 2, "{key} = {value}");
            assert_eq!(resolve_file(key, value).refusal().0, 78, "{key} = {value}");
        }
    }
    // The replicas' range ends where this version does.
    assert_eq!(World::new().flag("wait_replicas", "0").settings().wait_replicas.value.get(), 0);
    assert_eq!(World::new().flag("wait_replicas", "5").settings().wait_replicas.value.get(), 5);
    assert!(World::new().flag("wait_replicas", "6").refusal().1.contains("from 0 to 5"));
}

#[test]
fn words_and_switches_take_what_they_are_and_nothing_else() {
    for (key, good, bad) in [
        ("create_store", "false", "no"),
        ("drift_check", "false", "False"),
        ("fail_mode", "closed", "shut"),
        ("layout", "shared", "Shared"),
        ("key_prefix", "p:", ""),
        ("username", "alice", ""),
        ("out_dir", "out", ""),
        ("profile", "p.toml", ""),
        ("state_dir", "state", ""),
        ("password_file", "pw", ""),
        ("store", "file:s", "s"),
    ] {
        let shown = World::new().flag(key, good).settings().shown();
        let shown = shown.into_iter().find(|shown| shown.key == key).unwrap();
        let text = shown.value.as_str().map_or_else(|| shown.value.to_string(), str::to_owned);
        assert_eq!(text, good);
        assert_eq!(World::new().flag(key, bad).refusal().0, 2, "{key} = {bad}");
    }
}

#[test]
fn a_refusal_names_key_value_range_and_place() {
    let world = World::new().work_file("store = \"file:s\"\n\nbatch_size = 0\n");
    let text = "error: `batch_size` in `work/feeddedup.toml:3` is 0\n  hint: give a number from 1 to 10,000\n";
    assert_eq!(world.refusal(), (78, text.to_owned()));
    let world = World::new().flag("batch_size", "many");
    let text = "error: `batch_size` from `--batch-size` is `many`\n  hint: give a number from 1 to 10,000\n";
    assert_eq!(world.refusal(), (2, text.to_owned()));
    let world = World::new().variable("FEEDDEDUP_FAIL_MODE", "shut");
    let text = "error: `fail_mode` in `FEEDDEDUP_FAIL_MODE` is `shut`\n  hint: give `closed` or `open`\n";
    assert_eq!(world.refusal(), (78, text.to_owned()));
    let world = World::new().work_file("lease_s = \"60\"\n");
    assert!(world.refusal().1.starts_with("error: `lease_s` in `work/feeddedup.toml:1` is `\"60\"`\n"));
}

#[test]
fn what_nobody_knows_is_refused_with_the_nearest_key() {
    let world = World::new().work_file("lease_s = 60\nbatch-size = 5\n");
    let text = "error: there is no setting `batch-size`, which `work/feeddedup.toml:2` gives\n  hint: did you mean `batch_size`?\n";
    assert_eq!(world.refusal(), (78, text.to_owned()));
    let world = World::new().variable("FEEDDEDUP_BATCHSIZE", "5");
    let text = "error: there is no setting for the variable `FEEDDEDUP_BATCHSIZE`\n  hint: did you mean `FEEDDEDUP_BATCH_SIZE`?\n";
    assert_eq!(world.refusal(), (78, text.to_owned()));
    World::new().variable("FEEDDEDUP_BATCHSIZE", "").variable("FEEDDEDUP_REDIS_PASSWORD", "x").settings();
    assert_eq!(World::new().work_file("[store]\nurl = 1\n").refusal().0, 78);
    let world = World::new().work_file("a = 1\nlease_s = = 3\n");
    assert!(world.refusal().1.starts_with("error: `work/feeddedup.toml:2` is not TOML\n"), "{world:?}");
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.refusal().1)
    }
}

#[test]
fn what_this_version_has_not_is_refused() {
    for (key, value) in [("fail_mode", "open"), ("layout", "compact")] {
        for (world, exit) in [(World::new().flag(key, value), 2), (World::new().variable(&variable_of(key), value), 78)]
        {
            let (code, text) = world.refusal();
            assert_eq!(code, exit, "{text}");
            assert!(text.contains("which this version does not have"), "{text}");
        }
    }
}

#[test]
fn years_and_days_of_retention_give_way_to_the_nearer() {
    let days = |world: &World| world.settings().dedup_ttl_days.value.get();
    assert_eq!(days(&World::new()), 2557);
    for (years, expected) in [("1", 366), ("3", 1096), ("7", 2557), ("8", 2922), ("10", 3653)] {
        assert_eq!(days(&World::new().flag("retention_years", years)), expected, "{years}");
    }
    let world = World::new().work_file("dedup_ttl_days = 100\n").variable("FEEDDEDUP_RETENTION_YEARS", "1");
    assert_eq!(days(&world), 366);
    assert_eq!(world.settings().dedup_ttl_days.origin, Origin::Variable("FEEDDEDUP_RETENTION_YEARS".into()));
    let world = world.flag("dedup_ttl_days", "99");
    assert_eq!(days(&world), 99);
    assert!(world.settings().retention_years.is_none());
    let both = "dedup_ttl_days = 100\nretention_years = 2\n";
    assert_eq!(World::new().work_file(both).refusal().0, 78);
    assert_eq!(
        World::new().home_file("dedup_ttl_days = 100\n").work_file("retention_years = 1\n").settings().claim_ttl(),
        Duration::from_secs(366 * 86_400)
    );
    let world = World::new().flag("dedup_ttl_days", "100").flag("retention_years", "2");
    assert_eq!(world.refusal().0, 2);
}

#[test]
fn the_store_is_in_the_state_directory_unless_told() {
    let world = World::new();
    let store = StoreLocation::File(world.path("state/feeddedup/store"));
    assert_eq!(world.settings().store_location(), Ok(&store));
    let world = world.variable("STATE_DIRECTORY", "/var/lib/feeddedup");
    assert_eq!(world.settings().store_location(), Ok(&StoreLocation::File("/var/lib/feeddedup/store".into())));
    let world = world.work_file("state_dir = \"/srv/state\"\n");
    assert_eq!(world.settings().state().unwrap().path(), Path::new("/srv/state"));
    let mut world = World::new();
    world.environment.state_home = None;
    assert_eq!(world.settings().state().unwrap_err().exit.number(), 78);
    assert_eq!(world.settings().store_location().unwrap_err().exit.number(), 78);
}

#[test]
fn a_password_is_refused_on_the_command_line_and_shown_nowhere() {
    let url = "redis://alice:s3cr3t@db1:6379/0";
    let (exit, text) = World::new().flag("store", url).refusal();
    assert_eq!(exit, 2);
    assert!(text.contains("password_file") && !text.contains("s3cr3t"), "{text}");
    for bad in ["rediss://alice:s3cr3t@db1", "s3cr3t", "sqlite:s3cr3t", "redis:s3cr3t"] {
        for world in [World::new().flag("store", bad), World::new().work_file(&format!("store = \"{bad}\"\n"))] {
            let (_, text) = world.refusal();
            assert!(!text.contains("s3cr3t"), "{text}");
        }
    }
    let world = World::new().variable("FEEDDEDUP_STORE", url).variable("FEEDDEDUP_REDIS_PASSWORD", "s3cr3t");
    let settings = world.settings();
    assert!(!format!("{settings:?}{:?}", settings.shown()).contains("s3cr3t"));
    let terminal = Terminal {
        stdout_is_terminal: false,
        stderr_is_terminal: false,
        color: false,
        verbosity: crate::cli::terminal::Verbosity::Quiet,
    };
    let config = settings.store_config(true, &terminal).unwrap();
    assert_eq!(config.password.as_ref().map(crate::store::Secret::reveal), Some("s3cr3t"));
    assert_eq!((config.access, config.remembered.as_deref()), (Access::Read, None));
    assert!(!format!("{config:?}").contains("s3cr3t"));
    assert!(!world.path("state").exists(), "reading makes nothing");
}

#[test]
fn every_key_is_documented_and_named_once() {
    for key in KEYS {
        assert!(key.help.trim().ends_with('.') && key.help.trim().len() < 110, "{}", key.name);
        assert_eq!(KEYS.iter().filter(|other| other.name == key.name).count(), 1, "{}", key.name);
    }
}
