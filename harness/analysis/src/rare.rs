//! Leaks that do not happen in every execution: how certain is it that there is none, after a number of executions
//! without one?
//!
//! A leak that happens by chance in one of `k` executions is missed by `n` executions with probability (1 − 1/k)ⁿ. One
//! that happens in every `k`-th is certain to show once `n` is `k`. So this file assumes the random leak.

use memgate_model::format_number_of;

use crate::stats::as_f64;

/// Accepted probability of missing a leak.
const MISSED: f64 = 0.01;

/// Executions after which a leak in one of `k` has shown, with a probability of 99 %.
pub(crate) fn executions_for(k: u32) -> usize {
    let leaks = 1.0 / f64::from(k.max(1));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates; k is a u32")]
    let executions = (MISSED.ln() / (-leaks).ln_1p()).ceil() as usize;
    executions.max(1)
}

/// The rarest leak, as one in so many executions, that has shown with a probability of 99 %. 0: no leak would have
/// shown.
pub(crate) fn rarest_after(executions: usize) -> u32 {
    if executions == 0 {
        return 0;
    }
    let leaks = -(MISSED.ln() / as_f64(executions)).exp_m1();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    let k = (1.0 / leaks).floor() as u32;
    k.max(1)
}

/// Something happened in `steps` of `among` executions. Is it unlikely that it then does not happen in `quiet` more?
pub(crate) fn is_improbable(quiet: usize, steps: usize, among: usize) -> bool {
    let stays_away = 1.0 - as_f64(steps) / as_f64(among.max(1));
    as_f64(quiet) * stays_away.max(0.0).ln() <= MISSED.ln()
}

/// Executions in a row that left nothing permanent: the longest stretch of ends whose last value is not above its
/// first.
pub(crate) fn quiet_executions(values: &[f64]) -> usize {
    let mut lowest_from = values.to_vec();
    for i in (1..values.len()).rev() {
        lowest_from[i - 1] = lowest_from[i - 1].min(lowest_from[i]);
    }
    let (mut longest, mut to, mut highest) = (0, 0, f64::NEG_INFINITY);
    for (from, value) in values.iter().enumerate() {
        // A stretch from a lower value ends no later than one from the highest before it.
        if *value <= highest {
            continue;
        }
        highest = *value;
        while lowest_from.get(to).is_some_and(|lowest| *lowest <= highest) {
            to += 1;
        }
        longest = longest.max(to.saturating_sub(from + 1));
    }
    longest
}

/// `nothing more in 90 executions: a leak in one of 20 would have been missed with 1 % at most`.
pub(crate) fn seen(executions: usize) -> String {
    let nothing = format!("nothing more in {}", format_number_of(executions, "execution"));
    match rarest_after(executions) {
        0 => "it ran only once".to_owned(),
        1 => format!("{nothing}: only a leak in each of them would have shown"),
        k => format!("{nothing}: a leak in one of {k} would have been missed with 1 % at most"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_in_one_of_k_executions_is_missed_with_one_percent() {
        for (k, executions) in [(0, 1), (1, 1), (2, 7), (3, 12), (5, 21), (10, 44), (20, 90), (100, 459)] {
            assert_eq!(executions_for(k), executions, "{k}");
            assert!((1.0 - 1.0 / f64::from(k.max(1))).powf(as_f64(executions)) <= MISSED);
            assert_eq!(rarest_after(executions), k.max(1), "what was asked for is what is told");
            assert!(rarest_after(executions - 1) < k.max(1), "{k}");
        }
        assert_eq!((rarest_after(6), rarest_after(11)), (1, 2));
        assert!(executions_for(u32::MAX) > 1_000_000_000);
    }

    #[test]
    fn a_silence_that_the_steps_before_it_do_not_explain_is_improbable() {
        // (quiet, steps, among)
        for (quiet, steps, among, improbable) in [
            (1, 80, 80, true),  // a cache was filled by every execution, and is full
            (27, 3, 22, false), // a leak in one of seven pauses for this long in 2 of 100 cases
            (34, 3, 22, true),
            (40, 1, 10, false),
            (44, 1, 10, true),
            (0, 1, 1, false),
            (0, 1, 2, false),
        ] {
            assert_eq!(is_improbable(quiet, steps, among), improbable, "{quiet} {steps} {among}");
        }
    }

    #[test]
    fn executions_that_left_nothing_are_counted() {
        for (values, executions) in [
            (&[][..], 0),
            (&[5.0], 0),
            (&[5.0, 5.0], 1),
            (&[5.0, 5.0, 5.0, 5.0], 3),
            (&[1.0, 2.0, 3.0], 0),
            (&[1.0, 2.0, 2.0, 2.0, 3.0, 3.0], 2),
            (&[0.0, 7.0, 0.0, 7.0, 0.0], 4), // toggles
            (&[1.0, 9.0, 2.0, 8.0], 2),
            (&[9.0, 8.0, 7.0], 2),
        ] {
            assert_eq!(quiet_executions(values), executions, "{values:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn the_longest_stretch_is_found(values in proptest::collection::vec(0_u8..9, 0..30)) {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let stretches = (0..values.len()).flat_map(|from| (from..values.len()).map(move |to| (from, to)));
            let longest = stretches.filter(|&(from, to)| values[to] <= values[from]).map(|(from, to)| to - from).max();
            proptest::prop_assert_eq!(quiet_executions(&values), longest.unwrap_or(0));
        }
    }
}
