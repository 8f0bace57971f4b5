//! Thins a long series, for methods that look at every pair of points.

use super::as_f64;

/// At most `keep` points of `values` with their indices, evenly spread, including the first and the last.
#[must_use]
pub fn thin(values: &[f64], keep: usize) -> Vec<(f64, f64)> {
    let point = |i: usize| (as_f64(i), values[i]);
    if values.len() <= keep {
        return (0..values.len()).map(point).collect();
    }
    match keep {
        0 => Vec::new(),
        1 => vec![point(0)],
        _ => (0..keep).map(|k| point(k * (values.len() - 1) / (keep - 1))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_both_ends_and_spreads_evenly() {
        let values: Vec<f64> = (0..11).map(as_f64).collect();
        assert_eq!(thin(&values, 3), [(0.0, 0.0), (5.0, 5.0), (10.0, 10.0)]);
        assert_eq!(thin(&values, 20).len(), 11);
        assert_eq!(thin(&values, 1), [(0.0, 0.0)]);
        assert_eq!(thin(&values, 0), []);
        assert_eq!(thin(&[], 3), []);
    }
}
