//! Whole numbers, and shares of one (`0.99`, `99%`).

use crate::read::{Fault, Value};
use crate::value::value_schema;

/// A whole number from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) u32);

value_schema!(Count, "Count", { "type": ["integer", "string"], "minimum": 0 });

impl Value for Count {
    const WHAT: &'static str = "a whole number";
    const HINT: &'static str = "write digits only, such as `10`";

    fn parse(text: &str) -> Result<Self, Fault> {
        if text.starts_with('-') && decimal(text.trim_start_matches('-')).is_some() {
            return Err(Fault::new("negative"));
        }
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Fault::new("expected digits"));
        }
        text.parse().map(Self).map_err(|_out_of_range| Fault::new("too large"))
    }
}

/// A share of one, between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Share(pub(crate) f64);

value_schema!(Share, "Share", { "type": ["number", "string"], "examples": [0.99, "99%"] });

impl Value for Share {
    const WHAT: &'static str = "a share between 0 and 1";
    const HINT: &'static str = "write `0.99` or `99%`";

    fn parse(text: &str) -> Result<Self, Fault> {
        let (number, scale) = match text.strip_suffix('%') {
            Some(number) => (number.trim_end(), 100.0),
            None => (text, 1.0),
        };
        let share = decimal(number).ok_or_else(|| Fault::new("expected a number"))? / scale;
        if share > 1.0 { Err(Fault::new("more than 1")) } else { Ok(Self(share)) }
    }
}

/// `12` or `12.5`: digits with at most one point. Other texts that `f64` parses (`inf`, `1e9`) are refused.
pub(crate) fn decimal(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(|c: char| c.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        for (text, expected) in [("0", Some(0)), ("10", Some(10)), ("4294967295", Some(u32::MAX))] {
            assert_eq!(Count::parse(text).ok().map(|c| c.0), expected, "{text}");
        }
        for (text, label) in [
            ("", "expected digits"),
            ("ten", "expected digits"),
            ("1.5", "expected digits"),
            ("-3", "negative"),
            ("+3", "expected digits"),
            ("4294967296", "too large"),
        ] {
            assert_eq!(Count::parse(text).err().map(|f| f.label), Some(label.to_owned()), "{text}");
        }
    }

    #[test]
    fn shares() {
        for (text, expected) in [("0.99", 0.99), ("99%", 0.99), ("99.5 %", 0.995), ("1", 1.0)] {
            assert_eq!(Share::parse(text).ok().map(|s| s.0), Some(expected), "{text}");
        }
        for text in ["99", "-0.5", "nan", "inf", "1e-3", "", "%", ".5", "0,99"] {
            assert!(Share::parse(text).is_err(), "{text}");
        }
    }
}
