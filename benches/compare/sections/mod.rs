//! A file a table.

use crate::report::grouped;
use crate::rounds::ROUNDS_MIN;
use crate::{Scene, Section};

mod clients;
mod disk;
mod embedded_store;
mod history;
mod memory;
mod redis_store;
pub(crate) mod self_check;

/// What holds for every table.
pub(crate) fn heading(scene: &Scene) -> String {
    let pairs = scene.options.pairs;
    let caution = if pairs < ROUNDS_MIN { " **Too few rounds to be quoted.**" } else { "" };
    format!(
        "\n{} records a feed, {pairs} alternating rounds; all outputs and the audit on.{caution}",
        grouped(scene.options.records)
    )
}

/// Times one section and prints its table.
pub(crate) fn run(section: Section, scene: &Scene) -> anyhow::Result<()> {
    let table = match section {
        Section::Disk => disk::time(scene),
        Section::Redis => redis_store::time(scene),
        Section::Clients => clients::time(scene),
        Section::Embedded => embedded_store::time(scene),
        Section::History => history::time(scene),
        Section::Memory => memory::time(scene),
    }?;
    table.print();
    Ok(())
}
