//! Closing a run that has decided every record: control totals, gates, the end of the audit log, the summary.

use super::collector::Collected;
use super::error::{GateStop, IngestError};
use super::feed_work::{RunFacts, Told, attempt_of};
use super::ingest::published_exit_code;
use super::request::IngestRequest;
use super::threads::Staged;
use super::writers::RecordTotals;
use crate::domain::{Amount, Currency, Decision, Money, RunCounts, RunRecord, Total};
use crate::output::{GatesTold, HashedFile, Latency, Operation, OutputNames, Summary, sync_folder};
use crate::run::{Completed, GateFailure, Gates, now_text};

/// Checks that nothing was lost and every gate holds; then completes the outputs and waits until the disk has them.
pub(super) fn close(
    request: &IngestRequest,
    facts: &RunFacts,
    record: &RunRecord,
    names: &OutputNames,
    staged: Staged,
) -> Result<(Completed, Told), IngestError> {
    let Staged { totals, audit, skipped, collected, latency, holders } = staged;
    check_control_totals(&totals, &collected)?;
    check_gates(request, &totals, &collected.money)?;
    let (audit, audit_chain) = audit.closed(&totals.counts)?;
    let mut outputs = totals.outputs;
    outputs.push(audit);
    let operation = match request.now {
        Some(_) => None,
        None => Some(operation(request, facts, record.epoch, collected.records, latency)),
    };
    let summary = Summary {
        run: &record.run,
        pass: record.pass,
        ts: &record.opened_at,
        feed_name: &request.feed.name,
        feed_digest: &record.feed_digest,
        feed_bytes: facts.snapshot.bytes,
        meaning: &record.meaning,
        tags: &request.tags,
        skipped: &skipped,
        counts: &totals.counts,
        money: &totals.money,
        outputs: &outputs,
        audit_chain: &audit_chain,
        exit_code: published_exit_code(&totals.counts),
        gates: gates_told(&request.gates, &totals.counts),
        operation,
    };
    let summary_json = summary.to_json_value();
    let summary_output = summary.write(HashedFile::create(&names.summary(), &attempt_of(record))?)?;
    outputs.push(summary_output);
    // The names of the temporaries must outlive a power cut before the seal says that they are complete.
    sync_folder(&names.folder)?;
    let told = Told { rejects: totals.rejects, conflicts: totals.conflicts, holders, summary: summary_json };
    Ok((Completed { counts: totals.counts, outputs, audit_chain }, told))
}

/// Records in and money in, counted before anything was decided, against the sum over the decisions.
fn check_control_totals(totals: &RecordTotals, collected: &Collected) -> Result<(), IngestError> {
    let mut money_out = Money::default();
    totals.money.iter().for_each(|money| money_out.add_all(money));
    if totals.counts.iter().sum::<u64>() != collected.records || !money_out.equals(&collected.money) {
        return Err(IngestError::ControlTotals);
    }
    Ok(())
}

/// Fails with the first gate that does not hold.
pub(super) fn check_gates(request: &IngestRequest, totals: &RecordTotals, money_in: &Money) -> Result<(), IngestError> {
    request.gates.check(&totals.counts, money_in).map_err(|failure| {
        let is_of_rejects = matches!(failure, GateFailure::Rejects { .. });
        let is_of_conflicts = matches!(failure, GateFailure::Conflicts { .. });
        let first_reject = totals.rejects.first().filter(|_| is_of_rejects).cloned();
        let first_conflict = totals.conflicts.first().filter(|_| is_of_conflicts).cloned();
        IngestError::Gate(Box::new(GateStop {
            feed: request.feed.shown.clone(),
            failure,
            first_reject,
            first_conflict,
        }))
    })
}

fn gates_told(gates: &Gates, counts: &RunCounts) -> GatesTold {
    let total = |(currency, amount): &(Currency, Amount)| {
        (currency.as_str().to_owned(), Money::text_of(*currency, &Total::from(*amount)))
    };
    GatesTold {
        expected_records: gates.records,
        expected_totals: gates.totals.iter().map(total).collect(),
        reject_limit_percent: gates.reject_limit,
        rejected: counts[Decision::Rejected.index()],
        conflict_limit_percent: gates.conflict_limit,
        conflicts: counts[Decision::Conflict.index()],
        conflicts_per_million: Gates::conflicts_per_million(counts),
    }
}

fn operation(request: &IngestRequest, facts: &RunFacts, epoch: u32, records: u64, latency: Latency) -> Operation {
    let elapsed = facts.started.elapsed();
    let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX).max(1);
    Operation {
        store: request.store_address.clone(),
        host: request.worker.host.clone(),
        user: request.worker.user.clone(),
        epoch,
        started_at: facts.started_at.clone(),
        sealed_at: now_text(),
        elapsed_ms: micros / 1_000,
        records_per_second: records.saturating_mul(1_000_000) / micros,
        claim_latency_us: latency,
    }
}
