//! The embedded store, from empty: against tools that only sort out a file and store nothing.

use crate::Scene;
use crate::contenders::{Expected, Place, awk, awk_name, duckdb, feeddedup, missing_module, missing_program};
use crate::report::{Asked, Table, Unit};
use crate::rounds::{Contender, Lap, alternate};

pub(crate) fn time(scene: &Scene) -> anyhow::Result<Table> {
    let mut table = Table::new("Embedded store");
    let feed = scene.feed("feed.csv", scene.plan())?;
    let place = Place { dir: scene.path("embedded"), url: None };

    let first_pass = || {
        place.wipe()?;
        feeddedup(&feed, &place, Expected::AllAccepted)
    };
    // Right behind the first pass, on what that left.
    let replay = || feeddedup(&feed, &place, Expected::AllSuppressed);
    let contenders = [
        Contender::new("feeddedup, new records", first_pass),
        Contender::new("feeddedup, replay", replay),
        Contender::new(&format!("{} '!seen[$0]++'", awk_name()), || awk(&feed, scene.dir.path()))
            .unless(missing_program("awk", "mawk (Debian)")),
        Contender::new("DuckDB, first of each in order", || duckdb("first", &feed, scene.dir.path()))
            .unless(missing_module("duckdb", "duckdb (PyPI)")),
        Contender::new("DuckDB, distinct in any order", || duckdb("distinct", &feed, scene.dir.path()))
            .unless(missing_module("duckdb", "duckdb (PyPI)")),
    ];
    let [first_pass, replay, awk, ordered, distinct] = alternate(scene.options.pairs, contenders)?;

    table.rate(&first_pass, Asked::AtLeast(700e3));
    for laps in [&replay, &awk, &ordered, &distinct] {
        table.rate(laps, Asked::Nothing);
    }
    table.ratio(&first_pass, &awk, Asked::Above(1.0));
    table.ratio(&first_pass, &ordered, Asked::Above(1.0));
    table.ratio(&first_pass, &distinct, Asked::Nothing);
    let what = format!("user and system time, {}", first_pass.name);
    table.row(&what, Unit::MicrosPerRecord, Asked::Nothing, first_pass.spread(Lap::processor_micros));
    Ok(table)
}
