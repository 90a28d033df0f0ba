//! Redis: the program against clients of the same design in Python.

use std::cell::RefCell;

use crate::Scene;
use crate::contenders::{Expected, Place, feeddedup, missing_module, python_client};
use crate::feed::FeedPlan;
use crate::report::{Asked, Table, grouped};
use crate::rounds::{Contender, alternate};
use crate::server::Server;

/// A SET a record takes minutes for a million; its rate is the same from the first record to the last.
const EACH_RECORDS_MAX: u64 = 50_000;

pub(crate) fn time(scene: &Scene) -> anyhow::Result<Table> {
    let mut table = Table::new("Redis: clients in Python");
    let server = RefCell::new(Server::start(scene.dir.path())?);
    let port = server.borrow().port;
    let feed = scene.feed("feed.csv", scene.plan())?;
    let short_plan = FeedPlan { records: feed.records.min(EACH_RECORDS_MAX), ..scene.plan() };
    let short_feed = scene.feed("short.csv", short_plan)?;
    let place = Place { dir: scene.path("clients"), url: Some(server.borrow().url()) };
    let module_missing = missing_module("redis", "redis (PyPI)");

    let program = || {
        server.borrow_mut().flush()?;
        place.wipe()?;
        feeddedup(&feed, &place, Expected::AllAccepted)
    };
    let pipelined = || {
        server.borrow_mut().flush()?;
        python_client("pipelined", &feed, scene.dir.path(), port, 0)
    };
    let each = || {
        server.borrow_mut().flush()?;
        python_client("each", &short_feed, scene.dir.path(), port, 0)
    };
    let each_name = format!("redis-py, a SET a record ({} records)", grouped(short_feed.records));
    let contenders = [
        Contender::new("feeddedup, new records", program),
        Contender::new("redis-py, pipelines of 1,000", pipelined).unless(module_missing),
        Contender::new(&each_name, each).unless(module_missing),
    ];
    let [program, pipelined, each] = alternate(scene.options.pairs, contenders)?;

    for laps in [&program, &pipelined, &each] {
        table.rate(laps, Asked::Nothing);
    }
    table.ratio(&program, &pipelined, Asked::Nothing);
    table.ratio(&program, &each, Asked::Nothing);
    Ok(table)
}
