//! Redis: the program against the ceiling of any client, and a replay against the first pass.

use std::cell::RefCell;

use anyhow::ensure;

use crate::Scene;
use crate::contenders::{Expected, Place, feeddedup, missing_program, redis_cli_pipe};
use crate::prepack::{Claimed, write_commands};
use crate::report::{Asked, Table, Unit};
use crate::rounds::{Contender, Lap, alternate};
use crate::server::Server;

pub(crate) fn time(scene: &Scene) -> anyhow::Result<Table> {
    let mut table = Table::new("Redis");
    let server = RefCell::new(Server::start(scene.dir.path())?);
    let port = server.borrow().port;
    let feed = scene.feed("feed.csv", scene.plan())?;
    let commands = scene.path("commands");
    write_commands(&feed, Claimed::ContentAndPayment, &commands)?;
    let place = Place { dir: scene.path("redis"), url: Some(server.borrow().url()) };

    let pipe = || {
        server.borrow_mut().flush()?;
        let lap = redis_cli_pipe(&commands, feed.records, Claimed::ContentAndPayment, port)?;
        ensure!(server.borrow_mut().key_count()? > feed.records, "the server lacks keys after `redis-cli --pipe`");
        Ok(lap)
    };
    let first_pass = || {
        server.borrow_mut().flush()?;
        place.wipe()?;
        let lap = feeddedup(&feed, &place, Expected::AllAccepted)?;
        ensure!(server.borrow_mut().key_count()? > feed.records, "the server lacks keys after `feeddedup`");
        Ok(lap)
    };
    // Right behind the first pass, on what that left.
    let replay = || feeddedup(&feed, &place, Expected::AllSuppressed);
    let contenders = [
        Contender::new("redis-cli --pipe, prepacked", pipe)
            .unless(missing_program("redis-cli", "redis-tools (Debian)")),
        Contender::new("feeddedup, new records", first_pass),
        Contender::new("feeddedup, replay", replay),
    ];
    let [pipe, first_pass, replay] = alternate(scene.options.pairs, contenders)?;

    table.rate(&pipe, Asked::Nothing);
    table.rate(&first_pass, Asked::Nothing);
    table.rate(&replay, Asked::Nothing);
    table.ratio(&first_pass, &pipe, Asked::AtLeast(0.9));
    table.ratio(&replay, &first_pass, Asked::AtLeast(1.0));
    for laps in [&first_pass, &replay] {
        let what = format!("user and system time, {}", laps.name);
        table.row(&what, Unit::MicrosPerRecord, Asked::Below(2.0), laps.spread(Lap::processor_micros));
    }
    Ok(table)
}
