//! Contenders in turn, A B A B: a machine that is slow for a while is slow for all of them.

use std::time::Duration;

use crate::child::Cost;

/// Rounds from which a median may be quoted: these machines are noisy by a tenth.
pub(crate) const ROUNDS_MIN: usize = 7;

/// What one contender took in one round.
#[derive(Debug, Clone)]
pub(crate) struct Lap {
    pub(crate) records: u64,
    /// The contender's work: its wall time, or what it says itself where its start would weigh against it.
    pub(crate) work: Duration,
    pub(crate) cost: Cost,
}

impl Lap {
    /// Records a second.
    pub(crate) fn rate(&self) -> f64 {
        self.records as f64 / self.work.as_secs_f64()
    }

    /// Microseconds of processor time a record.
    pub(crate) fn processor_micros(&self) -> f64 {
        self.cost.processor.as_secs_f64() * 1e6 / self.records as f64
    }
}

/// Something that claims or sorts out a feed, once a round.
pub(crate) struct Contender<'a> {
    pub(crate) name: String,
    /// The package that brings it, if this machine lacks it.
    pub(crate) missing: Option<&'static str>,
    pub(crate) run: Box<dyn FnMut() -> anyhow::Result<Lap> + 'a>,
}

impl<'a> Contender<'a> {
    pub(crate) fn new(name: &str, run: impl FnMut() -> anyhow::Result<Lap> + 'a) -> Self {
        Self { name: name.to_owned(), missing: None, run: Box::new(run) }
    }

    pub(crate) fn unless(self, missing: Option<&'static str>) -> Self {
        Self { missing, ..self }
    }
}

/// The laps of one contender, in the order of the rounds.
pub(crate) struct Laps {
    pub(crate) name: String,
    pub(crate) missing: Option<&'static str>,
    laps: Vec<Lap>,
}

impl Laps {
    /// One figure a lap.
    pub(crate) fn spread(&self, figure: impl Fn(&Lap) -> f64) -> Option<Spread> {
        Spread::of(self.laps.iter().map(figure).collect())
    }

    /// How many times the rate of `other` this one reaches, round by round.
    pub(crate) fn ratio_to(&self, other: &Self) -> Option<Spread> {
        Spread::of(self.laps.iter().zip(&other.laps).map(|(ours, theirs)| ours.rate() / theirs.rate()).collect())
    }
}

/// Lets every contender run once a round, in their order.
pub(crate) fn alternate<const N: usize>(
    rounds: usize,
    mut contenders: [Contender<'_>; N],
) -> anyhow::Result<[Laps; N]> {
    let mut laps = [const { Vec::new() }; N];
    for round in 1..=rounds {
        for (contender, laps) in contenders.iter_mut().zip(&mut laps) {
            if contender.missing.is_none() {
                crate::report::tell(&format!("round {round} of {rounds}: {}", contender.name));
                laps.push((contender.run)()?);
            }
        }
    }
    let mut laps = laps.into_iter();
    Ok(contenders.map(|Contender { name, missing, .. }| Laps {
        name,
        missing,
        laps: laps.next().expect("there are as many laps as contenders"),
    }))
}

/// The middle of several figures, and their ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` of nothing.
    pub(crate) fn of(mut figures: Vec<f64>) -> Option<Self> {
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let middle = figures.len() / 2;
        let median =
            if figures.len() % 2 == 1 { figures[middle] } else { f64::midpoint(figures[middle - 1], figures[middle]) };
        Some(Self { median, min, max })
    }
}
