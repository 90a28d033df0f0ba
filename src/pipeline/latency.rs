//! How long the store took: a histogram of fixed size.

use std::time::Duration;

use crate::output::Latency;

/// Steps within a doubling: a percentile is off by an eighth at most.
const STEPS: usize = 8;

/// Latencies in buckets that grow by an eighth.
#[derive(Debug, Clone)]
pub(super) struct Latencies {
    counts: [u64; 64 * STEPS],
    total: u64,
    max: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: [0; 64 * STEPS], total: 0, max: 0 }
    }
}

impl Latencies {
    pub(super) fn add(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.counts[bucket_of(micros)] += 1;
        self.total += 1;
        self.max = self.max.max(micros);
    }

    /// The percentiles, each as the upper bound of its bucket.
    pub(super) fn percentiles(&self) -> Latency {
        let at = |percent: u64| {
            let wanted = (self.total * percent).div_ceil(100);
            let mut seen = 0;
            let bucket = self.counts.iter().position(|count| {
                seen += count;
                seen >= wanted.max(1)
            });
            bucket.map_or(0, |bucket| upper_bound(bucket).min(self.max))
        };
        Latency { batches: self.total, p50: at(50), p95: at(95), p99: at(99), max: self.max }
    }
}

fn bucket_of(micros: u64) -> usize {
    if micros < STEPS as u64 {
        return usize::try_from(micros).expect("fewer than the steps");
    }
    let doubling = micros.ilog2() as usize;
    let step = (micros >> (doubling - 3)) as usize % STEPS;
    (doubling - 2) * STEPS + step
}

fn upper_bound(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let doubling = bucket / STEPS + 2;
    let step = (bucket % STEPS) as u64;
    ((STEPS as u64 + step + 1) << (doubling - 3)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_off_by_an_eighth_at_most() {
        let mut latencies = Latencies::default();
        (1..=1_000).for_each(|micros| latencies.add(Duration::from_micros(micros)));
        let found = latencies.percentiles();
        for (exact, told) in [(500, found.p50), (950, found.p95), (990, found.p99)] {
            assert!((exact..=exact + exact / 8).contains(&told), "{exact} is told as {told}");
        }
        assert_eq!((found.batches, found.max), (1_000, 1_000));
        for micros in [0, 1, 7, 8, 9, 15, 16, 1 << 40] {
            assert!(upper_bound(bucket_of(micros)) >= micros, "{micros}");
        }
    }
}
