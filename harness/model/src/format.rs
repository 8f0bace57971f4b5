//! Formats figures for people: the same on the terminal, in reasons of verdicts and in every report.

use std::fmt;

use crate::metric::{Metric, Noun, Unit};

const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// Bytes with a binary unit: `0 B`, `148 B`, `0.5 B`, `48.0 KiB`, `-1.5 MiB`; `unknown` for NaN.
#[must_use]
pub fn format_bytes(bytes: f64) -> String {
    if bytes.is_nan() {
        return "unknown".to_owned();
    }
    if bytes.is_infinite() {
        return if bytes > 0.0 { "∞ B" } else { "-∞ B" }.to_owned();
    }
    let (mut amount, mut unit) = (bytes, 0);
    // 1023.95 would round to `1024.0 KiB`; whole bytes are exact up to 1023.
    while amount.abs() >= if unit == 0 { 1023.5 } else { 1023.95 } && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    let name = UNITS[unit];
    if unit == 0 { format!("{} {name}", format_count(amount)) } else { format!("{amount:.1} {name}") }
}

/// The first names of many: `a, b and 12 more`.
#[must_use]
pub fn format_list<Name: AsRef<str>>(names: &[Name], most: usize) -> String {
    let shown = names.iter().take(most).map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A count without needless decimals: `12`, `0.5`, `-3`; `unknown` for NaN.
#[must_use]
pub fn format_count(count: f64) -> String {
    if count.is_nan() {
        return "unknown".to_owned();
    }
    if count.is_infinite() {
        return if count > 0.0 { "∞" } else { "-∞" }.to_owned();
    }
    let whole = (count * 10.0).round() / 10.0;
    if whole == 0.0 && count != 0.0 {
        // A slope of 0.02 is still growth, so it is never shown as 0.
        return if count > 0.0 { "<0.1" } else { ">-0.1" }.to_owned();
    }
    if whole.fract() == 0.0 { format!("{:.0}", whole + 0.0) } else { format!("{whole:.1}") }
}

/// A value in the unit of its metric.
#[must_use]
pub fn format_value(metric: Metric, value: f64) -> String {
    match metric.unit() {
        Unit::Bytes => format_bytes(value),
        Unit::Count => format_count(value),
    }
}

/// Two sizes, before and after: in bytes if rounding would hide how they differ.
#[must_use]
pub fn format_bytes_change(before: f64, after: f64) -> (String, String) {
    let [rounded, other] = [before, after].map(format_bytes);
    let exact = |bytes: f64| format!("{} B", format_count(bytes));
    let is_hidden = rounded == other && (after - before).abs() > 0.0;
    if is_hidden { (exact(before), exact(after)) } else { (rounded, other) }
}

/// Two values of a metric, before and after.
#[must_use]
pub fn format_change(metric: Metric, before: f64, after: f64) -> (String, String) {
    match metric.unit() {
        Unit::Bytes => format_bytes_change(before, after),
        Unit::Count => (format_count(before), format_count(after)),
    }
}

/// `1 test`, `214 tests`, `3 classes`: the plural ends in `s`, or in `es` after an `s`.
#[must_use]
pub fn format_number_of<N: Copy + fmt::Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = match noun.ends_with('s') {
        _ if count == N::from(1) => "",
        true => "es",
        false => "s",
    };
    format!("{count} {noun}{plural}")
}

/// `1 descriptor`, `3 descriptors`.
#[must_use]
pub fn format_counted(count: f64, noun: &str) -> String {
    let count = format_count(count);
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// A value with the noun of its metric: `12 allocations`, `48.0 KiB`, `12.0 MiB RSS`.
#[must_use]
pub fn format_amount(metric: Metric, value: f64) -> String {
    match metric.noun() {
        Noun::Bare => format_value(metric, value),
        Noun::Things(noun) => format_counted(value, noun),
        Noun::Words(words) => format!("{} {words}", format_value(metric, value)),
    }
}

/// The first ten digits of a commit, as people see it; all of a shorter one.
#[must_use]
pub fn short_commit(sha: &str) -> &str {
    sha.get(..10).unwrap_or(sha)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a mail said that a figure rose from 14.5 KiB to 14.5 KiB.
    #[test]
    fn a_change_shows_how_the_values_differ() {
        let change = |before, after| {
            let (before, after) = format_change(Metric::NativeLiveBytes, before, after);
            format!("{before} → {after}")
        };
        assert_eq!(change(61.0, 122.0), "61 B → 122 B");
        assert_eq!(change(14_336.0, 14_848.0), "14.0 KiB → 14.5 KiB");
        assert_eq!(change(14_848.0, 14_848.0), "14.5 KiB → 14.5 KiB");
        assert_eq!(change(14_840.0, 14_872.5), "14840 B → 14872.5 B");
        assert_eq!(format_change(Metric::OsFds, 3.0, 4.0), ("3".to_owned(), "4".to_owned()));
    }

    #[test]
    fn bytes_read_as_people_write_them() {
        for (bytes, text) in [
            (0.0, "0 B"),
            (-0.0, "0 B"),
            (148.0, "148 B"),
            (0.5, "0.5 B"),
            (0.01, "<0.1 B"),
            (-0.01, ">-0.1 B"),
            (1023.0, "1023 B"),
            (1023.7, "1.0 KiB"),
            (1024.0, "1.0 KiB"),
            (49152.0, "48.0 KiB"),
            (1_048_575.0, "1.0 MiB"),
            (1_572_864.0, "1.5 MiB"),
            (-1_572_864.0, "-1.5 MiB"),
            (-12.0, "-12 B"),
            (3.0 * 1024f64.powi(3), "3.0 GiB"),
            (5000.0 * 1024f64.powi(4), "5000.0 TiB"),
            (f64::NAN, "unknown"),
            (f64::INFINITY, "∞ B"),
            (f64::NEG_INFINITY, "-∞ B"),
        ] {
            assert_eq!(format_bytes(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn counts_keep_a_decimal_only_where_it_says_something() {
        for (count, text) in [
            (0.0, "0"),
            (12.0, "12"),
            (0.5, "0.5"),
            (11.99, "12"),
            (-3.0, "-3"),
            (0.02, "<0.1"),
            (f64::NAN, "unknown"),
        ] {
            assert_eq!(format_count(count), text, "{count}");
        }
        assert_eq!(format_value(Metric::OsFds, 2.0), "2");
        assert_eq!(format_value(Metric::OsRss, 2048.0), "2.0 KiB");
    }

    #[test]
    fn amounts_have_the_noun_of_their_metric() {
        for (metric, value, text) in [
            (Metric::NativeLiveBytes, 49152.0, "48.0 KiB"),
            (Metric::NativeLiveAllocations, 1.0, "1 allocation"),
            (Metric::NativeLiveAllocations, 0.5, "0.5 allocations"),
            (Metric::OsThreads, 2.0, "2 threads"),
            (Metric::OsFds, 1.0, "1 descriptor"),
            (Metric::OsRss, 1.0, "1 B RSS"),
            (Metric::JavaLiveBytes, 2048.0, "2.0 KiB of Java objects"),
            (Metric::JavaThreads, 2.0, "2 Java threads"),
            (Metric::JavaClassesLoaded, 2.0, "2 more of loaded classes"),
        ] {
            assert_eq!(format_amount(metric, value), text);
        }
    }
}
