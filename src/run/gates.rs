//! Gates: what must hold before a run may be sealed.

use std::fmt;

use crate::domain::{Amount, Currency, Decision, Money, RunCounts, Total};

/// Fewer rejected records, or conflicts, than this do not stop a run by default: a short feed with a bad line is still
/// that feed.
pub const LIMITED_MIN: u64 = 20;

/// What the operator demands of a feed.
#[derive(Debug, Clone, Default)]
pub struct Gates {
    /// The number of records in the feed.
    pub records: Option<u64>,
    /// The net total of a currency.
    pub totals: Vec<(Currency, Amount)>,
    /// The share of rejected records, in percent, from which on the profile does not fit.
    pub reject_limit: u64,
    /// How many rejected records there must be before their share counts.
    pub rejects_min: u64,
    /// The share of conflicts, in percent, from which on the bank must have numbered its records anew.
    pub conflict_limit: u64,
    /// How many conflicts there must be before their share counts.
    pub conflicts_min: u64,
}

/// A gate that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateFailure {
    Records { expected: u64, found: u64 },
    Total { currency: Currency, expected: String, found: String },
    Rejects { rejected: u64, records: u64, limit: u64 },
    Conflicts { conflicts: u64, records: u64, limit: u64 },
}

impl fmt::Display for GateFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Records { expected, found } => {
                write!(f, "the feed has {found} records where {expected} are expected")
            }
            Self::Total { currency, expected, found } => {
                write!(f, "the feed's total is {found} {} where {expected} is expected", currency.as_str())
            }
            Self::Rejects { rejected, records, limit } => {
                write!(f, "{rejected} of {records} records are rejected, more than {limit} %: the profile does not fit")
            }
            Self::Conflicts { conflicts, records, limit } => write!(
                f,
                "{conflicts} of {records} records are in conflict with earlier ones, more than {limit} %: the bank may \
                 have numbered its records anew"
            ),
        }
    }
}

impl std::error::Error for GateFailure {}

impl Gates {
    /// The first gate that does not hold for a feed with these records and this readable money.
    pub fn check(&self, counts: &RunCounts, money: &Money) -> Result<(), GateFailure> {
        let found: u64 = counts.iter().sum();
        let rejected = counts[Decision::Rejected.index()];
        if is_too_many(rejected, found, self.reject_limit, self.rejects_min) {
            return Err(GateFailure::Rejects { rejected, records: found, limit: self.reject_limit });
        }
        let conflicts = counts[Decision::Conflict.index()];
        if is_too_many(conflicts, found, self.conflict_limit, self.conflicts_min) {
            return Err(GateFailure::Conflicts { conflicts, records: found, limit: self.conflict_limit });
        }
        if let Some(expected) = self.records.filter(|expected| *expected != found) {
            return Err(GateFailure::Records { expected, found });
        }
        for (currency, expected) in &self.totals {
            let (expected, net) = (Total::from(*expected), money.net(*currency));
            if !net.equals(&expected) {
                return Err(GateFailure::Total {
                    currency: *currency,
                    expected: Money::text_of(*currency, &expected),
                    found: Money::text_of(*currency, &net),
                });
            }
        }
        Ok(())
    }

    /// How many of a million records are in conflict.
    pub fn conflicts_per_million(counts: &RunCounts) -> u64 {
        let conflicts = u128::from(counts[Decision::Conflict.index()]);
        let records = counts.iter().map(|count| u128::from(*count)).sum::<u128>().max(1);
        u64::try_from(conflicts * 1_000_000 / records).expect("a part is at most the whole")
    }
}

/// Whether the share of `number` is above `limit` percent, and the number at least the least that counts.
fn is_too_many(number: u64, records: u64, limit: u64, number_min: u64) -> bool {
    number > 0 && number >= number_min && u128::from(number) * 100 > u128::from(records) * u128::from(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates() -> Gates {
        Gates {
            reject_limit: 50,
            rejects_min: LIMITED_MIN,
            conflict_limit: 5,
            conflicts_min: LIMITED_MIN,
            ..Gates::default()
        }
    }

    fn counts(accepted: u64, rejected: u64) -> RunCounts {
        let mut counts = [0; 6];
        counts[Decision::Accepted.index()] = accepted;
        counts[Decision::Rejected.index()] = rejected;
        counts
    }

    #[test]
    fn rejects_stop_a_run_by_share_and_by_number() {
        let check = |accepted, rejected| gates().check(&counts(accepted, rejected), &Money::default()).is_ok();
        assert!(check(0, 19), "too few to count");
        assert!(!check(0, 20));
        assert!(check(20, 20), "half is not more than half");
        assert!(!check(20, 21));
        assert!(check(0, 0));
        let strict = Gates { reject_limit: 0, rejects_min: 0, ..Gates::default() };
        assert!(strict.check(&counts(9, 1), &Money::default()).is_err());
        assert!(strict.check(&counts(9, 0), &Money::default()).is_ok());
    }

    #[test]
    fn conflicts_stop_a_run_by_share_and_by_number() {
        let counts = |accepted, conflicts| {
            let mut counts = counts(accepted, 0);
            counts[Decision::Conflict.index()] = conflicts;
            counts
        };
        let check = |accepted, conflicts| gates().check(&counts(accepted, conflicts), &Money::default()).is_ok();
        assert!(check(0, 19), "too few to count");
        assert!(!check(0, 20));
        assert!(check(380, 20), "one in twenty is not more than 5 %");
        assert!(!check(379, 20));
        assert_eq!(Gates::conflicts_per_million(&counts(999_900, 100)), 100);
        assert_eq!(Gates::conflicts_per_million(&counts(0, 0)), 0);
        assert_eq!(Gates::conflicts_per_million(&counts(0, 7)), 1_000_000);
    }

    #[test]
    fn expected_records_and_totals_are_exact() {
        let eur = Currency::parse("EUR").unwrap();
        let mut money = Money::default();
        money.add(eur, Amount::parse("10.50").unwrap());
        money.add(eur, Amount::parse("-0.5").unwrap());
        let gates = |total: &str| Gates { totals: vec![(eur, Amount::parse(total).unwrap())], ..gates() };
        assert_eq!(gates("10").check(&counts(2, 0), &money), Ok(()));
        let failure = gates("10.01").check(&counts(2, 0), &money).unwrap_err();
        assert_eq!(failure.to_string(), "the feed's total is 10.00 EUR where 10.01 is expected");
        let gates = Gates { records: Some(3), ..self::tests::gates() };
        assert!(gates.check(&counts(2, 1), &money).is_ok(), "rejected records are records of the feed");
        assert!(gates.check(&counts(2, 0), &money).is_err());
    }
}
