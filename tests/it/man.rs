//! The manual says all that the program has: commands, flags, settings, variables, exit codes.

use serde_json::Value;

use crate::env::{Env, HEADER, Ran, StoreKind};

/// The manual without the marks that would stand between words.
fn manual() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/man/feeddedup.1");
    let text = std::fs::read_to_string(path).unwrap();
    ["\\fB", "\\fI", "\\fR", "\\fP"].iter().fold(text.replace("\\-", "-"), |text, mark| text.replace(mark, ""))
}

fn help(words: &[&str]) -> String {
    let Ran { code, stdout, stderr } = Env::embedded().run(&[&["help"], words].concat());
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{words:?}");
    stdout
}

/// The commands that a help text lists.
fn commands(help: &str) -> Vec<String> {
    let list = help.split("\nCommands:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap();
    let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Every command with its help, those below another one included.
fn all_commands() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for name in commands(&help(&[])) {
        let text = help(&[&name]);
        for below in commands(&text) {
            found.push((format!("{name} {below}"), help(&[&name, &below])));
        }
        found.push((name, text));
    }
    found
}

#[test]
fn the_manual_has_every_command_and_flag() {
    let manual = manual();
    let all = all_commands();
    assert!(all.len() >= 5, "{all:?}");
    for (name, text) in all {
        assert!(manual.contains(&format!("feeddedup {name}")), "the command {name}");
        let words = text.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
        let flags =
            words.flat_map(|line| line.split([' ', ','])).filter(|word| word.starts_with('-') && word.len() > 1);
        for flag in flags {
            assert!(manual.contains(flag), "the flag {flag} of {name}");
        }
    }
}

#[test]
fn the_manual_has_every_setting_with_its_flag_variable_and_default() {
    let manual = manual();
    let shown = Env::embedded().run(&["config", "show", "--json"]).stdout;
    let settings: serde_json::Map<String, Value> = serde_json::from_str(&shown).unwrap();
    assert!(settings.len() > 20, "{settings:?}");
    for (key, setting) in settings {
        let entry = manual.split(&format!("\n.TP\n{key}  (default: ")).nth(1);
        let entry = entry.unwrap_or_else(|| panic!("no entry of the setting {key}")).split("\n.TP\n").next().unwrap();
        let flag = format!("--{}", key.replace('_', "-"));
        let variable = format!("FEEDDEDUP_{}", key.to_uppercase());
        let second = entry.lines().nth(1).unwrap();
        assert!(second.starts_with(&format!("{flag} ")) && second.ends_with(&format!(", {variable}")), "{second}");
        let value = &setting["value"];
        if value.is_null() || setting["origin"] != "default" {
            continue;
        }
        let default = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // A default below the home directory is told in words there.
        let is_of_home = default.contains('/') || default.contains("[store]");
        assert!(is_of_home || entry.starts_with(&format!("{default};")), "{key}: {default}");
    }
    for variable in ["FEEDDEDUP_REDIS_PASSWORD", "CREDENTIALS_DIRECTORY", "STATE_DIRECTORY", "NO_COLOR", "HOME"] {
        assert!(manual.contains(variable), "{variable}");
    }
}

#[test]
fn the_manual_has_every_exit_code_in_the_words_of_the_help() {
    let manual = manual();
    let help = help(&[]);
    let codes = help.split("\nExit codes:\n").nth(1).unwrap().lines();
    let codes = codes.filter_map(|line| line.trim().split_once("  ")).collect::<Vec<_>>();
    assert!(codes.len() >= 14, "{codes:?}");
    for (number, meaning) in codes {
        let start = meaning.split([':', ',']).next().unwrap();
        let named = format!("\n.B {number}\n{}{}", start[..1].to_uppercase(), &start[1..]);
        assert!(manual.contains(&named), "{named}");
    }
}

#[test]
fn every_shell_has_its_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = Env::embedded().run(&["completions", shell]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        assert!(ran.stdout.contains("expect-records"), "{shell}");
    }
}

/// The names of commands in a part of the manual.
fn redis_commands(part: &str) -> Vec<&str> {
    let is_name = |word: &&str| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    part.lines()
        .filter(|line| line.starts_with(".B"))
        .flat_map(|line| line.split(' ').skip(1).filter(is_name))
        .collect()
}

#[test]
fn a_redis_user_with_the_commands_that_the_manual_lists_may_do_everything() {
    let manual = manual();
    let between = |start: &str, end: &str| manual.split(start).nth(1).unwrap().split(end).next().unwrap();
    let env = Env::new(StoreKind::Redis);
    let example = format!("ACL SETUSER feeddedup {}", between("ACL SETUSER feeddedup ", "\n.fi").replace('\n', " "));
    let granted = example.to_uppercase();
    for command in redis_commands(between("The user needs the commands", "and all keys")) {
        assert!(granted.contains(&format!("+{command}")), "{command} in {granted}");
    }
    let looking = redis_commands(between("A dry run needs only", "For example:"));
    let looking: String = looking.iter().map(|command| format!(" +{}", command.to_lowercase())).collect();
    for user in [example, format!("ACL SETUSER auditor on >PASSWORD ~dedup:bankfeed:*{looking}")] {
        assert_eq!(env.ask_server(&user), "+OK\r\n+OK\r\n", "{user}");
    }
    let _replica = env.server.as_ref().unwrap().start_replica();
    let run = |user: &str, words: &[&str]| {
        let common = ["ingest", "july.csv", "--key-prefix", "dedup:bankfeed:", "--username", user];
        let mut command = env.command(&[&common, words].concat());
        command.env("FEEDDEDUP_REDIS_PASSWORD", "PASSWORD");
        env.finish(command, b"").said_besides_store()
    };
    env.write("july.csv", format!("{HEADER}\nDE-main,T1,1.00,EUR,2026-07-01\n"));
    let waiting = ["--wait-replicas", "1", "--wait-timeout-ms", "10000"];
    // A gate that does not hold frees claims; then the run goes on; then there is a pass that finds its claims.
    assert_eq!(run("feeddedup", &["--expect-records", "2"]).code, Some(65));
    run("feeddedup", &waiting).check(0, "");
    run("feeddedup", &waiting).check(0, "");
    assert_eq!(run("auditor", &["--dry-run"]).code, Some(0));
    let denied = run("auditor", &[]);
    assert_eq!(denied.code, Some(78), "{denied:?}");
}
