//! The command `config show`: each setting, its value and its origin; never a secret.

use crate::cli::args::ConfigShowArgs;
use crate::cli::failure::ExitCode;
use crate::cli::settings::{Settings, Shown};
use crate::cli::terminal::Terminal;

pub(crate) fn run(args: &ConfigShowArgs, settings: &Settings, terminal: &Terminal) -> anyhow::Result<ExitCode> {
    let shown = settings.shown();
    let text = if args.json { as_json(&shown) } else { as_lines(&shown, args.origin) };
    terminal.print(text.as_bytes())?;
    Ok(ExitCode::Done)
}

fn as_json(settings: &[Shown]) -> String {
    let entry = |shown: &Shown| {
        let value = serde_json::json!({ "value": shown.value, "origin": shown.origin.to_string() });
        (shown.key.to_owned(), value)
    };
    let object: serde_json::Map<String, serde_json::Value> = settings.iter().map(entry).collect();
    format!("{:#}\n", serde_json::Value::Object(object))
}

/// Lines that `feeddedup.toml` takes; a setting without a value is a comment.
fn as_lines(settings: &[Shown], with_origin: bool) -> String {
    let line = |shown: &Shown| match shown.value.is_null() {
        true => format!("# {} is not set", shown.key),
        false => format!("{} = {}", shown.key, shown.value),
    };
    let lines: Vec<(String, &Shown)> = settings.iter().map(|shown| (line(shown), shown)).collect();
    let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
    let with_place = |(line, shown): &(String, &Shown)| match with_origin && !shown.value.is_null() {
        true => format!("{line:width$}  # {}\n", shown.origin),
        false => format!("{line}\n"),
    };
    lines.iter().map(with_place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::environment::Environment;

    fn settings() -> Settings {
        let flags = [("batch_size", "500".into())].into();
        let mut environment = Environment { state_home: Some("/h/.local/state".into()), ..Environment::default() };
        for (name, value) in [
            ("FEEDDEDUP_STORE", "redis://alice:s3cr3t@db1:6379/0"),
            ("FEEDDEDUP_REDIS_PASSWORD", "s3cr3t"),
            ("FEEDDEDUP_KEY_PREFIX", "a\"b:"),
        ] {
            environment.variables.insert(name.into(), value.into());
        }
        Settings::resolve(&flags, &environment).unwrap()
    }

    #[test]
    fn no_form_shows_a_secret() {
        let (settings, shown) = (settings(), settings().shown());
        for text in [as_json(&shown), as_lines(&shown, true), format!("{settings:?}")] {
            assert!(text.contains("redis://db1:6379/0"), "{text}");
            assert!(!text.contains("s3cr3t") && !text.contains("alice"), "{text}");
        }
    }

    #[test]
    fn lines_are_toml_and_name_their_origin() {
        let text = as_lines(&settings().shown(), true);
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table["batch_size"].as_integer(), Some(500));
        assert_eq!(table["key_prefix"].as_str(), Some("a\"b:"));
        let line = |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap();
        assert!(line("batch_size").ends_with("  # flag --batch-size"));
        assert!(line("store").ends_with("  # variable FEEDDEDUP_STORE"));
        assert!(line("lease_s").ends_with("  # default"));
        assert_eq!(line("# threads"), "# threads is not set");
    }

    #[test]
    fn json_has_every_key_with_value_and_origin() {
        let object: serde_json::Value = serde_json::from_str(&as_json(&settings().shown())).unwrap();
        assert_eq!(object["batch_size"], serde_json::json!({ "value": 500, "origin": "flag --batch-size" }));
        assert_eq!(object["threads"], serde_json::json!({ "value": null, "origin": "default" }));
    }
}
