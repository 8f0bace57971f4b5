//! Durations: one or more numbers with units, from the largest unit to the smallest.

use std::time::Duration;

use crate::read::{Fault, Value};
use crate::value::value_schema;

const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
/// Longer than any test: a longer duration is a typing mistake.
const LONGEST_MS: u64 = 30 * 24 * 3_600_000;

/// A span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Duration);

value_schema!(Time, "Duration", { "type": "string", "examples": ["250ms", "60s", "5m", "1m 30s"] });

impl Value for Time {
    const WHAT: &'static str = "a duration";
    const HINT: &'static str = "write a number with `ms`, `s`, `m` or `h`: `250ms`, `60s`, `1m 30s`";

    fn parse(text: &str) -> Result<Self, Fault> {
        let mut total_ms = 0_u64;
        let mut rest = text;
        let mut larger_than = u64::MAX;
        if rest.starts_with('-') {
            return Err(Fault::new("negative"));
        }
        loop {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let number = rest[..digits].parse::<u64>();
            rest = rest[digits..].trim_start();
            let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
            let unit = UNITS.iter().find(|(name, _)| *name == &rest[..letters]);
            let (number, unit_ms) = match (number, unit) {
                (Ok(number), Some((_, unit_ms))) => (number, *unit_ms),
                (Ok(_), None) if letters == 0 && rest.is_empty() => return Err(Fault::new("without a unit")),
                (Ok(_), None) => return Err(Fault::new("unknown unit")),
                (Err(_), _) if digits > 0 => return Err(Fault::new("too long")),
                (Err(_), _) => return Err(Fault::new("expected a whole number first")),
            };
            if unit_ms >= larger_than {
                return Err(Fault::new("units must go from large to small"));
            }
            larger_than = unit_ms;
            total_ms = number
                .checked_mul(unit_ms)
                .and_then(|ms| total_ms.checked_add(ms))
                .filter(|ms| *ms <= LONGEST_MS)
                .ok_or_else(|| Fault::new("longer than 30 days"))?;
            rest = rest[letters..].trim_start();
            if rest.is_empty() {
                return Ok(Self(Duration::from_millis(total_ms)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ms) in [
            ("250ms", 250),
            ("60s", 60_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("1m 30s", 90_000),
            ("1m30s", 90_000),
            ("0s", 0),
        ] {
            assert_eq!(Time::parse(text).ok(), Some(Time(Duration::from_millis(ms))), "{text}");
        }
        for (text, label) in [
            ("60", "without a unit"),
            ("", "expected a whole number first"),
            ("s", "expected a whole number first"),
            ("1.5s", "unknown unit"),
            ("5 min", "unknown unit"),
            ("-5s", "negative"),
            ("30s 1m", "units must go from large to small"),
            ("9999h", "longer than 30 days"),
            ("99999999999999999999s", "too long"),
        ] {
            assert_eq!(Time::parse(text).err().map(|f| f.label), Some(label.to_owned()), "{text}");
        }
    }
}
