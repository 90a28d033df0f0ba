//! What the runner prints: Markdown on standard output, what it is doing on standard error.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::thread;

use crate::rounds::{Laps, Spread};

/// A row's demand on its figure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked {
    Nothing,
    AtLeast(f64),
    /// Faster than another, by however little.
    Above(f64),
    Below(f64),
    AtMost(f64),
}

/// How a figure is written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unit {
    RecordsPerSecond,
    MegabytesPerSecond,
    MicrosPerRecord,
    Mebibytes,
    BytesPerRecord,
    Ratio,
}

/// One section's table.
pub(crate) struct Table {
    text: String,
}

impl Table {
    pub(crate) fn new(title: &str) -> Self {
        let text = format!(
            "\n### {title}\n\n| what | asked | measured: median (min–max) | met |\n| --- | --- | --- | --- |\n"
        );
        Self { text }
    }

    /// A figure and what is asked of its median.
    pub(crate) fn row(&mut self, what: &str, unit: Unit, asked: Asked, measured: Option<Spread>) {
        let measured_text = measured.map_or_else(|| "not measured".to_owned(), |spread| unit.spread(spread));
        let met = measured.map_or("–", |spread| asked.verdict(spread.median));
        let _ = writeln!(self.text, "| {what} | {} | {measured_text} | {met} |", asked.text(unit));
    }

    /// The rate of `laps`; where the contender is missing, what to install.
    pub(crate) fn rate(&mut self, laps: &Laps, asked: Asked) {
        match laps.missing {
            Some(package) => {
                let _ = writeln!(self.text, "| {} | | not installed: {package} | – |", laps.name);
            }
            None => self.row(&laps.name, Unit::RecordsPerSecond, asked, laps.spread(crate::rounds::Lap::rate)),
        }
    }

    /// The rate of `ours` in terms of `theirs`; nothing where one of the two is missing.
    pub(crate) fn ratio(&mut self, ours: &Laps, theirs: &Laps, asked: Asked) {
        if let Some(ratio) = ours.ratio_to(theirs) {
            self.row(&format!("{} ÷ {}", ours.name, theirs.name), Unit::Ratio, asked, Some(ratio));
        }
    }

    pub(crate) fn print(self) {
        say(self.text.trim_end_matches('\n'));
    }
}

impl Asked {
    fn text(self, unit: Unit) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::AtLeast(limit) => format!("≥ {}", unit.text(limit)),
            Self::Above(limit) => format!("> {}", unit.text(limit)),
            Self::Below(limit) => format!("< {}", unit.text(limit)),
            Self::AtMost(limit) => format!("≤ {}", unit.text(limit)),
        }
    }

    fn verdict(self, figure: f64) -> &'static str {
        let met = match self {
            Self::Nothing => return "–",
            Self::AtLeast(limit) => figure >= limit,
            Self::Above(limit) => figure > limit,
            Self::Below(limit) => figure < limit,
            Self::AtMost(limit) => figure <= limit,
        };
        if met { "yes" } else { "**no**" }
    }
}

impl Unit {
    fn number(self, figure: f64) -> String {
        match self {
            Self::RecordsPerSecond => format!("{:.1} k", figure / 1e3),
            Self::MegabytesPerSecond => format!("{figure:.0}"),
            Self::MicrosPerRecord | Self::Ratio => format!("{figure:.2}"),
            Self::Mebibytes | Self::BytesPerRecord => format!("{figure:.1}"),
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::RecordsPerSecond => " records/s",
            Self::MegabytesPerSecond => " MB/s",
            Self::MicrosPerRecord => " µs/record",
            Self::Mebibytes => " MiB",
            Self::BytesPerRecord => " bytes/record",
            Self::Ratio => " ×",
        }
    }

    fn text(self, figure: f64) -> String {
        self.number(figure) + self.suffix()
    }

    fn spread(self, Spread { median, min, max }: Spread) -> String {
        if min < max {
            format!("{} ({}–{})", self.text(median), self.number(min), self.number(max))
        } else {
            self.text(median)
        }
    }
}

/// The machine, the day, and the versions that figures depend on.
pub(crate) fn machine_line() -> String {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let cores = thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let system = rustix::system::uname();
    format!(
        "{date}, feeddedup {version}, {model}, {cores} cores, {system} {release}, Redis {redis}",
        date = chrono::Utc::now().format("%Y-%m-%d"),
        version = env!("CARGO_PKG_VERSION"),
        system = system.sysname().to_string_lossy(),
        release = system.release().to_string_lossy(),
        redis = redis_version().unwrap_or_else(|| "not installed".to_owned()),
    )
}

fn redis_version() -> Option<String> {
    let output = Command::new("redis-server").arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split(' ').find_map(|word| word.strip_prefix("v=")).map(str::to_owned)
}

/// A count as people read it: `1,000,000`.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[expect(clippy::print_stdout, reason = "the tables are the runner's product")]
pub(crate) fn say(text: &str) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "a round may take minutes, and nothing of it belongs among the tables")]
pub(crate) fn tell(text: &str) {
    eprintln!("{text}");
}
