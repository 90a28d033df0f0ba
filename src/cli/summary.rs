//! What the operator reads when a run is done: one look, and every number that matters.

use std::time::Duration;

use serde_json::Value;

use super::number::{counted, grouped, grouped_decimal};
use crate::domain::{Basis, Decision, Money, RunCounts};
use crate::output::OutputNames;
use crate::pipeline::{ConflictNote, DryRunReport, Holder, IngestReport, RejectNote};

/// Most conflicts that the operator is told of one by one.
const CONFLICTS_TOLD_MAX: usize = 20;

/// Most runs that the operator is told of one by one.
const HOLDERS_TOLD_MAX: usize = 10;

/// The sentence: how many records, and what became of them.
pub(super) fn sentence(report: &IngestReport) -> String {
    let resumed = if report.is_resumed { ", gone on with after an earlier attempt" } else { "" };
    let pass = match report.pass {
        1 => String::new(),
        pass => format!(" (pass {pass} over this feed)"),
    };
    format!("run `{}` published{resumed}{pass}: {}", report.run, counts_in_words(&report.counts))
}

/// The sentence of a dry run.
pub(super) fn dry_sentence(report: &DryRunReport) -> String {
    format!("dry run, nothing written: run `{}` would find {}", report.run, counts_in_words(&report.counts))
}

/// The lines below the sentence: money by decision, files, store, time.
pub(super) fn details(report: &IngestReport, store: &str) -> Vec<String> {
    let mut lines = recorded_table(&report.counts, &report.summary);
    lines.push(format!("  files       {}", report.files.join(", ")));
    lines.push(format!("  folder      {}", report.names.folder.display()));
    lines.push(format!("  store       {store}"));
    lines.push(format!("  time        {}", time_and_rate(report.elapsed, report.counts.iter().sum())));
    lines
}

/// Why the files of a run have not the names `wanted`, where they have not.
pub(super) fn names_line(names: &OutputNames, wanted: &str) -> Option<String> {
    let stem = &names.stem;
    match stem == wanted {
        true => None,
        false if names.is_on(wanted) => Some(format!("  the name `{wanted}` was taken: the files are `{stem}.*`")),
        // What is sealed has its names.
        false => Some(format!("  the files are `{stem}.*`, as they were when the earlier attempt was sealed")),
    }
}

/// The lines below the sentence of a dry run.
pub(super) fn dry_details(report: &DryRunReport) -> Vec<String> {
    table(&report.counts, |decision| money_of(&report.money[decision.index()]))
}

/// The same of a run whose summary, which may be null, was read again.
pub(super) fn recorded_table(counts: &RunCounts, summary: &Value) -> Vec<String> {
    table(counts, |decision| money_of_json(&summary["decisions"][decision.wire_name()]["money"]))
}

/// The line of a rejected record: where, why.
pub(super) fn reject_line(feed: &str, note: &RejectNote) -> String {
    let column = note.column.as_ref().map_or(String::new(), |column| format!(" (column `{column}`)"));
    format!("{feed}:{}: rejected: {}{column}", note.line_number, note.reason)
}

/// One line for each rejected record that is told of, and one for the rest.
pub(super) fn reject_lines(feed: &str, notes: &[RejectNote], rejected: u64) -> Vec<String> {
    let mut lines: Vec<_> = notes.iter().map(|note| reject_line(feed, note)).collect();
    let told = notes.len() as u64;
    if rejected > told && told > 0 {
        lines.push(format!("{feed}: {} more are in the rejected file", counted(rejected - told, "rejected record")));
    }
    lines
}

/// The line of a conflict: where, which fields differ, where the first content stands.
pub(super) fn conflict_line(feed: &str, note: &ConflictNote) -> String {
    let first = first_sight(&note.basis);
    format!("{feed}:{}: conflict: {}, {first}", note.line_number, note.conflict.description())
}

/// One line for each conflict that is told of, and one for the rest.
pub(super) fn conflict_lines(feed: &str, notes: &[ConflictNote], conflicts: u64) -> Vec<String> {
    let mut lines: Vec<_> = notes.iter().take(CONFLICTS_TOLD_MAX).map(|note| conflict_line(feed, note)).collect();
    let told = lines.len() as u64;
    if conflicts > told && told > 0 {
        lines.push(format!("{feed}: {} more are in the conflicts file", counted(conflicts - told, "conflict")));
    }
    lines
}

/// Where a payment stands, as the operator finds it.
fn first_sight(basis: &Basis) -> String {
    match basis {
        Basis::Row { row, feed: None, .. } => format!("in row {row} of this feed"),
        Basis::Row { owner, row, feed: Some(feed) } => {
            format!("in row {row} of `{}` (run `{}`)", feed.feed_name, owner.run)
        }
        Basis::OtherWriter(writer) => format!("by another writer as `{}`", writer.0),
        Basis::Unreadable => "by a writer that cannot be read".to_owned(),
    }
}

/// What to do about held records: which runs hold them.
pub(super) fn holder_lines(holders: &[Holder]) -> Vec<String> {
    let line = |holder: &Holder| match &holder.feed_name {
        Some(feed) => format!(
            "  run `{}` over `{feed}` holds records and is not published: repeat its command, then this one",
            holder.run
        ),
        None => format!("  run `{}` holds records and is not known to the store", holder.run),
    };
    let mut lines: Vec<_> = holders.iter().take(HOLDERS_TOLD_MAX).map(line).collect();
    if holders.len() > HOLDERS_TOLD_MAX {
        lines.push(format!("  so do {} more runs", holders.len() - HOLDERS_TOLD_MAX));
    }
    lines
}

pub(super) fn counts_in_words(counts: &RunCounts) -> String {
    let total: u64 = counts.iter().sum();
    let parts: Vec<_> = Decision::ALL
        .into_iter()
        .filter(|decision| counts[decision.index()] > 0)
        .map(|decision| format!("{} {}", grouped(counts[decision.index()]), decision.adjective()))
        .collect();
    match parts.is_empty() {
        true => "no records".to_owned(),
        false => format!("{}: {}", counted(total, "record"), parts.join(", ")),
    }
}

/// A line for every decision that some record has, with its money.
fn table(counts: &RunCounts, money: impl Fn(Decision) -> String) -> Vec<String> {
    let met = Decision::ALL.into_iter().filter(|decision| counts[decision.index()] > 0);
    let line = |decision: Decision| {
        let text =
            format!("  {:<11} {:>13}  {}", decision.adjective(), grouped(counts[decision.index()]), money(decision));
        text.trim_end().to_owned()
    };
    met.map(line).collect()
}

fn money_of(money: &Money) -> String {
    let totals = money.by_currency().into_iter();
    let texts = totals.map(|(currency, (incoming, outgoing))| one_currency(currency.as_str(), &incoming, &outgoing));
    texts.collect::<Vec<_>>().join("; ")
}

fn money_of_json(money: &Value) -> String {
    let Some(currencies) = money.as_object() else { return String::new() };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts =
        currencies.iter().map(|(c, totals)| one_currency(c, &text(&totals["incoming"]), &text(&totals["outgoing"])));
    texts.collect::<Vec<_>>().join("; ")
}

fn one_currency(currency: &str, incoming: &str, outgoing: &str) -> String {
    format!("{currency} in {} out {}", grouped_decimal(incoming), grouped_decimal(outgoing))
}

fn time_and_rate(elapsed: Duration, records: u64) -> String {
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let rate = records.saturating_mul(1_000) / millis;
    format!("{}.{:03} s, {} records/s", grouped(millis / 1_000), millis % 1_000, grouped(rate))
}
