//! The figure of a threshold: a size or a number, absolute or relative to the baseline.

use crate::read::{Fault, Value};
use crate::value::number::decimal;
use crate::value::size::Size;
use crate::value::value_schema;

/// A figure whose meaning depends on the metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Amount {
    /// Written with `+`: added to the baseline.
    pub(crate) added: bool,
    pub(crate) quantity: Quantity,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Quantity {
    /// A number without a unit: bytes or a count.
    Number(u64),
    /// With a unit: bytes.
    Size(u64),
    Percent(f64),
}

value_schema!(Amount, "Amount", {
    "type": ["integer", "string"], "minimum": 0, "examples": [0, "64 KiB", "+10%", "+2 MiB"]
});

impl Value for Amount {
    const WHAT: &'static str = "a limit";
    const HINT: &'static str =
        "write a number (`2`), a size (`64 KiB`), or with `against: baseline` also `+10%`";

    fn parse(text: &str) -> Result<Self, Fault> {
        let (added, text) = match text.strip_prefix('+') {
            Some(rest) => (true, rest.trim_start()),
            None => (false, text),
        };
        let quantity = if let Some(percent) = text.strip_suffix('%') {
            let percent =
                decimal(percent.trim_end()).ok_or_else(|| Fault::new("expected a number before `%`"))?;
            Quantity::Percent(percent)
        } else if text.bytes().all(|b| b.is_ascii_digit()) {
            Quantity::Number(Size::parse(text)?.0)
        } else {
            Quantity::Size(Size::parse(text)?.0)
        };
        Ok(Self { added, quantity })
    }
}

/// A limit that may be switched off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LimitOrOff {
    Limit(Amount),
    Off,
}

impl Value for LimitOrOff {
    const WHAT: &'static str = "a limit";
    const HINT: &'static str = "write a number (`2`), a size (`64 KiB`), `off`, or a table such as `{ warn: +10%, against: baseline }`";

    fn parse(text: &str) -> Result<Self, Fault> {
        if text == "off" { Ok(Self::Off) } else { Amount::parse(text).map(Self::Limit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        for (text, added, quantity) in [
            ("0", false, Quantity::Number(0)),
            ("64 KiB", false, Quantity::Size(65_536)),
            ("+10%", true, Quantity::Percent(10.0)),
            ("+ 2.5 %", true, Quantity::Percent(2.5)),
            ("10%", false, Quantity::Percent(10.0)),
            ("+2 MiB", true, Quantity::Size(2 << 20)),
            ("+3", true, Quantity::Number(3)),
        ] {
            assert_eq!(Amount::parse(text).ok(), Some(Amount { added, quantity }), "{text}");
        }
        for text in ["", "+", "%", "-3", "-3%", "+-3", "lots", "nan%"] {
            assert!(Amount::parse(text).is_err(), "{text}");
        }
    }
}
