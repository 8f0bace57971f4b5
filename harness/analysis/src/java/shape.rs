//! Shapes of the series of a class: rises, low points, usual steps. No decisions.

use super::series::ClassSeries;
use crate::stats::as_f64;

/// Growth must be flat for at least this many iterations to count as stalled.
const STALLED: usize = 6;
/// Fewer steps than this may be accidents. For example, classes are loaded, or arrays of them are made, when the
/// compiler reaches them; or classes are made that specialise a method handle after many calls.
pub(super) const FEW_STEPS: usize = 4;
/// Share of equal steps in a series that makes them the usual step.
const USUAL_SHARE: f64 = 0.5;
/// Largest rise between low points of a series that gives back what it adds, as a share of its steps.
const LEFT_AT_LOWS: f64 = 0.05;
/// Smallest number of low points for a decision.
const LOW_POINTS: usize = 3;
/// Strings that a compiler resolves come irregularly. The series of a leak stays this near to its line, as a share of
/// its slope.
const REGULAR_SHARE: f64 = 0.25;

pub(super) fn rises_each_time(values: &[f64], warm_up: usize) -> bool {
    let counted = values.get(warm_up..).unwrap_or_default();
    counted.len() > 1 && counted.windows(2).all(|pair| pair[1] > pair[0])
}

/// How much higher the last end is than the end of the warm-up.
pub(super) fn rise(values: &[f64], warm_up: usize) -> f64 {
    values.last().zip(values.get(warm_up)).map_or(0.0, |(last, first)| last - first)
}

pub(super) fn grew(values: &[f64]) -> f64 {
    (values.last().unwrap_or(&0.0) - values.first().unwrap_or(&0.0)).max(0.0)
}

/// Ends since the last new high of the class. Those of the warm-up, which load classes and free memory, are ignored.
pub(super) fn quiet(series: &ClassSeries, warm_up: usize) -> usize {
    let since_high = |values: &[f64]| {
        let mut high = warm_up.min(values.len().saturating_sub(1));
        for (i, value) in values.iter().enumerate().skip(high) {
            if *value > values[high] {
                high = i;
            }
        }
        values.len() - high
    };
    since_high(&series.instances).min(since_high(&series.bytes))
}

/// True if the series grew and has since been flat for more than twice as long as ever between two rises. So it filled
/// late, like keys that are cached on first use. A table that doubles is flat for twice as long each time.
pub(super) fn has_stalled(values: &[f64], warm_up: usize) -> bool {
    let Some((&first, counted)) = values.get(warm_up..).and_then(<[f64]>::split_first) else { return false };
    let (mut high, mut last, mut longest) = (first, None, 0);
    for (i, value) in counted.iter().enumerate().filter(|(_, value)| **value > first) {
        if *value > high {
            longest = last.map_or(longest, |last| longest.max(i - last));
            (high, last) = (*value, Some(i));
        }
    }
    let flat = last.map_or(0, |last| counted.len() - 1 - last);
    longest > 0 && flat >= STALLED && flat > 2 * longest
}

/// Rise of the low points of a series that adds the same in most iterations and gives all of it back from time to time,
/// such as entries that expire after a second. `None`: it keeps what it adds.
pub(super) fn rise_of_lows(values: &[f64], warm_up: usize) -> Option<f64> {
    let step = usual_step(values.get(warm_up..)?)?;
    let is_low = |at: usize| {
        let next = values.get(at + 1).copied().unwrap_or(f64::INFINITY);
        at > 0 && values[at] < values[at - 1] && values[at] <= next
    };
    let late = warm_up.max(values.len() * 45 / 100);
    let lows: Vec<usize> = (late..values.len()).filter(|at| is_low(*at)).collect();
    let (first, last) = (*lows.first()?, *lows.last()?);
    let rise = values[last] - values[first];
    (lows.len() >= LOW_POINTS && rise <= LEFT_AT_LOWS * step * as_f64(last - first)).then_some(rise)
}

/// True if the series falls again and again, and its low points no longer rise: what it adds is given back some time
/// later. For example, the threads of the JDK's HTTP client end up to three seconds after nobody uses the client.
pub(super) fn gives_back(values: &[f64], warm_up: usize) -> bool {
    let counted = values.get(warm_up..).unwrap_or_default();
    let (earlier, last) = counted.split_at(counted.len() / 3 * 2);
    let before = earlier.get(earlier.len() / 2..).unwrap_or_default();
    let falls = |part: &[f64]| part.windows(2).filter(|pair| pair[1] < pair[0]).count();
    let low = |part: &[f64]| part.iter().copied().fold(f64::INFINITY, f64::min);
    falls(before).min(falls(last)) >= LOW_POINTS && low(last) <= low(before)
}

/// The usual step of an iteration: the one that at least half of them take. `None`: there is none, so the slope is
/// used. The usual step is exact where noise of the virtual machine is added to a leak now and then. The noise is then
/// removed from the values.
pub(super) fn usual(values: &mut [f64], warm_up: usize) -> Option<f64> {
    let counted = values.get_mut(warm_up..).unwrap_or_default();
    let step = usual_step(counted)?;
    let from = counted.first().copied().unwrap_or(0.0);
    counted.iter_mut().enumerate().for_each(|(i, value)| *value = from + step * as_f64(i));
    Some(step)
}

/// The step of at least half of the iterations.
fn usual_step(values: &[f64]) -> Option<f64> {
    let mut steps: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.sort_by(f64::total_cmp);
    let middle = *steps.get(steps.len() / 2)?;
    let same = steps.iter().filter(|step| **step == middle).count();
    (middle > 0.0 && as_f64(same) >= as_f64(steps.len()) * USUAL_SHARE).then_some(middle)
}

/// The bytes that each execution adds to one array, which replaces the one before it. Sizes are aligned, so steps of
/// one array differ by up to `alignment`: 100 more elements are 96 or 104 B. `None`: at most half of the steps are
/// alike.
pub(super) fn usual_enlargement(values: &[f64], warm_up: usize, alignment: f64) -> Option<f64> {
    let counted = values.get(warm_up..).unwrap_or_default();
    let mut steps: Vec<f64> = counted.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.sort_by(f64::total_cmp);
    let middle = *steps.get(steps.len() / 2)?;
    let alike: Vec<f64> =
        steps.iter().copied().filter(|step| *step > 0.0 && (step - middle).abs() <= alignment).collect();
    let are_many = middle > 0.0 && as_f64(alike.len()) > as_f64(steps.len()) * USUAL_SHARE;
    are_many.then(|| alike.iter().sum::<f64>() / as_f64(alike.len()))
}

/// Does the series stay near its line?
pub(super) fn is_regular(values: &[f64], slope: f64, warm_up: usize) -> bool {
    let counted = values.get(warm_up..).unwrap_or_default();
    let mut rests: Vec<f64> =
        counted.iter().enumerate().map(|(i, value)| value - slope * as_f64(i)).collect();
    rests.sort_by(f64::total_cmp);
    let spread = rests.last().unwrap_or(&0.0) - rests.first().unwrap_or(&0.0);
    spread <= 1.0 + 2.0 * REGULAR_SHARE * slope
}

/// `ThreadLocal$ThreadLocalMap$Entry[]` of JDK 17's HTTP clients that nobody closed: the ends of 98 executions.
#[cfg(test)]
pub(super) const OF_HTTP_CLIENTS: [u8; 98] = [
    5, 5, 7, 10, 13, 15, 17, 19, 20, 22, 25, 27, 29, 32, 32, 35, 35, 35, 34, 34, 34, 37, 37, 40, 42, 39, 40,
    39, 39, 42, 42, 44, 43, 40, 41, 40, 39, 36, 37, 36, 36, 35, 38, 41, 42, 42, 39, 39, 40, 40, 38, 36, 36,
    35, 36, 38, 40, 36, 33, 35, 35, 37, 39, 40, 37, 40, 39, 38, 39, 40, 40, 40, 43, 43, 34, 31, 34, 35, 35,
    35, 37, 37, 37, 40, 40, 40, 41, 44, 40, 40, 42, 42, 42, 45, 48, 50, 43, 38,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_step_is_exact_below_noise() {
        let series = |steps: &[f64]| {
            let mut sum = 0.0;
            steps
                .iter()
                .map(|step| {
                    sum += step;
                    sum
                })
                .collect::<Vec<f64>>()
        };
        for (steps, expected) in [
            (&[12.0; 12][..], Some(12.0)),
            (&[50.0, 9.0, 0.0, 12.0, 12.0, 14.0, 12.0, 12.0, 13.0, 12.0], Some(12.0)),
            (&[0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0], None),
            (&[3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0], None),
            (&[], None),
        ] {
            let before = series(steps);
            let mut values = before.clone();
            assert_eq!(usual(&mut values, 3), expected, "{steps:?}");
            match expected {
                Some(step) => {
                    let straight = values.iter().skip(3).zip(values.iter().skip(4));
                    assert!(straight.clone().all(|(a, b)| b - a == step), "{values:?}");
                }
                None => assert_eq!(values, before),
            }
        }
    }

    #[test]
    fn an_array_grows_by_aligned_steps() {
        let of = |steps: &[f64]| {
            let sum = |sum: &mut f64, step: &f64| {
                *sum += step;
                Some(*sum)
            };
            let values: Vec<f64> = std::iter::once(0.0).chain(steps.iter().scan(0.0, sum)).collect();
            usual_enlargement(&values, 0, 8.0)
        };
        let hundred: Vec<f64> = (0..40).map(|i| [104.0, 96.0][i % 2]).collect();
        assert_eq!(of(&hundred), Some(100.0));
        let literals = |i: usize, step: &f64| step + [0.0, 0.0, 24.0, 0.0, 72.0][i % 5];
        let beside: Vec<f64> = hundred.iter().enumerate().map(|(i, step)| literals(i, step)).collect();
        assert_eq!(of(&beside), Some(100.0), "literals come beside it");
        let alone: Vec<f64> = (0..40).map(|i| literals(i, &0.0)).collect();
        assert_eq!(of(&alone), None);
        assert_eq!(
            of(&[24.0, 56.0, 0.0, 112.0, 40.0, 0.0, 24.0, 80.0, 32.0]),
            None,
            "literals of any length"
        );
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn low_points_tell_what_is_given_back() {
        let of = |n: usize, at: &dyn Fn(usize) -> usize| {
            rise_of_lows(&(0..n).map(|i| as_f64(at(i))).collect::<Vec<_>>(), 3)
        };
        for n in 71..200 {
            assert_eq!(of(n, &|i| 40 + i % 8), Some(0.0), "{n}");
            let leaks: [&dyn Fn(usize) -> usize; 5] =
                [&|i| 12 * i, &|i| i % 8 + i / 8, &|i| 2 * i - i % 8, &|i| i % 8 + i, &|i| {
                    3 * i + 40 * usize::from(i % 7 == 0)
                }];
            for (which, leak) in leaks.iter().enumerate() {
                assert_eq!(of(n, leak), None, "{which}, {n}");
            }
        }
        assert_eq!(of(20, &|i| 40 + i % 8), None, "too few");
        assert_eq!(of(0, &|i| i), None);
    }

    #[test]
    fn what_is_given_back_irregularly_is_no_certain_leak() {
        let of = |added: &dyn Fn(usize) -> usize| {
            let values = OF_HTTP_CLIENTS.iter().enumerate();
            let values: Vec<f64> = values.map(|(i, value)| f64::from(*value) + as_f64(added(i))).collect();
            gives_back(&values, 3)
        };
        assert!(of(&|_| 0));
        assert!(!of(&|i| i), "and a leak");
        assert!(!of(&|i| i / 5), "and a leak that comes with each fifth execution");
        let shapes: [&dyn Fn(usize) -> usize; 6] =
            [&|i| 12 * i, &|i| i / 5, &|i| i % 8 + i / 8, &|i| 2 * i - i % 8, &|i| i.min(40), &|i| {
                i.next_power_of_two()
            }];
        for (which, shape) in shapes.iter().enumerate() {
            for n in 0..200 {
                let values: Vec<f64> = (0..n).map(|i| as_f64(shape(i))).collect();
                assert!(!gives_back(&values, 3), "{which}, {n}");
            }
        }
    }

    #[test]
    fn what_filled_late_has_stalled_and_no_leak_has() {
        let of =
            |n: usize, at: &dyn Fn(usize) -> usize| -> Vec<f64> { (0..n).map(|i| as_f64(at(i))).collect() };
        let filled_late = |i: usize| 5 * i.saturating_sub(21).min(8);
        assert!(has_stalled(&of(38, &filled_late), 3));
        assert!(!has_stalled(&of(33, &filled_late), 3), "it may go on");
        let leaks: [&dyn Fn(usize) -> usize; 4] =
            [&|i| 12 * i, &|i| i / 5, &|i| 3 * i + i % 2, &|i| 64 * i.next_power_of_two()];
        for (which, leak) in leaks.iter().enumerate() {
            for n in 13..200 {
                assert!(!has_stalled(&of(n, leak), 3), "{which}, {n}");
            }
        }
        assert!(!has_stalled(&[], 3));
    }

    #[test]
    fn strings_that_come_now_and_then_are_not_regular() {
        let regular: Vec<f64> = (0..20).map(|i| 2.0 * as_f64(i)).collect();
        assert!(is_regular(&regular, 2.0, 3));
        let third: Vec<f64> = (0..20).map(|i| as_f64(i / 3)).collect();
        assert!(is_regular(&third, 1.0 / 3.0, 3));
        let mut sum = 0.0;
        let noise: Vec<f64> = [2, 0, 5, 1, 6, 0, 0, 3, 1, 6, 0, 4, 0, 0, 1, 5]
            .iter()
            .map(|step| {
                sum += f64::from(*step);
                sum
            })
            .collect();
        assert!(!is_regular(&noise, 2.0, 3));
    }
}
