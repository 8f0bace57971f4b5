//! Mann–Kendall: does a series have a trend, whatever its shape? (Mann 1945, Kendall 1975.)

/// Result of the test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Pairs that rise minus pairs that fall.
    pub s: f64,
    /// Variance of `s` where there is no trend, corrected for ties.
    pub variance: f64,
    /// `s` in standard deviations, with the correction for continuity; 0 for a constant series.
    pub z: f64,
}

/// Mann–Kendall test of values in time order. Quadratic: thin long series first.
#[must_use]
pub fn mann_kendall(values: &[f64]) -> Trend {
    let mut s = 0.0;
    for (i, early) in values.iter().enumerate() {
        for late in &values[i + 1..] {
            s += if late > early {
                1.0
            } else if late < early {
                -1.0
            } else {
                0.0
            };
        }
    }
    let variance = kendall_variance(values, &[]);
    let z = if s == 0.0 || variance <= 0.0 { 0.0 } else { (s - f64::signum(s)) / variance.sqrt() };
    Trend { s, variance, z }
}

/// Variance of Kendall's S for `values` against a second variable with the values `against` (empty:
/// without ties).
pub(super) fn kendall_variance(values: &[f64], against: &[f64]) -> f64 {
    let weight = |t: f64| t * (t - 1.0) * (2.0 * t + 5.0);
    let ties = |values: &[f64]| tie_sizes(values).into_iter().map(weight).sum::<f64>();
    (weight(len(values)) - ties(values) - ties(against)) / 18.0
}

fn tie_sizes(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.chunk_by(|a, b| a == b).map(len).collect()
}

#[expect(clippy::cast_precision_loss, reason = "series are far shorter than 2^52")]
fn len(values: &[f64]) -> f64 {
    values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pymannkendall.original_test(y)` (1.4.3): `s`, `var_s`, `z`.
    #[test]
    fn agrees_with_pymannkendall() {
        let cases: [(&[f64], f64, f64, f64); 3] = [
            (
                &[0., 0., 1., 1., 1., 2., 2., 2., 3., 3.],
                37.0,
                115.666_666_666_666_67,
                3.347_328_927_818_215_7,
            ),
            (&[10., 22., 21., 30., 32., 34., 30., 45., 48., 47.], 36.0, 124.0, 3.143_092_785_468_561),
            (
                &[23., 24., 29., 6., 29., 24., 24., 29., 23.],
                3.0,
                83.666_666_666_666_67,
                0.218_652_155_123_701_1,
            ),
        ];
        for (values, s, variance, z) in cases {
            let trend = mann_kendall(values);
            assert_eq!(trend.s, s);
            assert!((trend.variance - variance).abs() < 1e-9, "{trend:?}");
            assert!((trend.z - z).abs() < 1e-12, "{trend:?}");
        }
    }

    #[test]
    fn a_constant_or_empty_series_has_no_trend() {
        assert_eq!(mann_kendall(&[5.0; 12]).z, 0.0);
        assert_eq!(mann_kendall(&[]).z, 0.0);
        assert_eq!(mann_kendall(&[1.0]).z, 0.0);
    }
}
