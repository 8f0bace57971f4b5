//! Sizes: plain bytes, or a number with a unit. `MiB` is 2²⁰, `MB` is 10⁶.

use crate::read::{Fault, Value, nearest};
use crate::value::number::decimal;
use crate::value::value_schema;

const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl Size {
    #[expect(clippy::cast_precision_loss, reason = "a limit above 2⁵³ bytes is no limit")]
    pub(crate) const fn float(self) -> f64 {
        self.0 as f64
    }
}

value_schema!(Size, "Size", { "type": ["integer", "string"], "minimum": 0, "examples": [0, "64 KiB", "12MiB"] });

impl Value for Size {
    const WHAT: &'static str = "a size";
    const HINT: &'static str =
        "write bytes, or a number with `KiB`, `MiB`, `GiB` (or `kB`, `MB`, `GB`): `64 KiB`";

    fn parse(text: &str) -> Result<Self, Fault> {
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = (&text[..split], text[split..].trim_start());
        if number.is_empty() {
            let negative =
                text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
            return Err(Fault::new(if negative { "negative" } else { "expected a number first" }));
        }
        let scale = scale(unit)?;
        bytes(number, scale).map(Self)
    }
}

fn scale(unit: &str) -> Result<u64, Fault> {
    if unit.is_empty() {
        return Ok(1);
    }
    UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale).ok_or_else(|| {
        let near = nearest(unit, UNITS.iter().map(|(name, _)| *name));
        Fault::new(near.map_or_else(
            || "unknown unit".to_owned(),
            |near| format!("unknown unit, did you mean `{near}`?"),
        ))
    })
}

fn bytes(number: &str, scale: u64) -> Result<u64, Fault> {
    let too_large = || Fault::new("too large");
    if number.bytes().all(|b| b.is_ascii_digit()) {
        let whole = number.parse::<u64>().map_err(|_out_of_range| too_large())?;
        return whole.checked_mul(scale).ok_or_else(too_large);
    }
    if scale == 1 {
        return Err(Fault::new("not a whole number"));
    }
    decimal(number).ok_or_else(|| Fault::new("expected a number first"))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let whole = whole
        .parse::<u64>()
        .map_err(|_out_of_range| too_large())?
        .checked_mul(scale)
        .ok_or_else(too_large)?;
    // Nobody needs more than six decimal places, and with six the product fits in 64 bits.
    if fraction.len() > 6 {
        return Err(Fault::new("more than six decimal places"));
    }
    let digits = fraction.parse::<u64>().map_err(|_out_of_range| too_large())?;
    let places = 10_u64.pow(u32::try_from(fraction.len()).unwrap_or(6));
    let part = u128::from(digits) * u128::from(scale) / u128::from(places);
    whole.checked_add(u64::try_from(part).unwrap_or(u64::MAX)).ok_or_else(too_large)
}

/// Reads bytes as they are typed: `1000000`, `1 MiB`.
///
/// # Errors
/// It is no size: why, and how to write one.
pub fn parse_size(text: &str) -> Result<u64, String> {
    Size::parse(text).map(|size| size.0).map_err(|why| format!("{}; {}", why.label, Size::HINT))
}

/// Formats bytes for people: `48.0 KiB`, `0 B`.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    let mut unit = ("B", 1);
    for candidate in &UNITS[1..5] {
        if bytes >= candidate.1 {
            unit = *candidate;
        }
    }
    if unit.1 == 1 {
        return format!("{bytes} B");
    }
    let tenths = u128::from(bytes) * 10 / u128::from(unit.1);
    format!("{}.{} {}", tenths / 10, tenths % 10, unit.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("0", 0),
            ("4096", 4096),
            ("64 KiB", 65_536),
            ("12MiB", 12 << 20),
            ("1.5 GiB", 3 << 29),
            ("0.5KiB", 512),
            ("3 MB", 3_000_000),
            ("7 B", 7),
        ] {
            assert_eq!(Size::parse(text).ok().map(|s| s.0), Some(expected), "{text}");
        }
        for (text, label) in [
            ("", "expected a number first"),
            ("KiB", "expected a number first"),
            ("-3", "negative"),
            ("- x", "expected a number first"),
            ("1.5", "not a whole number"),
            ("1..5 KiB", "expected a number first"),
            ("12 mibb", "unknown unit, did you mean `MiB`?"),
            ("12 kib", "unknown unit, did you mean `KiB`?"),
            ("5 apples", "unknown unit"),
            ("99999999 TiB", "too large"),
            ("99999999999999999999", "too large"),
            ("1.0000001 MiB", "more than six decimal places"),
        ] {
            assert_eq!(Size::parse(text).err().map(|f| f.label), Some(label.to_owned()), "{text}");
        }
    }

    #[test]
    fn sizes_are_written_with_the_largest_unit_that_fits() {
        for (bytes, expected) in [(0, "0 B"), (1023, "1023 B"), (49_152, "48.0 KiB"), (3 << 29, "1.5 GiB")] {
            assert_eq!(format_size(bytes), expected);
        }
    }
}
