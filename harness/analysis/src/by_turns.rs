//! Growth that no single place explains: a vector that several functions enlarge by turns.
//!
//! Whoever enlarges it last has allocated all of it. So each place comes and goes, and only their sum grows. Data flow:
//! the series of the places → those that do not grow by themselves → if their sum grows, the places with a share in it.

/// A place belongs to the growth if it once rose by this share of the rise of the place that rose most. A vector that
/// doubles had an eighth of its size three steps ago.
const SHARE: f64 = 1.0 / 8.0;

/// The indexes of the series that grow only together; none, or at least two.
pub(crate) fn by_turns(all: &[&[f64]], warm_up: usize, grows: impl Fn(&[f64]) -> bool) -> Vec<usize> {
    // Most suspects end here, and may have thousands of places.
    if !grows(&sum(all, &(0..all.len()).collect::<Vec<_>>())) {
        return Vec::new();
    }
    let alone: Vec<usize> = (0..all.len()).filter(|i| !grows(all[*i])).collect();
    let rise = |i: &usize| {
        let counted = all[*i].get(warm_up..).unwrap_or_default();
        let first = counted.first().copied().unwrap_or_default();
        counted.iter().map(|value| value - first).fold(0.0, f64::max)
    };
    let most = alone.iter().map(rise).fold(0.0, f64::max);
    let at_least = |least: f64| -> Vec<usize> {
        alone.iter().copied().filter(|i| rise(i) > 0.0 && rise(i) >= least).collect()
    };
    let comes_and_goes = |i: &usize| {
        let counted = all[*i].get(warm_up..).unwrap_or_default();
        counted.windows(2).any(|step| step[1] < step[0])
    };
    let explain = |places: &Vec<usize>| places.len() > 1 && grows(&sum(all, places));
    if !explain(&alone) {
        return Vec::new();
    }
    let large = at_least(SHARE * most);
    // A place that only rises may be a rare leak of its own: it belongs here only if the others do not explain all.
    let by_turns = large.iter().copied().filter(comes_and_goes).collect();
    [by_turns, large, at_least(0.0)].into_iter().find(explain).unwrap_or_default()
}

fn sum(all: &[&[f64]], of: &[usize]) -> Vec<f64> {
    let length = all.first().map_or(0, |values| values.len());
    (0..length).map(|at| of.iter().map(|i| all[*i][at]).sum()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growth::{Allowed, Finding, judge_exact};
    use crate::stats::as_f64;

    fn found(all: &[&dyn Fn(usize) -> f64]) -> Vec<usize> {
        let allowed = Allowed { limit: 0.0, block: 0.0, warm_up: 3, confidence: 0.99 };
        let all: Vec<Vec<f64>> = all.iter().map(|at| (1..=1000).map(at).collect()).collect();
        let all: Vec<&[f64]> = all.iter().map(Vec::as_slice).collect();
        by_turns(&all, 3, |values| judge_exact(values, allowed).finding == Finding::Grows)
    }

    /// What place `own` of `places` holds of a vector that doubles.
    fn share(own: u32, places: u32) -> impl Fn(usize) -> f64 {
        move |i| {
            let doubled = i.next_power_of_two();
            if doubled.trailing_zeros() % places == own { 4.0 * as_f64(doubled) } else { 0.0 }
        }
    }

    #[test]
    fn places_that_enlarge_one_vector_by_turns_grow_together() {
        let (a, b, c) = (share(0, 3), share(1, 3), share(2, 3));
        let toggles = |i: usize| as_f64(40 * (i % 2));
        let leaks = |i: usize| as_f64(8 * i);
        let once = |i: usize| if i > 1 { 64.0 } else { 0.0 };
        assert_eq!(found(&[&toggles, &a, &leaks, &b, &once, &c]), [1, 3, 5]);
        let rare = |i: usize| 2048.0 * as_f64(usize::from(i > 300) + usize::from(i > 700));
        assert_eq!(found(&[&a, &rare, &b, &c]), [0, 2, 3], "a rare leak is not of the vector");
        assert_eq!(found(&[&toggles, &leaks, &once]), [0; 0]);
        assert_eq!(found(&[&toggles, &leaks]), [0; 0]);
        // Each place leaks once.
        let step = |at: usize| move |i: usize| if i >= at { 48.0 } else { 0.0 };
        let steps: Vec<_> = (0..1000).map(step).collect();
        let steps: Vec<&dyn Fn(usize) -> f64> = steps.iter().map(|it| it as &dyn Fn(usize) -> f64).collect();
        assert!(found(&steps).len() > 900);
    }
}
