//! Theil–Sen: the median slope over all pairs of points, and its confidence interval.
//!
//! Interval: the order statistics of the pair slopes that invert Kendall's test with its variance
//! corrected for ties (P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau",
//! JASA 63, 1968). Ranks are rounded as `scipy.stats.theilslopes` rounds them, so that results can
//! be compared.

use super::kendall::kendall_variance;
use super::median::median_of_sorted;
use super::normal::normal_quantile;

/// A slope with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slope {
    /// Median slope.
    pub slope: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// Slope of points `(x, y)` with a two-sided interval of this confidence. `None` if no two points differ in `x`.
/// Quadratic in time and memory: thin long series first.
#[must_use]
pub fn theil_sen(points: &[(f64, f64)], confidence: f64) -> Option<Slope> {
    let mut slopes = Vec::with_capacity(points.len() * points.len().saturating_sub(1) / 2);
    for (i, (x0, y0)) in points.iter().enumerate() {
        for (x1, y1) in &points[i + 1..] {
            if x1 != x0 {
                slopes.push((y1 - y0) / (x1 - x0));
            }
        }
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let slope = median_of_sorted(&slopes)?;
    let (x, y): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    let (low, high) = ranks(slopes.len(), kendall_variance(&y, &x), confidence);
    Some(Slope { slope, low: slopes[low], high: slopes[high] })
}

/// Indices of the interval's bounds among `pairs` sorted slopes.
fn ranks(pairs: usize, variance: f64, confidence: f64) -> (usize, usize) {
    let z = normal_quantile(f64::midpoint(1.0, confidence));
    #[expect(clippy::cast_precision_loss, reason = "pairs of a thinned series")]
    let pairs_f64 = pairs as f64;
    let reach = z * variance.max(0.0).sqrt();
    let low = ((pairs_f64 - reach) / 2.0).round_ties_even() - 1.0;
    let high = ((pairs_f64 + reach) / 2.0).round_ties_even();
    // `as` saturates: the interval is limited to the outermost slopes.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the slopes")]
    let index = |rank: f64| (rank as usize).min(pairs - 1);
    (index(low), index(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(y: &[f64]) -> Vec<(f64, f64)> {
        super::super::thin(y, usize::MAX)
    }

    fn assert_close(found: Option<Slope>, slope: f64, low: f64, high: f64) {
        let found = found.expect("a slope");
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(found.slope, slope) && near(found.low, low) && near(found.high, high), "{found:?}");
    }

    /// The worked example of Sen 1968: slope 4, 93 % interval from 26/7 to 35/8.
    #[test]
    fn agrees_with_sen_1968() {
        let x = [1., 2., 3., 4., 10., 12., 18.];
        let y = [9., 15., 19., 20., 45., 55., 78.];
        let points: Vec<_> = x.into_iter().zip(y).collect();
        assert_close(theil_sen(&points, 0.93), 4.0, 26.0 / 7.0, 35.0 / 8.0);
    }

    /// Hollander & Wolfe, *Nonparametric Statistical Methods*, example 9.1 (cloud seeding): slope
    /// −0.056. Interval: `scipy.stats.theilslopes(y, x, alpha=0.95)`, SciPy 1.17.1.
    #[test]
    fn agrees_with_hollander_and_wolfe() {
        let points = [(1., 1.26), (2., 1.27), (3., 1.12), (4., 1.16), (5., 1.03)];
        assert_close(theil_sen(&points, 0.95), -0.056_25, -0.15, 0.04);
    }

    /// `scipy.stats.theilslopes(y, alpha=a)`, SciPy 1.17.1: `medslope, lo_slope, up_slope`.
    #[test]
    fn agrees_with_scipy_also_with_ties() {
        let stairs = series(&[0., 0., 1., 1., 1., 2., 2., 2., 3., 3.]);
        assert_close(theil_sen(&stairs, 0.99), 1.0 / 3.0, 0.2, 0.5);
        assert_close(theil_sen(&stairs, 0.95), 1.0 / 3.0, 0.25, 3.0 / 7.0);
        let rising = series(&[10., 22., 21., 30., 32., 34., 30., 45., 48., 47.]);
        assert_close(theil_sen(&rising, 0.99), 3.75, 2.0, 5.5);
        assert_close(theil_sen(&rising, 0.95), 3.75, 17.0 / 6.0, 4.8);
    }

    #[test]
    fn needs_two_different_x() {
        assert_eq!(theil_sen(&[], 0.99), None);
        assert_eq!(theil_sen(&[(1.0, 2.0)], 0.99), None);
        assert_eq!(theil_sen(&[(1.0, 2.0), (1.0, 3.0)], 0.99), None);
        assert_close(theil_sen(&[(1.0, 2.0), (2.0, 3.0)], 0.99), 1.0, 1.0, 1.0);
    }

    proptest::proptest! {
        #[test]
        fn never_panics_and_brackets_the_slope(
            y in proptest::collection::vec(-1e9..1e9, 2..40), confidence in 0.0..1.0
        ) {
            let found = theil_sen(&series(&y), confidence).expect("two points");
            proptest::prop_assert!(found.low <= found.slope && found.slope <= found.high);
        }
    }
}
