//! Does one series grow? Every verdict is based on this rule.
//!
//! A series holds the value at the end of each iteration, including the first. The slope is estimated over the values
//! after the warm-up. Growth that is over (a full cache, noise that falls back) differs from growth that continues by
//! when the series last set a new high.

use crate::rare;
use crate::stats::{Slope, as_f64, theil_sen, thin};

/// A series counts as settled when it has set no new high for this share of all its iterations, including the warm-up.
/// A vector that doubles is flat for at most half of its iterations, one that grows by 1.5 for a third. So neither is
/// taken for a cache that was filled.
const SETTLED_SHARE: f64 = 0.55;
/// After being flat for this share, a series may be about to settle and is watched longer.
const PAUSED_SHARE: f64 = 0.25;
/// Theil–Sen looks at every pair of points.
const MAX_POINTS: usize = 300;

/// Fewer steps than this, in more iterations than [`MANY`], may each be an accident.
const FEW_STEPS: usize = 3;
const MANY: usize = 100;

/// Criteria for judging a series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowed {
    /// Largest allowed slope.
    pub(crate) limit: f64,
    /// Size of the smallest possible leak, 0 if unknown. Less than one such block over all iterations is no growth.
    pub(crate) block: f64,
    /// First iterations, which do not count.
    pub(crate) warm_up: usize,
    /// Confidence of the interval.
    pub(crate) confidence: f64,
}

/// Result for a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// It grows by no more than is allowed, or no longer.
    Still,
    /// It grows by more than is allowed, and continues.
    Grows,
    /// Not yet decided.
    Open,
}

/// A judged series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Growth {
    pub(crate) finding: Finding,
    pub(crate) slope: Slope,
    /// Points after warm-up.
    pub(crate) iterations: usize,
    /// It grew, and then paused. More iterations may show that the growth is over or that it is rare.
    pub(crate) paused: bool,
}

/// Judges the values at the end of every iteration.
pub(crate) fn judge_series(values: &[f64], allowed: Allowed) -> Growth {
    let counted = values.get(allowed.warm_up..).unwrap_or_default();
    let quiet = quiet_share(values, allowed.warm_up);
    let over = is_over(values, allowed.warm_up);
    decide(&thin(counted, MAX_POINTS), counted.len(), quiet, over, allowed)
}

/// The same for values that only the test changes, such as the counters of an allocator: every step counts.
///
/// The slope does not show a step near the end. A few steps cannot distinguish a rare leak from growth that is over:
/// that needs a pause that is too long for a leak as frequent as the earlier steps.
pub(crate) fn judge_exact(values: &[f64], allowed: Allowed) -> Growth {
    let mut growth = judge_series(values, allowed);
    let just_risen = growth.finding == Finding::Still && has_just_risen(values, allowed);
    let few_steps = growth.finding == Finding::Grows && has_few_steps(values, allowed.warm_up);
    if just_risen || few_steps {
        growth.finding = Finding::Open;
    }
    growth.paused |= just_risen
        || few_steps
        || growth.finding != Finding::Grows && may_rise_again(values, allowed.warm_up);
    growth
}

/// [`is_over`], where every step counts.
pub(crate) fn is_over_exactly(values: &[f64], warm_up: usize) -> bool {
    let allowed = Allowed { limit: 0.0, block: 0.0, warm_up, confidence: 0.0 };
    is_over(values, warm_up) && !has_just_risen(values, allowed)
}

/// The series set a new high and kept it, too late to count as settled. The rise exceeds what is allowed for all
/// iterations together.
fn has_just_risen(values: &[f64], allowed: Allowed) -> bool {
    let high = last_high(values, allowed.warm_up);
    let lowest = |part: Option<&[f64]>| part.unwrap_or_default().iter().copied().min_by(f64::total_cmp);
    let before = lowest(values.get(allowed.warm_up..high));
    let since = lowest(values.get(high..));
    let most = allowed.limit * as_f64(values.len().saturating_sub(allowed.warm_up));
    quiet_share(values, allowed.warm_up) < SETTLED_SHARE
        && matches!((before, since), (Some(before), Some(since)) if since - before > most)
}

/// The series has set new highs and keeps the last one. Steps as frequent as these may well pause for this long.
fn may_rise_again(values: &[f64], warm_up: usize) -> bool {
    let high = last_high(values, warm_up);
    let steps = steps(values, warm_up);
    let quiet = values.len().saturating_sub(high + 1);
    steps > 0 && !fell_back(values, warm_up) && !rare::is_improbable(quiet, steps, high - warm_up)
}

/// How many new highs it set after the warm-up.
pub(crate) fn steps(values: &[f64], warm_up: usize) -> usize {
    let Some((&first, rest)) = values.get(warm_up..).and_then(<[f64]>::split_first) else { return 0 };
    let highs = rest.iter().scan(first, |high, &value| {
        let is_higher = value > *high;
        *high = high.max(value);
        Some(is_higher)
    });
    highs.filter(|is_higher| *is_higher).count()
}

/// Are there many iterations but only one or two rises?
pub(crate) fn has_few_steps(values: &[f64], warm_up: usize) -> bool {
    values.len() > MANY && steps(values, warm_up) < FEW_STEPS
}

/// Judges values at the ends of runs of different lengths, ordered by length: `(length, value)`.
pub(crate) fn judge_points(points: &[(f64, f64)], allowed: Allowed) -> Growth {
    let values: Vec<f64> = points.iter().map(|(_, y)| *y).collect();
    let last = points.last().map_or(0.0, |(x, _)| *x);
    let quiet = points.get(last_high(&values, 0)).map_or(0.0, |(x, _)| (last - x) / last);
    let over = quiet >= SETTLED_SHARE || fell_back(&values, 0);
    decide(points, points.len(), quiet, over, allowed)
}

fn decide(points: &[(f64, f64)], iterations: usize, quiet: f64, over: bool, allowed: Allowed) -> Growth {
    let Some(slope) = theil_sen(points, allowed.confidence) else {
        let slope = Slope { slope: 0.0, low: 0.0, high: 0.0 };
        return Growth { finding: Finding::Open, slope, iterations, paused: false };
    };
    // A leak is at least one block. So less than one block over the whole run is noise.
    let noise = allowed.block / as_f64(iterations);
    let finding = if slope.high <= allowed.limit || over {
        Finding::Still
    } else if slope.low > allowed.limit {
        Finding::Grows
    } else if slope.high < allowed.limit + noise {
        Finding::Still
    } else {
        Finding::Open
    };
    let paused = finding == Finding::Grows && quiet >= PAUSED_SHARE;
    Growth { finding, slope, iterations, paused }
}

/// It has not grown for long enough, whatever it did before. This check is much cheaper than a slope, and enough for
/// the many groups of a test that come and go.
pub(crate) fn is_over(values: &[f64], warm_up: usize) -> bool {
    quiet_share(values, warm_up) >= SETTLED_SHARE || fell_back(values, warm_up)
}

/// Share of all iterations since the last new high. Highs of the warm-up do not count: a buffer that is freed after the
/// warm-up would hide all later growth below it.
fn quiet_share(values: &[f64], warm_up: usize) -> f64 {
    as_f64(values.len().saturating_sub(last_high(values, warm_up))) / as_f64(values.len().max(1))
}

fn last_high(values: &[f64], warm_up: usize) -> usize {
    let mut last_high = warm_up;
    for (i, value) in values.iter().enumerate().skip(warm_up) {
        if *value > values[last_high] {
            last_high = i;
        }
    }
    last_high
}

/// The last new high of a series after its warm-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rise {
    /// Counted from 1.
    pub(crate) iteration: usize,
    /// Since the end of the warm-up.
    pub(crate) by: f64,
}

pub(crate) fn last_rise(values: &[f64], warm_up: usize) -> Rise {
    let high = last_high(values, warm_up);
    let value = |i: usize| values.get(i).copied().unwrap_or_default();
    Rise { iteration: high + 1, by: value(high) - value(warm_up) }
}

/// The longest run of iterations that each rose by more than `limit`. 0 if the last value is not the highest.
pub(crate) fn rose_in_a_row(values: &[f64], limit: f64) -> usize {
    let high = values.iter().copied().max_by(f64::total_cmp);
    if high.is_none() || values.last().copied() != high {
        return 0;
    }
    let rises = values.windows(2).map(|pair| pair[1] - pair[0] > limit);
    let in_a_row = rises.scan(0, |row, rises| {
        *row = if rises { *row + 1 } else { 0 };
        Some(*row)
    });
    in_a_row.max().unwrap_or_default()
}

/// In its last third the series came down to its early level. Memory that is freed late or toggles does that; a leak
/// never does.
fn fell_back(values: &[f64], warm_up: usize) -> bool {
    let n = values.len();
    let lowest = |part: &[f64]| part.iter().copied().min_by(f64::total_cmp);
    let early = values.get(warm_up..n * 45 / 100).and_then(lowest);
    let late = lowest(&values[n - n / 3..]);
    matches!((early, late), (Some(early), Some(late)) if late <= early)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Allowed = Allowed { limit: 0.0, block: 0.0, warm_up: 3, confidence: 0.99 };

    type Value = Box<dyn Fn(usize) -> f64>;

    fn series(n: usize, at_end_of: impl Fn(usize) -> f64) -> Vec<f64> {
        (1..=n).map(at_end_of).collect()
    }

    fn finding(values: &[f64]) -> Finding {
        judge_series(values, ALLOWED).finding
    }

    /// Capacity in elements after `pushes`, multiplied by `factor` when full.
    fn capacity(pushes: usize, factor: f64) -> f64 {
        let mut capacity = 1.0_f64;
        while capacity < as_f64(pushes) {
            capacity = (capacity * factor).ceil();
        }
        capacity
    }

    /// Repeatable noise between 0 and `below`.
    fn noise(i: usize, below: usize) -> f64 {
        let mut x = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        as_f64(usize::try_from((x ^ (x >> 29)) % below as u64).expect("small"))
    }

    #[test]
    fn leaks_grow() {
        let cases: [(&str, Value); 9] = [
            ("every iteration", Box::new(|i| 48.0 * 1024.0 * as_f64(i))),
            ("one byte", Box::new(as_f64)),
            ("every third iteration", Box::new(|i| 37.0 * as_f64(i / 3))),
            ("every fifth iteration", Box::new(|i| 37.0 * as_f64(i / 5))),
            ("a vector that doubles", Box::new(|i| 4.0 * capacity(i, 2.0))),
            ("a vector that doubles, five a time", Box::new(|i| 4.0 * capacity(5 * i, 2.0))),
            ("a vector that grows by 1.5", Box::new(|i| 8.0 * capacity(i, 1.5))),
            ("below noise that is freed late", Box::new(|i| 100.0 * as_f64(i) + 32.0 * noise(i, 4))),
            ("below a block that toggles", Box::new(|i| 64.0 * as_f64(i) + 500.0 * as_f64(i % 2))),
        ];
        for (what, value) in cases {
            for n in (13..200).step_by(3) {
                assert_ne!(finding(&series(n, &value)), Finding::Still, "{what}, {n} iterations");
            }
            for n in (43..200).step_by(5).chain([500, 1999]) {
                assert_eq!(finding(&series(n, &value)), Finding::Grows, "{what}, {n} iterations");
            }
        }
    }

    /// `n` ends of a test that leaks in one of `one_in` executions.
    fn rare_leak(n: usize, one_in: usize, seed: usize, by_chance: bool) -> Vec<f64> {
        let leaks = |i: usize| match by_chance {
            true => noise(1_000_003 * seed + i, 1000 * one_in) < 1000.0,
            false => (i + seed).is_multiple_of(one_in),
        };
        let lost = (1..=n).scan(0, |lost, i| {
            *lost += usize::from(leaks(i));
            Some(37.0 * as_f64(*lost))
        });
        lost.collect()
    }

    /// Cheap executions give at least some hundreds of iterations. Then rare leaks are detected like others.
    #[test]
    fn leaks_that_come_now_and_then_grow() {
        for one_in in [10, 20] {
            for n in [250, 600] {
                for seed in 0..3 {
                    for by_chance in [false, true] {
                        let values = rare_leak(n, one_in, seed, by_chance);
                        let found = judge_exact(&values, ALLOWED).finding;
                        assert_eq!(
                            found,
                            Finding::Grows,
                            "one in {one_in}, {n}, {seed}, by chance: {by_chance}"
                        );
                    }
                }
            }
        }
    }

    /// With slow executions, a step near the end shows no slope but is not settled either.
    #[test]
    fn a_late_step_that_stays_is_not_still() {
        for at in 24..43 {
            let values = series(43, |i| if i > at { 137.0 } else { 100.0 });
            let growth = judge_exact(&values, ALLOWED);
            assert_eq!((growth.finding, growth.paused), (Finding::Open, true), "{at}");
            assert!(!is_over_exactly(&values, 3));
            assert_eq!(last_rise(&values, 3), Rise { iteration: at + 1, by: 37.0 });
            let allowed = Allowed { limit: 37.0, ..ALLOWED };
            assert_eq!(judge_exact(&values, allowed).finding, Finding::Still, "{at}");
        }
        // The series falls back, or its growth has been over for long.
        for settled in [
            series(43, |i| if i == 40 { 137.0 } else { 100.0 }),
            series(43, |i| 100.0 + 37.0 * as_f64((i / 8).min(1))),
        ] {
            assert_eq!(judge_exact(&settled, ALLOWED).finding, Finding::Still);
            assert!(is_over_exactly(&settled, 3));
        }
    }

    #[test]
    fn ten_iterations_after_warm_up_tell_a_plain_leak() {
        for n in 6..14 {
            let growth = judge_series(&series(n, |i| 48.0 * as_f64(i)), ALLOWED);
            assert_eq!(growth.finding, Finding::Grows, "{n}");
            assert_eq!((growth.slope.low, growth.slope.slope, growth.slope.high), (48.0, 48.0, 48.0));
            assert_eq!(growth.iterations, n - 3);
        }
    }

    #[test]
    fn what_does_not_leak_is_still() {
        let cases: [(&str, Value); 10] = [
            ("nothing at all", Box::new(|_| 0.0)),
            ("12 KiB in the first iteration", Box::new(|_| 12.0 * 1024.0)),
            ("one-time costs in the warm-up", Box::new(|i| 4096.0 * as_f64(i.min(3)))),
            ("the last value is kept", Box::new(|i| 100.0 + 8.0 * as_f64(i % 3))),
            ("a block that toggles", Box::new(|i| 4096.0 * as_f64(i % 2))),
            ("freed late by another thread", Box::new(|i| 1e6 + 37.0 * noise(i, 3))),
            ("freed late, many blocks", Box::new(|i| 1e6 + 37.0 * noise(i, 12))),
            ("a buffer given back after the warm-up", Box::new(|i| if i < 8 { 1e6 } else { 0.0 })),
            ("a cache that is cleared when full", Box::new(|i| 64.0 * as_f64(i % 7))),
            ("shrinks", Box::new(|i| 1e6 - 10.0 * as_f64(i))),
        ];
        for (what, value) in cases {
            for n in (13..200).step_by(3) {
                assert_ne!(finding(&series(n, &value)), Finding::Grows, "{what}, {n} iterations");
            }
            for n in [100, 160, 500, 1999] {
                assert_eq!(finding(&series(n, &value)), Finding::Still, "{what}, {n} iterations");
                let exactly = judge_exact(&series(n, &value), ALLOWED);
                assert_eq!(
                    (exactly.finding, exactly.paused),
                    (Finding::Still, false),
                    "{what}, {n} iterations"
                );
            }
        }
    }

    /// An LRU cache of 400 entries that takes 5 per iteration is full after 80. Before that it looks like a leak. That
    /// is why a leak is reported only after two seconds.
    #[test]
    fn a_bounded_cache_is_still_once_it_has_been_full_for_long_enough() {
        let lru = |i: usize| 56.0 * as_f64((5 * i).min(400));
        assert_eq!(finding(&series(60, lru)), Finding::Grows);
        let filling = judge_series(&series(120, lru), ALLOWED);
        assert!(filling.paused, "worth watching longer");
        for n in [180, 200, 500, 2000] {
            assert_eq!(finding(&series(n, lru)), Finding::Still, "{n}");
        }
    }

    #[test]
    fn a_steady_leak_is_not_paused() {
        assert!(!judge_series(&series(40, as_f64), ALLOWED).paused);
        assert!(!judge_series(&series(40, |i| as_f64(i / 3)), ALLOWED).paused);
    }

    #[test]
    fn growth_up_to_the_limit_is_still() {
        let allowed = Allowed { limit: 64.0, ..ALLOWED };
        for (leak, expected) in [(63.0, Finding::Still), (64.0, Finding::Still), (65.0, Finding::Grows)] {
            let values = series(20, |i| leak * as_f64(i));
            assert_eq!(judge_series(&values, allowed).finding, expected, "{leak}");
        }
    }

    #[test]
    fn rises_count_in_a_row_and_only_where_they_are_kept() {
        let cases: [(&[f64], f64, usize); 7] = [
            (&[], 0.0, 0),
            (&[4.0], 0.0, 0),
            (&[1.0, 2.0, 3.0, 3.0, 4.0, 4.0], 0.0, 2),
            (&[1.0, 2.0, 3.0, 4.0, 4.0, 4.0], 0.0, 3),
            (&[1.0, 2.0, 3.0, 4.0, 4.0, 1.0], 0.0, 0),
            (&[1.0, 3.0, 4.0, 4.0], 1.0, 1),
            (&[3.0, 2.0, 1.0], 0.0, 0),
        ];
        for (values, limit, rose) in cases {
            assert_eq!(rose_in_a_row(values, limit), rose, "{values:?}");
        }
    }

    /// A late new high without falling back, but the upper end of the interval is less than one block over the whole
    /// run.
    #[test]
    fn less_than_one_block_over_the_whole_run_is_noise() {
        let mut values = series(103, |i| 100.0 + noise(i, 40));
        values[3] = 90.0;
        values[100] = 200.0;
        assert_eq!(finding(&values), Finding::Open);
        assert_eq!(judge_series(&values, Allowed { block: 64.0, ..ALLOWED }).finding, Finding::Still);
    }

    #[test]
    fn too_short_a_series_is_open() {
        for n in 0..5 {
            assert_eq!(finding(&series(n, as_f64)), Finding::Open, "{n}");
        }
        assert_eq!(judge_series(&[], Allowed { warm_up: 0, ..ALLOWED }).finding, Finding::Open);
        for n in 0..5 {
            assert_eq!(judge_exact(&series(n, as_f64), ALLOWED).finding, Finding::Open, "{n}");
        }
    }

    /// Values that never repeat grow in less than the half percent that the interval promises. Counts of a few blocks
    /// that wait to be freed come back to their old level.
    #[test]
    fn noise_hardly_ever_grows() {
        for (values, most) in [(1000, 5), (4, 0), (12, 1)] {
            let grows =
                |seed: &usize| finding(&series(43, |i| noise(i + 1000 * seed, values))) == Finding::Grows;
            let wolves = (0..1000).filter(grows).count();
            assert!(wolves <= most, "{wolves} of 1000 with {values} values");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_values_have_a_finding(values in proptest::collection::vec(proptest::num::f64::NORMAL, 0..400)) {
            let growth = judge_series(&values, ALLOWED);
            proptest::prop_assert_eq!(growth.iterations, values.len().saturating_sub(3));
            let Rise { iteration, by } = last_rise(&values, 3);
            proptest::prop_assert!(iteration > 0 && by >= 0.0);
            proptest::prop_assert!(!may_rise_again(&values, 3) || by > 0.0);
            proptest::prop_assert!(!is_over_exactly(&values, 3) || !has_just_risen(&values, ALLOWED));
        }
    }
}
