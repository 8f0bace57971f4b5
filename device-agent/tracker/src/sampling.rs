//! Sampling: records only some of the allocations, for programs that run for hours.
//!
//! Each allocated byte is chosen with the same small probability, and a block that contains a chosen byte is recorded
//! (a Poisson process). So a thread counts the allocated bytes down to the next chosen one, and nearly every allocation
//! costs one subtraction. The distances are exponential: a block of `s` bytes is recorded with the probability
//! `1 - e^(-s / interval)`, independent of earlier blocks. A recorded block stands for as many blocks as the inverse of
//! this probability, so that sums over the recorded blocks are correct on average ([`stands_for`]).

#![cfg_attr(
    not(test),
    expect(clippy::arithmetic_side_effects, reason = "bits of random numbers, and terms of a series")
)]
#![expect(clippy::cast_sign_loss, reason = "nothing here is below zero, and such a cast saturates")]

use crate::cost::ticks;
use crate::sync::{AtomicU16, AtomicU64, Ordering, Zeroed, sized};

/// The distance of one thread to its next sample. All-zero: not started.
#[derive(Default)]
pub(crate) struct Countdown {
    /// Allocated bytes up to the next chosen byte, which is included; 0: none was chosen yet.
    left: AtomicU64,
    /// State of the random number generator; 0: not seeded.
    random: AtomicU64,
}

impl Countdown {
    /// Counts `size` bytes. Returns true if none of them is chosen.
    #[inline(always)]
    pub(crate) fn passes(&self, size: u64) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        if size >= left {
            return false;
        }
        self.left.store(left.wrapping_sub(size), Ordering::Relaxed);
        true
    }

    /// Counts `size` bytes like [`Countdown::passes`], but seeds the generator first if needed, and draws the next
    /// chosen byte when this one is reached. Returns true if one of the bytes is chosen.
    pub(crate) fn chooses(&self, size: u64, interval: u64) -> bool {
        if self.random.load(Ordering::Relaxed) == 0 {
            let place = core::ptr::from_ref(self) as u64;
            self.seed(ticks() ^ place.rotate_left(32), interval);
        }
        if self.passes(size) {
            return false;
        }
        // The Poisson process has no memory: the distance from here does not depend on earlier bytes.
        self.left.store(self.distance(interval), Ordering::Relaxed);
        true
    }

    fn seed(&self, seed: u64, interval: u64) {
        self.random.store(seed | 1, Ordering::Relaxed);
        self.left.store(self.distance(interval), Ordering::Relaxed);
    }

    /// Bytes to the next chosen one, at least 1.
    fn distance(&self, interval: u64) -> u64 {
        // SplitMix64.
        let state = self.random.load(Ordering::Relaxed).wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.random.store(if state == 0 { 1 } else { state }, Ordering::Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        // The cast saturates, and rounds down.
        ((minus_logarithm(mixed ^ (mixed >> 31)) * interval as f64) as u64).saturating_add(1)
    }
}

/// Pages that may hold a recorded block. Nearly every free checks only this, so that it reads neither the table nor
/// anything else as large as the guest's heap. A thread that holds a pointer sees that its block was recorded, as in
/// the table.
pub(crate) struct Pages {
    /// Number of recorded blocks per page. Several pages share a counter. A counter that was ever full stays full.
    noted: [AtomicU16; PAGES],
}

const PAGES: usize = sized(8192, 2);

impl Pages {
    /// May a block at `address` be recorded?
    #[inline(always)]
    pub(crate) fn may_hold(&self, address: usize) -> bool {
        self.page(address).is_none_or(|noted| noted.load(Ordering::Relaxed) != 0)
    }

    /// Adds a recorded block.
    pub(crate) fn add(&self, address: usize) {
        self.change(address, |noted| noted.saturating_add(1));
    }

    /// Removes a recorded block.
    pub(crate) fn remove(&self, address: usize) {
        self.change(address, |noted| if noted == u16::MAX { noted } else { noted.saturating_sub(1) });
    }

    fn page(&self, address: usize) -> Option<&AtomicU16> {
        self.noted.get((address >> 12) % PAGES)
    }

    fn change(&self, address: usize, to: impl Fn(u16) -> u16) {
        let Some(noted) = self.page(address) else { return };
        let mut now = noted.load(Ordering::Relaxed);
        while let Err(other) = noted.compare_exchange(now, to(now), Ordering::Relaxed, Ordering::Relaxed) {
            now = other;
        }
    }
}

// SAFETY: all-zero holds nothing.
unsafe impl Zeroed for Pages {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self { noted: core::array::from_fn(|_| AtomicU16::new(0)) }
    }
}

/// Blocks and bytes that a recorded block of `size` bytes at `address` stands for. The number of blocks is rounded up
/// or down depending on the address, so that it is also correct on average. A block has the same number during its
/// whole life.
pub(crate) fn stands_for(address: usize, size: u64, interval: u64) -> (u64, u64) {
    let size_f = size as f64;
    let x = size_f / interval as f64;
    // For a small block, the series is more precise than the difference.
    let probability = if x < 1e-4 { x * (1.0 - x / 2.0) } else { 1.0 - exponential(x) };
    if size == 0 || interval == 0 {
        return (1, size);
    }
    let fraction = (address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11;
    let fraction = fraction as f64 / EXACT;
    ((1.0 / probability + fraction) as u64, (size_f / probability) as u64)
}

/// Integers up to here are exact in a `f64`.
const EXACT: f64 = (1_u64 << 53) as f64;
const LN_2: f64 = core::f64::consts::LN_2;

/// `-ln(u)`, where `u` is made from the upper bits of `random`: above 0, at most 1.
fn minus_logarithm(random: u64) -> f64 {
    let whole = ((random >> 11) + 1) as f64;
    let bits = whole.to_bits();
    let exponent = (bits >> 52) as f64 - 1023.0;
    // In the range 1 to below 2.
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let sum = (0..12).rev().fold(0.0, |sum, k| sum * square + 1.0 / f64::from(2 * k + 1));
    (53.0 - exponent) * LN_2 - 2.0 * t * sum
}

/// `e^(-x)` for `x` >= 0.
fn exponential(x: f64) -> f64 {
    let halvings = (x / LN_2) as u64;
    let rest = x - halvings as f64 * LN_2;
    let sum = (1..18).rev().fold(1.0, |sum, k| 1.0 - rest / f64::from(k) * sum);
    1023_u64
        .checked_sub(halvings)
        .filter(|e| *e > 0)
        .map_or(0.0, |exponent| sum * f64::from_bits(exponent << 52))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: u64 = 512 << 10;

    fn seeded(seed: u64) -> Countdown {
        let countdown = Countdown::default();
        countdown.seed(seed, INTERVAL);
        countdown
    }

    #[test]
    fn logarithms_and_powers_are_those_of_the_standard_library() {
        for random in [0, 1 << 11, 0x1234_5678_9ABC_DEF0, u64::MAX / 2, u64::MAX - (1 << 12), u64::MAX] {
            let u = ((random >> 11) + 1) as f64 / EXACT;
            assert!((minus_logarithm(random) + u.ln()).abs() < 1e-11, "{u}");
        }
        for x in [0.0, 1e-9, 0.3, 0.69, 0.7, 1.0, 5.0, 36.0, 700.0, 800.0, 1e300] {
            assert!((exponential(x) - (-x).exp()).abs() < 1e-13, "{x}");
        }
    }

    fn probability(size: u64) -> f64 {
        1.0 - (-(size as f64) / INTERVAL as f64).exp()
    }

    #[test]
    fn each_size_is_chosen_as_often_as_it_should_be() {
        for size in [1000, 4096, INTERVAL / 2, INTERVAL, 3 * INTERVAL] {
            let countdown = seeded(size);
            let probability = probability(size);
            let blocks = (2_000.0 / probability) as u64;
            let chosen = (0..blocks).filter(|_| !countdown.passes(size) && countdown.chooses(size, INTERVAL));
            let expected = blocks as f64 * probability;
            let off = (chosen.count() as f64 - expected) / (expected * (1.0 - probability)).sqrt().max(1.0);
            assert!(off.abs() < 4.0, "{size}: {off} standard deviations");
        }
    }

    #[test]
    fn what_is_chosen_stands_for_all() {
        for size in [1000, 70_000, INTERVAL, 2 * INTERVAL, 50 * INTERVAL] {
            let countdown = seeded(size + 7);
            let blocks = (2_000.0 / probability(size)) as u64;
            let (mut count, mut bytes) = (0, 0);
            for i in 0..blocks {
                if countdown.chooses(size, INTERVAL) {
                    let (more, of) = stands_for(0x7f00_0000_0000 + 16 * i as usize, size, INTERVAL);
                    count += more;
                    bytes += of;
                }
            }
            let off = [count as f64 / blocks as f64, bytes as f64 / (blocks * size) as f64];
            assert!(off.iter().all(|ratio| (ratio - 1.0).abs() < 0.09), "{size}: {off:?}");
        }
        assert_eq!(stands_for(16, 1 << 40, INTERVAL), (1, 1 << 40));
        assert_eq!(stands_for(16, 0, INTERVAL), (1, 0));
    }

    #[test]
    fn the_largest_sizes_overflow_nothing() {
        let countdown = seeded(1);
        assert!(countdown.chooses(u64::MAX, u64::MAX) || countdown.passes(0));
        assert!(stands_for(usize::MAX, u64::MAX, 1).1 > 0);
    }
}
