//! Memory of the program, either store, and whether it grows with the feed.

use std::fs;

use crate::Scene;
use crate::contenders::{Expected, Place, feeddedup, remove};
use crate::feed::FeedPlan;
use crate::report::{Asked, Table, Unit, grouped, tell};
use crate::rounds::{Lap, Spread};
use crate::server::Server;

const MEBIBYTES_MAX: f64 = 200.0;
/// Ten times the records may take this much more and still count as flat: what the allocator keeps differs by run.
const GROWTH_MAX: f64 = 1.1;

pub(crate) fn time(scene: &Scene) -> anyhow::Result<Table> {
    let mut table = Table::new("Memory: highest RssAnon, new records");
    let sizes: &[u64] = if scene.options.long { &[1, 10] } else { &[1] };
    for store in [StoreKind::Embedded, StoreKind::Redis] {
        let name = store.name();
        let mut peaks = Vec::new();
        for size in sizes {
            let records = size * scene.options.records;
            let what = format!("{name}, {} records", grouped(records));
            tell(&format!("memory: {what}"));
            let lap = ingest(scene, store, records)?;
            peaks.push(record_peak(&mut table, &what, &lap));
        }
        if let [short, long] = peaks[..] {
            let growth = Spread::of(vec![long / short]);
            table.row(&format!("{name}, ten times the records"), Unit::Ratio, Asked::AtMost(GROWTH_MAX), growth);
        }
    }
    Ok(table)
}

#[derive(Debug, Clone, Copy)]
enum StoreKind {
    Embedded,
    Redis,
}

impl StoreKind {
    fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded store",
            Self::Redis => "Redis",
        }
    }
}

/// One run into an empty store; feed and store are gone afterwards.
fn ingest(scene: &Scene, store: StoreKind, records: u64) -> anyhow::Result<Lap> {
    let feed = scene.feed("feed.csv", FeedPlan { records, ..scene.plan() })?;
    let server = match store {
        StoreKind::Embedded => None,
        StoreKind::Redis => Some(Server::start(scene.dir.path())?),
    };
    let place = Place { dir: scene.path("memory"), url: server.as_ref().map(Server::url) };
    place.wipe()?;
    let lap = feeddedup(&feed, &place, Expected::AllAccepted)?;
    remove(&place.dir)?;
    fs::remove_file(&feed.path)?;
    Ok(lap)
}

/// Two rows: the peak, which is returned, and the rate beside it, of one run and so only for orientation.
fn record_peak(table: &mut Table, what: &str, lap: &Lap) -> f64 {
    let mebibytes = lap.cost.rss_anon_max_kib as f64 / 1024.0;
    table.row(what, Unit::Mebibytes, Asked::Below(MEBIBYTES_MAX), Spread::of(vec![mebibytes]));
    let rate = Spread::of(vec![lap.rate()]);
    table.row(&format!("{what}: rate of this one run"), Unit::RecordsPerSecond, Asked::Nothing, rate);
    mebibytes
}
