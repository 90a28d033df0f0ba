//! The command `hash`.

use std::io::{self, BufWriter, Write};

use serde::Serialize;

use crate::cli::args::HashArgs;
use crate::cli::failure::{ExitCode, Failure};
use crate::cli::feeds;
use crate::cli::settings::Settings;
use crate::cli::terminal::stdout_error;
use crate::domain::{Field, Interrupt};
use crate::pipeline::{HashedRow, IngestError, list_hashes};

/// What stands as the field at fault where the whole line is.
const WHOLE_LINE: &str = "line";

#[derive(Serialize)]
#[serde(untagged)]
enum RowWire<'a> {
    Hashed { row: u64, canonical: &'a str, source_hash: String, identity_hash: String },
    Rejected { row: u64, error: &'static str, line: u64, reason: String },
}

pub(crate) fn run(args: &HashArgs, settings: &Settings, interrupt: &Interrupt) -> anyhow::Result<ExitCode> {
    let profile = feeds::profile(settings)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut exit = ExitCode::Done;
    let mut outcome = Ok(());
    list_hashes(&feeds::readable(&args.file, interrupt), &profile, interrupt, |row| {
        if row.form.is_err() {
            exit = ExitCode::NeedsPerson;
        }
        outcome = write_row(&row, args.json, &mut out);
        outcome.is_ok()
    })
    .map_err(failure)?;
    outcome.and_then(|()| out.flush()).map_err(|error| stdout_error(&error))?;
    Ok(exit)
}

/// Nothing is published here, and there is nothing to go on with.
fn failure(error: IngestError) -> Failure {
    let is_interruption = matches!(error, IngestError::Interrupted { .. });
    let failure = Failure::from(error);
    if is_interruption { Failure { hint: None, ..failure } } else { failure }
}

fn write_row(row: &HashedRow<'_>, as_json: bool, out: &mut impl Write) -> io::Result<()> {
    let number = row.row;
    match (&row.form, as_json) {
        (Ok((canonical, source, identity)), true) => {
            let (source_hash, identity_hash) = (source.to_string(), identity.to_string());
            write_json(&RowWire::Hashed { row: number, canonical, source_hash, identity_hash }, out)
        }
        (Err(reason), true) => {
            let error = reason.field.map_or(WHOLE_LINE, Field::name);
            let wire = RowWire::Rejected { row: number, error, line: row.line_number, reason: reason.reason.clone() };
            write_json(&wire, out)
        }
        (Ok((canonical, source, identity)), false) => writeln!(out, "{number}\t{source}\t{identity}\t{canonical}"),
        (Err(reason), false) => {
            let field = reason.field.map_or(WHOLE_LINE, Field::name);
            writeln!(out, "{number}\terror\t{field}\tline {}: {}", row.line_number, reason.reason)
        }
    }
}

fn write_json(wire: &RowWire<'_>, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, wire)?;
    out.write_all(b"\n")
}
