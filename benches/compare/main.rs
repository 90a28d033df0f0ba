//! Times feeddedup against what else could do its work, and prints the tables that the README quotes.
//!
//! Every contender reads the same file in the same run, in alternating rounds, because these machines are noisy: a
//! figure is a median, and a ratio is the median of the ratios round by round. All outputs and the audit are on.

#![expect(clippy::float_arithmetic, reason = "rates and ratios are measurements; no money is computed here")]

use std::path::PathBuf;

use anyhow::Context;
use clap::builder::RangedU64ValueParser;
use clap::{Parser, ValueEnum};
use tempfile::TempDir;

mod child;
mod contenders;
mod feed;
mod prepack;
mod report;
mod rounds;
mod sections;
mod server;

use feed::{Feed, FeedPlan, Month, TimeOrder};

/// Times feeddedup against what else could do its work.
#[derive(Debug, Parser)]
#[command(name = "compare")]
struct Options {
    /// Records of a feed.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    records: u64,
    /// Rounds in which the contenders take turns; figures of fewer than seven are not to be quoted.
    #[arg(long, default_value_t = rounds::ROUNDS_MIN, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pairs: usize,
    /// The sections to run, instead of all.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Section>,
    /// Memory with ten times the records too: minutes, and up to 10 GB of disk and 5 GB of memory.
    #[arg(long)]
    long: bool,
    /// Where feeds, stores and outputs are written: the disk that is timed.
    #[arg(long, default_value = concat!(env!("CARGO_TARGET_TMPDIR"), "/compare"))]
    dir: PathBuf,
    /// The month that the feed is of.
    #[arg(long, default_value = "2026-07")]
    month: Month,
    /// Times in no order within the month, instead of ascending.
    #[arg(long)]
    shuffled: bool,
    #[arg(long, default_value_t = 20_260_715)]
    seed: u64,
    /// Times nothing: shows that all contenders compute the same keys, on a small feed.
    #[arg(long)]
    self_check: bool,
    /// `cargo bench` passes it to every runner.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A question to time, and a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Section {
    /// The disk's write rate.
    Disk,
    /// Redis: new records and their replay, against `redis-cli --pipe`.
    Redis,
    /// Redis: against clients in Python.
    Clients,
    /// The embedded store: new records, against awk and DuckDB.
    Embedded,
    /// The embedded store: a month on top of twenty older ones.
    History,
    /// Memory, either store.
    Memory,
}

/// What every section needs.
struct Scene {
    options: Options,
    dir: TempDir,
}

impl Scene {
    fn plan(&self) -> FeedPlan {
        let Options { records, month, shuffled, seed, .. } = self.options;
        let order = if shuffled { TimeOrder::Shuffled } else { TimeOrder::Ascending };
        FeedPlan { records, month, order, seed }
    }

    /// Writes the feed of `plan` as `name`.
    fn feed(&self, name: &str, plan: FeedPlan) -> anyhow::Result<Feed> {
        report::tell(&format!("writing a feed of {} records", report::grouped(plan.records)));
        plan.write(&self.path(name)).with_context(|| format!("could not write the feed `{name}`"))
    }

    /// Removes what a section left, so that the next one has the disk to itself.
    fn clear(&self) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(self.dir.path())? {
            let path = entry?.path();
            if path.is_dir() { contenders::remove(&path)? } else { std::fs::remove_file(&path)? }
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    std::fs::create_dir_all(&options.dir).with_context(|| format!("could not make `{}`", options.dir.display()))?;
    let dir = tempfile::Builder::new().prefix("run-").tempdir_in(options.dir.canonicalize()?)?;
    let scene = Scene { options, dir };
    if scene.options.self_check {
        return sections::self_check::run(&scene);
    }
    report::say(&report::machine_line());
    report::say(&sections::heading(&scene));
    let mut failed = 0;
    for &section in Section::value_variants() {
        if scene.options.only.is_empty() || scene.options.only.contains(&section) {
            // One section that cannot be timed must not cost the hour of the others.
            if let Err(error) = sections::run(section, &scene) {
                report::tell(&format!("error: could not time {section:?}: {error:#}"));
                failed += 1;
            }
            scene.clear()?;
        }
    }
    anyhow::ensure!(failed == 0, "{failed} sections were not timed");
    Ok(())
}
