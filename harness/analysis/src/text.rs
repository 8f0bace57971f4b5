//! Figures as a person reads them.

use std::collections::BTreeSet;

use memgate_model::Unit;

/// `0 B`, `160 B`, `48.0 KiB`, `1.2 MiB`; a fraction of a byte keeps one digit.
pub(crate) fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes.abs() < 1024.0 {
        return format!("{} B", number(bytes));
    }
    let mut scaled = bytes / 1024.0;
    let mut unit = 0;
    while scaled.abs() >= 1023.95 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

/// A whole number without a fraction, any other with one digit (two below one).
pub(crate) fn number(value: f64) -> String {
    let rounded = value.round();
    if (value - rounded).abs() < 1e-9 {
        format!("{}", if rounded == 0.0 { 0.0 } else { rounded })
    } else if value.abs() < 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.1}")
    }
}

/// A value in its unit.
pub(crate) fn figure(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => bytes(value),
        Unit::Count => number(value),
    }
}

/// `1 descriptor`, `3 descriptors`.
pub(crate) fn counted(count: f64, noun: &str) -> String {
    let plural = if number(count) == "1" { "" } else { "s" };
    format!("{} {noun}{plural}", number(count))
}

/// The sizes of the allocations of a group. Of many different ones only that they differ matters.
pub(crate) type Sizes = BTreeSet<u64>;

/// What a group holds in all: `12 × 4096 B`, or `12 allocations, 1.2 KiB`.
pub(crate) fn title_in_all(count: f64, total: f64, sizes: &Sizes) -> String {
    match one(sizes) {
        Some(size) => format!("{} × {size} B", number(count)),
        None => format!("{}, {}", counted(count, "allocation"), bytes(total)),
    }
}

/// What one iteration adds to a group.
pub(crate) fn title_per_iteration(count: f64, added: f64, sizes: &Sizes) -> String {
    match one(sizes) {
        _ if count < 1e-9 => format!("growing allocation, {} more per iteration", bytes(added)),
        Some(size) if count < 0.95 => {
            format!("1 × {size} B every {} iterations", number(round_near(1.0 / count)))
        }
        _ => title_in_all(round_near(count), added, sizes),
    }
}

fn one(sizes: &Sizes) -> Option<u64> {
    sizes.first().copied().filter(|_| sizes.len() == 1)
}

/// A robust slope of steps is a little off the whole number it stands for.
fn round_near(value: f64) -> f64 {
    if (value - value.round()).abs() < 0.05 { value.round() } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        let cases = [
            (0.0, "0 B"),
            (-0.0, "0 B"),
            (160.0, "160 B"),
            (12.333, "12.3 B"),
            (0.25, "0.25 B"),
            (1023.0, "1023 B"),
            (49152.0, "48.0 KiB"),
            (1024.0 * 1024.0, "1.0 MiB"),
            (1024.0 * 1024.0 - 1.0, "1.0 MiB"),
            (1.3 * 1024.0 * 1024.0 * 1024.0, "1.3 GiB"),
            (-2048.0, "-2.0 KiB"),
        ];
        for (value, expected) in cases {
            assert_eq!(bytes(value), expected);
        }
    }

    #[test]
    fn titles_name_equal_sizes_and_sum_up_others() {
        let equal = Sizes::from([4096]);
        let different = Sizes::from([16, 24]);
        assert_eq!(title_in_all(12.0, 49152.0, &equal), "12 × 4096 B");
        assert_eq!(title_in_all(12.0, 1229.0, &different), "12 allocations, 1.2 KiB");
        assert_eq!(title_in_all(1.0, 16.0, &Sizes::new()), "1 allocation, 16 B");
        assert_eq!(title_per_iteration(12.0, 49152.0, &equal), "12 × 4096 B");
        assert_eq!(title_per_iteration(0.3333, 1365.0, &equal), "1 × 4096 B every 3 iterations");
        assert_eq!(title_per_iteration(0.0, 64.0, &different), "growing allocation, 64 B more per iteration");
        assert_eq!(title_per_iteration(2.5, 40.0, &different), "2.5 allocations, 40 B");
    }
}
