//! Computes how many bytes a sampled object represents.

/// 1 - e^-x, for x from 0 to 32. Avoids linking libm into the guest.
fn chance(x: f64) -> f64 {
    // The series of 1 - e^-y for a y of at most 1/16, then 1 - e^-2y from it, nine times.
    const HALVINGS: i32 = 9;
    let y = x / f64::from(1 << HALVINGS);
    let small = y * (1.0 - y / 2.0 * (1.0 - y / 3.0 * (1.0 - y / 4.0 * (1.0 - y / 5.0))));
    (0..HALVINGS).fold(small, |part, _| part * (2.0 - part))
}

/// The bytes that a sampled object represents: its own bytes divided by the chance that it was sampled.
pub(crate) fn weight(bytes: u64, interval: u32) -> u64 {
    let (size, mean) = (u32::try_from(bytes).map_or(f64::from(u32::MAX), f64::from), f64::from(interval));
    if interval == 0 || size >= 32.0 * mean {
        return bytes;
    }
    let stands_for = size / chance(size / mean);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between the interval and 32 of it"
    )]
    let stands_for = (stands_for + 0.5) as u64;
    stands_for.max(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_is_that_of_the_mathematics() {
        for x in [1e-9_f64, 1e-4, 0.03, 0.5, 1.0, 3.0, 12.0, 31.9] {
            let exact = -(-x).exp_m1();
            assert!((chance(x) / exact - 1.0).abs() < 1e-6, "{x}: {} and {exact}", chance(x));
        }
    }

    #[test]
    fn an_object_stands_for_the_interval_or_for_itself() {
        assert_eq!(weight(16, 524_288), 524_296);
        assert_eq!(weight(1 << 30, 524_288), 1 << 30);
        assert_eq!(weight(100, 0), 100);
    }
}
