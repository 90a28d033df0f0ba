//! The disk's write rate: what the rates of the embedded store are to be seen against.

use std::fs::{self, File};
use std::io::Write;
use std::time::Instant;

use crate::Scene;
use crate::report::{Asked, Table, Unit};
use crate::rounds::Spread;

const BLOCK_BYTES: usize = 1 << 20;
const BLOCKS: usize = 1 << 10;
/// No contender takes turns here, so few are enough.
const WRITES: usize = 3;

pub(crate) fn time(scene: &Scene) -> anyhow::Result<Table> {
    let path = scene.path("disk");
    // Not zeros, which a file system or a virtual disk may leave out.
    let block: Vec<u8> = (0..BLOCK_BYTES).map(|index| (index * 31 + (index >> 8)).to_le_bytes()[0]).collect();
    let mut rates = Vec::new();
    for _ in 0..WRITES {
        rustix::fs::sync();
        let start = Instant::now();
        let mut file = File::create(&path)?;
        for _ in 0..BLOCKS {
            file.write_all(&block)?;
        }
        file.sync_all()?;
        rates.push((BLOCK_BYTES * BLOCKS) as f64 / 1e6 / start.elapsed().as_secs_f64());
        fs::remove_file(&path)?;
    }
    let mut table = Table::new("Disk");
    table.row("1 GiB in blocks of 1 MiB, then synced", Unit::MegabytesPerSecond, Asked::Nothing, Spread::of(rates));
    Ok(table)
}
