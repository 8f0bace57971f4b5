//! Shifts of figures that vary from run to run: memory as the system counts it, and times.
//!
//! Data flow: the values of one test, metric, line and environment, in the order of the line → [`shifts`]. A new value
//! is checked together with the 64 values before it, but not beyond the last shift. If a split divides them into two
//! parts whose medians are far apart and whose ranks hardly mix, the figure has shifted at the best such split. Values
//! before it are then ignored.
//!
//! Ranks and medians are used instead of means: one outlier moves neither. Such figures only inform; they fail no test:
//! the largest of n values is exceeded by the next one in 1 of n + 1 cases.

/// Most values to check.
const WINDOW: usize = 65;
/// Fewest values before a shift, and after it.
const FEWEST: (usize, usize) = (20, 5);
/// Minimum distance of the medians: in scaled median deviations of the part before, and as a share of its median.
const APART: (f64, f64) = (3.0, 0.03);
/// Converts the median deviation of normal values to their standard deviation.
const SCALE: f64 = 1.4826;
/// A normal value is beyond this with a two-sided p of 0.0001.
const BEYOND: f64 = 3.890_592;

/// A figure moved to another level and stayed there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// Position of the first value of the new level.
    pub at: usize,
    /// Position of the value that revealed the shift.
    pub told_at: usize,
    /// Median before.
    pub before: f64,
    /// Median after, when the shift was reported.
    pub after: f64,
}

/// Every shift of a series, the first one first. Values that are not finite are skipped.
#[must_use]
pub fn shifts(values: &[f64]) -> Vec<Shift> {
    let finite: Vec<(usize, f64)> =
        values.iter().copied().enumerate().filter(|(_, v)| v.is_finite()).collect();
    let series: Vec<f64> = finite.iter().map(|(_, value)| *value).collect();
    let position = |at: usize| finite.get(at).map_or(at, |(position, _)| *position);
    let (mut found, mut start) = (Vec::new(), 0_usize);
    for end in FEWEST.0 + FEWEST.1..=series.len() {
        let from = start.max(end.saturating_sub(WINDOW));
        if let Some(split) = series.get(from..end).and_then(best_split) {
            start = from + split.left;
            let (at, told_at) = (position(start), position(end - 1));
            found.push(Shift { at, told_at, before: split.before, after: split.after });
        }
    }
    found
}

/// The middle value; of an even number, the mean of the middle two; 0 if there are none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    let middle = values.len() / 2;
    if values.is_empty() {
        return 0.0;
    }
    let even = values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let lower = below.iter().copied().max_by(f64::total_cmp).filter(|_| even).unwrap_or(*upper);
    // Halves first: the sum of two large values would be infinite.
    lower / 2.0 + *upper / 2.0
}

/// Standard deviation, estimated by the median distance from `middle`: outliers do not change it.
#[must_use]
pub fn deviation(values: &[f64], middle: f64) -> f64 {
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    SCALE * median(&distances)
}

/// How far apart the ranks of two samples are: Mann and Whitney's U as a normal value, positive if `right` is larger,
/// corrected for ties and continuity. 0: undecided.
fn rank_distance(left: &[f64], right: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> =
        left.iter().map(|value| (*value, false)).chain(right.iter().map(|value| (*value, true))).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut rank_sum, mut ties, mut before) = (0.0, 0.0, 0.0);
    for tied in all.chunk_by(|a, b| a.0 == b.0) {
        let count = tied.len() as f64;
        let of_right = tied.iter().filter(|(_, is_right)| *is_right).count() as f64;
        rank_sum += of_right * (before + f64::midpoint(count, 1.0));
        ties += count.powi(3) - count;
        before += count;
    }
    let (m, n) = (left.len() as f64, right.len() as f64);
    let u = rank_sum - n * (n + 1.0) / 2.0 - m * n / 2.0;
    let variance = m * n / 12.0 * (before + 1.0 - ties / (before * (before - 1.0)));
    if variance > 0.0 { u.signum() * (u.abs() - 0.5).max(0.0) / variance.sqrt() } else { 0.0 }
}

struct Split {
    left: usize,
    before: f64,
    after: f64,
}

/// The split whose parts deviate least from their own medians, if it is a shift.
///
/// Splits with too few values after them are tried as well. If one of these is the best, an earlier split is none: it
/// would have some old values on its right.
fn best_split(values: &[f64]) -> Option<Split> {
    let mut best: Option<(f64, Split)> = None;
    for at in FEWEST.0..values.len() {
        let (left, right) = values.split_at_checked(at)?;
        let (before, after) = (median(left), median(right));
        let apart = (after - before).abs();
        // Cheap checks first: few splits of a stable series pass them.
        if apart == 0.0 || apart < APART.1 * before.abs() || apart < APART.0 * deviation(left, before) {
            continue;
        }
        let off = |part: &[f64], middle: f64| part.iter().map(|value| (value - middle).abs()).sum::<f64>();
        let misfit = off(left, before) + off(right, after);
        if best.as_ref().is_none_or(|(least, _)| misfit < *least) {
            best = Some((misfit, Split { left: at, before, after }));
        }
    }
    let (_, split) = best?;
    let (left, right) = values.split_at_checked(split.left)?;
    (right.len() >= FEWEST.1 && rank_distance(left, right).abs() > BEYOND).then_some(split)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Chance;

    const MIB: f64 = 1_048_576.0;

    /// Memory of about 200 MiB with noise of 2 %, normal or with heavy tails. From `at` on it is multiplied by
    /// `factor`.
    fn memory(chance: &mut Chance, tails: bool, runs: usize, at: usize, factor: f64) -> Vec<f64> {
        let mut value = |run: usize| {
            let noise = if tails { chance.heavy() } else { chance.normal() };
            200.0 * MIB * (1.0 + 0.02 * noise) * if run < at { 1.0 } else { factor }
        };
        (0..runs).map(&mut value).collect()
    }

    #[test]
    fn a_steady_noisy_figure_alarms_in_one_of_a_thousand_runs_at_most() {
        let mut chance = Chance::of(1);
        for tails in [false, true] {
            let alarms: usize = (0..30).map(|_| shifts(&memory(&mut chance, tails, 200, 0, 1.0)).len()).sum();
            assert!(alarms <= 6, "{alarms} in 6,000 runs, heavy tails: {tails}");
        }
    }

    #[test]
    fn fifteen_percent_more_is_told_once_within_eight_runs() {
        for factor in [1.15, 0.85, 1.3] {
            let mut chance = Chance::of(2);
            let told = (0..100).filter(|_| {
                let found = shifts(&memory(&mut chance, false, 100, 60, factor));
                matches!(found[..], [shift] if shift.told_at < 68 && (57..=62).contains(&shift.at))
            });
            let told = told.count();
            assert!(told >= 95, "{told} of 100 at × {factor}");
        }
    }

    #[test]
    fn one_wild_run_is_no_shift_and_a_lasting_one_is_one() {
        let mut values = vec![100.0; 60];
        values[40] = 900.0;
        assert_eq!(shifts(&values), []);
        values.extend([150.0; 60]);
        let found = shifts(&values);
        assert_eq!(found, [Shift { at: 60, told_at: 64, before: 100.0, after: 150.0 }]);
        values.extend([100.0; 60]);
        assert_eq!(shifts(&values)[1], Shift { at: 120, told_at: 124, before: 150.0, after: 100.0 });
        assert_eq!(shifts(&values[..24]), [], "too few");
    }

    #[test]
    fn less_than_three_percent_is_no_shift() {
        let step = |after: f64| shifts(&[[100.0; 40], [after; 40]].concat()).len();
        assert_eq!((step(102.9), step(97.1), step(103.0), step(97.0)), (0, 0, 1, 1));
    }

    #[test]
    fn what_is_no_number_is_passed_over() {
        let mut values = vec![f64::NAN, f64::INFINITY];
        values.extend([vec![0.0; 30], vec![f64::NAN; 3], vec![7.0; 10]].concat());
        assert_eq!(shifts(&values), [Shift { at: 35, told_at: 39, before: 0.0, after: 7.0 }]);
        assert_eq!((shifts(&[]), shifts(&[f64::NAN; 80])), (vec![], vec![]));
    }

    /// Rank sums by hand: 1, 2, 3 and 4, 5, 6, 7 are apart; U is 12 of 12, its mean 6 and its variance 8.
    #[test]
    fn ranks_are_those_of_mann_and_whitney() {
        let apart = rank_distance(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0, 7.0]);
        assert!((apart - 5.5 / 8.0_f64.sqrt()).abs() < 1e-12, "{apart}");
        assert!((rank_distance(&[4.0, 5.0, 6.0, 7.0], &[1.0, 2.0, 3.0]) + apart).abs() < 1e-12);
        // 1, 1 and 1, 2: rank sum of the right 2 + 4, U 3, mean 2; variance 4 / 12 · (5 − 24 / 12) = 1.
        assert!((rank_distance(&[1.0, 1.0], &[1.0, 2.0]) - 0.5).abs() < 1e-12);
        assert_eq!((rank_distance(&[3.0; 9], &[3.0; 9]), rank_distance(&[], &[1.0])), (0.0, 0.0));
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0]), median(&[])), (2.0, 2.5, 0.0));
        assert_eq!(median(&[f64::MAX, f64::MAX]), f64::MAX);
        assert!((deviation(&[1.0, 2.0, 3.0, 4.0, 500.0], 3.0) - SCALE).abs() < 1e-12);
    }
}
