//! The last day of a waiver.

use std::fmt;

use jiff::civil::Date;

use crate::read::{Fault, Value};
use crate::value::value_schema;

/// How long a waiver holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Up to and including this day.
    Date(Date),
    /// Without an end.
    Never,
}

impl Until {
    /// Has it ended on this day?
    #[must_use]
    pub fn over(self, today: Date) -> bool {
        match self {
            Self::Date(last) => today > last,
            Self::Never => false,
        }
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Date(date) => write!(f, "{date}"),
            Self::Never => f.write_str("never"),
        }
    }
}

value_schema!(Until, "Until", { "type": "string", "examples": ["2027-03-01", "never"] });

impl Value for Until {
    const WHAT: &'static str = "a date";
    const HINT: &'static str = "write year-month-day, such as `2027-03-01`, or `never`";

    fn parse(text: &str) -> Result<Self, Fault> {
        if text == "never" {
            return Ok(Self::Never);
        }
        let shape = text.len() == 10
            && text
                .bytes()
                .enumerate()
                .all(|(at, b)| if matches!(at, 4 | 7) { b == b'-' } else { b.is_ascii_digit() });
        if !shape {
            return Err(Fault::new("expected year-month-day"));
        }
        text.parse().map(Self::Date).map_err(|_why| Fault::new("the calendar has no such day"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(Until::parse("never").ok(), Some(Until::Never));
        assert_eq!(Until::parse("2028-02-29").ok().map(|u| u.to_string()), Some("2028-02-29".to_owned()));
        for (text, label) in [
            ("2027-02-29", "the calendar has no such day"),
            ("2027-13-01", "the calendar has no such day"),
            ("01.03.2027", "expected year-month-day"),
            ("2027-3-1", "expected year-month-day"),
            ("2027-03-01T00:00", "expected year-month-day"),
            ("soon", "expected year-month-day"),
        ] {
            assert_eq!(Until::parse(text).err().map(|f| f.label), Some(label.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_waiver_holds_on_its_last_day() {
        let until = Until::parse("2027-03-01").ok().unwrap();
        assert!(!until.over(jiff::civil::date(2027, 3, 1)));
        assert!(until.over(jiff::civil::date(2027, 3, 2)));
        assert!(!Until::Never.over(jiff::civil::date(9999, 12, 31)));
    }
}
