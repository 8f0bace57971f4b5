//! Estimates of all allocations from samples.
//!
//! The agent records a block of `s` bytes with the probability `p = 1 - e^(-s / interval)`, independently of other
//! blocks. So a recorded block stands for `1 / p` blocks of its size (Horvitz and Thompson), and sums over recorded
//! blocks are unbiased. The error bounds use an interval for weighted sums of rare events (Fay and Feuer, Statistics in
//! Medicine 16, 1997). It contains the true value at least as often as its confidence says, and allows for blocks that
//! were not recorded.

use memgate_wire::SnapshotRecord;

use crate::range::Range;
use crate::stats::{float, gamma_quantile};

/// An estimate with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    variance: f64,
    /// Weight of one block that is rarely recorded.
    unit: f64,
}

impl Estimate {
    /// The value with bounds that contain the true one with at least this confidence.
    pub(crate) fn range(self, confidence: f64) -> Range {
        let tail = (1.0 - confidence) / 2.0;
        let Self { value, variance, unit } = self;
        let bound = |value: f64, variance: f64, p| {
            let shape = value * value / variance;
            if shape.is_finite() { variance / value * gamma_quantile(p, shape) } else { value }
        };
        let low = if value > 0.0 { bound(value, variance, tail) } else { 0.0 };
        let high = bound(value + unit, variance + unit * unit, 1.0 - tail);
        Range { value, low: low.min(value), high: high.max(value) }
    }

    /// The value rounded to a whole number.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not below zero, and it saturates"
    )]
    pub(crate) fn rounded(self) -> u64 {
        self.value.round() as u64
    }

    /// Estimate from bytes in the agent's counters, which are sums of such estimates.
    pub(crate) fn of_counter(bytes: f64, interval: u64) -> Self {
        // The variance of a block, `s² (1 - p) / p²`, counted as often as it is recorded, is at most `s * interval`.
        let unit = float(interval);
        Self { value: bytes, variance: bytes * unit, unit }
    }
}

/// Bytes and number of all blocks, estimated from the recorded ones.
pub(crate) struct Estimates {
    pub(crate) bytes: Estimate,
    pub(crate) blocks: Estimate,
}

pub(crate) fn estimate(noted: &[SnapshotRecord], interval: u64) -> Estimates {
    let unit = float(interval);
    let none = Estimate { value: 0.0, variance: 0.0, unit };
    let add = |sum: Estimate, p: f64, of_one: f64, count: f64| Estimate {
        value: sum.value + count * of_one / p,
        variance: sum.variance + count * (of_one / p).powi(2) * (1.0 - p),
        unit,
    };
    noted.iter().fold(Estimates { bytes: none, blocks: none }, |Estimates { bytes, blocks }, record| {
        let (count, p) = (float(record.count), probability(record.size, interval));
        Estimates { bytes: add(bytes, p, float(record.size), count), blocks: add(blocks, p, 1.0, count) }
    })
}

/// The number of blocks that one recorded block of this size stands for.
pub(crate) fn weight(size: u64, interval: u64) -> f64 {
    1.0 / probability(size, interval)
}

/// The probability that a block of this size is recorded. An empty block never is. If a stream contains one, it counts
/// as one block.
fn probability(size: u64, interval: u64) -> f64 {
    if size == 0 || interval == 0 { 1.0 } else { -(-float(size) / float(interval)).exp_m1() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from 0 to below 1, the same in each run.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            float(self.0 >> 11) / float(1 << 53)
        }
    }

    /// Simulates sampling `count` blocks of each of these sizes.
    fn noted(blocks: &[(u64, u64)], interval: u64, random: &mut Random) -> Vec<SnapshotRecord> {
        let some = blocks.iter().map(|&(size, count)| {
            let p = probability(size, interval);
            let count = (0..count).filter(|_| random.next() < p).count() as u64;
            SnapshotRecord { stack: 1, size, count }
        });
        some.filter(|record| record.count > 0).collect()
    }

    #[test]
    fn the_true_value_lies_within_the_bounds_as_often_as_they_say() {
        let interval = 512 << 10;
        let mixes: [&[(u64, u64)]; 9] = [
            &[(64, 1)],
            &[(1000, 100)],
            &[(48, 1000)],
            &[(4096, 1000)],
            &[(interval, 3)],
            &[(4 * interval, 1)],
            &[(160, 4_000), (100_000, 20), (3 * interval, 2)],
            &[(100 * interval, 5), (500, 2000)],
            &[(interval / 2, 200), (2 * interval, 50)],
        ];
        for mix in mixes {
            let truth = float(mix.iter().map(|(size, count)| size * count).sum());
            let blocks = float(mix.iter().map(|(_, count)| count).sum());
            let mut random = Random(7);
            let (mut inside, mut inside_blocks, mut sum) = (0, 0, 0.0);
            for _ in 0..300 {
                let of_mix = estimate(&noted(mix, interval, &mut random), interval);
                let within = |of: Estimate, truth: f64| {
                    let Range { low, high, .. } = of.range(0.99);
                    // Blocks that are certain to be recorded give a sum of rounded numbers.
                    low <= truth * (1.0 + 1e-9) && truth <= high
                };
                inside += u32::from(within(of_mix.bytes, truth));
                inside_blocks += u32::from(within(of_mix.blocks, blocks));
                sum += of_mix.bytes.value;
            }
            assert!(inside >= 294 && inside_blocks >= 294, "{mix:?}: {inside}, {inside_blocks} of 300");
            let spread = (truth * float(interval) / 300.0).sqrt();
            assert!((sum / 300.0 - truth).abs() < 4.0 * spread, "{mix:?}: {} for {truth}", sum / 300.0);
        }
    }

    #[test]
    fn nothing_noted_is_not_nothing() {
        let Range { value, low, high } = estimate(&[], 1000).bytes.range(0.99);
        assert_eq!((value, low), (0.0, 0.0));
        assert!((high - 5298.3).abs() < 0.1, "{high}");
    }

    #[test]
    fn what_is_large_is_exact() {
        let large = [SnapshotRecord { stack: 1, size: 1 << 30, count: 2 }];
        let Estimates { bytes, blocks } = estimate(&large, 4096);
        assert_eq!((bytes.value, blocks.value), (2_147_483_648.0, 2.0));
        assert_eq!(bytes.range(0.99).low, 2_147_483_648.0);
        let Range { low, high, .. } = Estimate::of_counter(1e9, 4096).range(0.99);
        assert!(low > 0.99e9 && high < 1.01e9, "{low} {high}");
    }
}
