//! Variance of Kendall's S for a series without a trend. (Mann 1945, Kendall 1975.)

/// Variance of Kendall's S for `values` against a second variable with the values `against` (empty: no ties).
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

    /// `var_s` of `pymannkendall.original_test(y)` (1.4.3).
    #[test]
    fn agrees_with_pymannkendall() {
        let cases: [(&[f64], f64); 3] = [
            (&[0., 0., 1., 1., 1., 2., 2., 2., 3., 3.], 115.666_666_666_666_67),
            (&[10., 22., 21., 30., 32., 34., 30., 45., 48., 47.], 124.0),
            (&[23., 24., 29., 6., 29., 24., 24., 29., 23.], 83.666_666_666_666_67),
        ];
        for (values, variance) in cases {
            assert!((kendall_variance(values, &[]) - variance).abs() < 1e-9, "{values:?}");
        }
    }

    #[test]
    fn the_variance_of_a_constant_or_empty_series_is_0() {
        for values in [&[5.0; 12][..], &[], &[1.0]] {
            assert_eq!(kendall_variance(values, &[]), 0.0, "{values:?}");
        }
    }
}
