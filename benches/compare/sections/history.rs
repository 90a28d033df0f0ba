//! The embedded store: a month on top of twenty older ones, against the same month into an empty store.

use std::process::Command;

use anyhow::ensure;

use crate::Scene;
use crate::contenders::{Expected, Place, feeddedup, remove};
use crate::feed::FeedPlan;
use crate::report::{Asked, Table, Unit, grouped, tell};
use crate::rounds::{Contender, Spread, alternate};

const MONTHS: u32 = 20;

pub(crate) fn time(scene: &Scene) -> anyhow::Result<Table> {
    let mut table = Table::new("Embedded store: a month on top of older ones");
    let grown = Place { dir: scene.path("history"), url: None };
    fill(scene, &grown)?;
    let feed = scene.feed("feed.csv", scene.plan())?;
    let empty = Place { dir: scene.path("empty"), url: None };
    // The copy stands where the older months were ingested: a state directory remembers stores by their path.
    let origin = scene.path("origin");
    std::fs::rename(&grown.dir, &origin)?;

    let into_empty = || {
        empty.wipe()?;
        feeddedup(&feed, &empty, Expected::AllAccepted)
    };
    let onto_history = || {
        remove(&grown.dir)?;
        let copied = Command::new("cp").arg("-a").arg(&origin).arg(&grown.dir).status()?;
        ensure!(copied.success(), "could not copy the store of older months");
        feeddedup(&feed, &grown, Expected::AllAccepted)
    };
    let older = format!("feeddedup, on top of {} older records", grouped(u64::from(MONTHS) * feed.records));
    let contenders =
        [Contender::new("feeddedup, into an empty store", into_empty), Contender::new(&older, onto_history)];
    let [into_empty, onto_history] = alternate(scene.options.pairs, contenders)?;

    table.rate(&into_empty, Asked::Nothing);
    table.rate(&onto_history, Asked::Nothing);
    table.ratio(&onto_history, &into_empty, Asked::AtLeast(0.6));
    let bytes = origin.join("store/data.mdb").metadata()?.len() as f64;
    let each = Spread::of(vec![bytes / (u64::from(MONTHS) * feed.records) as f64]);
    table.row("disk for each of the older records", Unit::BytesPerRecord, Asked::AtMost(150.0), each);
    Ok(table)
}

/// Ingests the months before, oldest first.
fn fill(scene: &Scene, place: &Place) -> anyhow::Result<()> {
    place.wipe()?;
    for age in (1..=MONTHS).rev() {
        tell(&format!("month {} of the history of {MONTHS}", MONTHS + 1 - age));
        let newest = scene.plan();
        let plan = FeedPlan { month: newest.month.earlier(age), seed: newest.seed + u64::from(age), ..newest };
        let feed = scene.feed("older.csv", plan)?;
        feeddedup(&feed, place, Expected::AllAccepted)?;
    }
    Ok(())
}
