//! No timing: shows that the contenders write the same keys, so that the same work is compared.

use anyhow::ensure;

use crate::Scene;
use crate::contenders::{Expected, Place, awk, duckdb, feeddedup, python_client, redis_cli_pipe};
use crate::feed::FeedPlan;
use crate::prepack::{Claimed, write_commands};
use crate::report::say;
use crate::server::Server;

const RECORDS: u64 = 2_000;

pub(crate) fn run(scene: &Scene) -> anyhow::Result<()> {
    let mut server = Server::start(scene.dir.path())?;
    let feed = scene.feed("feed.csv", FeedPlan { records: RECORDS, ..scene.plan() })?;
    let bytes_each = feed.bytes / feed.records;
    ensure!((74..=82).contains(&bytes_each), "records have {bytes_each} bytes, not about 78");
    say(&format!("the feed has {bytes_each} bytes a record"));

    let commands = scene.path("commands");
    write_commands(&feed, Claimed::Content, &commands)?;
    redis_cli_pipe(&commands, RECORDS, Claimed::Content, server.port)?;
    ensure!(server.key_count()? == RECORDS, "prepacked commands make another number of keys");
    for mode in ["each", "pipelined"] {
        python_client(mode, &feed, scene.dir.path(), server.port, RECORDS)?;
    }
    say("the Python clients find every prepacked key");
    awk(&feed, scene.dir.path())?;
    for query in ["first", "distinct"] {
        duckdb(query, &feed, scene.dir.path())?;
    }
    say("awk and DuckDB keep every record");

    server.flush()?;
    write_commands(&feed, Claimed::ContentAndPayment, &commands)?;
    redis_cli_pipe(&commands, RECORDS, Claimed::ContentAndPayment, server.port)?;
    let prepacked = server.key_count()?;
    server.flush()?;
    let place = Place { dir: scene.path("redis"), url: Some(server.url()) };
    place.wipe()?;
    feeddedup(&feed, &place, Expected::AllAccepted)?;
    python_client("pipelined", &feed, scene.dir.path(), server.port, RECORDS)?;
    say("the Python clients find every key of the program");
    // Besides claims and payments it has its description, the run, the list of runs, the feed, the owner, and an age.
    let own = server.key_count()?;
    ensure!(own == prepacked + 6, "the program makes {own} keys, and the prepacked commands {prepacked}");
    say("the program and the prepacked commands spread payments alike");
    Ok(())
}
