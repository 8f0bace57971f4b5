//! One part of a run over several machines.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Maximum number of parts of a run.
pub const MOST_PARTS: u32 = 1_000;

/// One part of a run: `3/8` is the third of eight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Part {
    index: u32,
    of: u32,
}

/// A text that names no part of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoPart;

impl Part {
    /// Part `index` of `of`, counted from 1; `None`: there is no such part.
    #[must_use]
    pub fn new(index: u32, of: u32) -> Option<Self> {
        (1..=of).contains(&index).then_some(Self { index, of }).filter(|part| part.of <= MOST_PARTS)
    }

    /// Number of the part, counted from 1.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Number of parts.
    #[must_use]
    pub const fn of(self) -> u32 {
        self.of
    }
}

impl fmt::Display for NoPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a part is written `3/8`: the third of eight, of {MOST_PARTS} at most")
    }
}

impl std::error::Error for NoPart {}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for Part {
    type Err = NoPart;

    fn from_str(text: &str) -> Result<Self, NoPart> {
        let number =
            |text: &str| text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        let (index, of) = text.split_once('/').ok_or(NoPart)?;
        Self::new(number(index).ok_or(NoPart)?, number(of).ok_or(NoPart)?).ok_or(NoPart)
    }
}

impl TryFrom<String> for Part {
    type Error = NoPart;

    fn try_from(text: String) -> Result<Self, NoPart> {
        text.parse()
    }
}

impl From<Part> for String {
    fn from(part: Part) -> Self {
        part.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_number_of_a_number() {
        for (text, part) in [
            ("1/1", Part::new(1, 1)),
            ("3/8", Part::new(3, 8)),
            ("0/8", None),
            ("9/8", None),
            ("1/1001", None),
            ("3", None),
            ("+3/8", None),
            ("3/8/9", None),
            ("/8", None),
            ("99999999999/8", None),
        ] {
            assert_eq!(text.parse::<Part>().ok(), part, "{text}");
        }
        let json = serde_json::to_string(&Part::new(3, 8)).unwrap();
        assert_eq!(json, r#""3/8""#);
        assert_eq!(serde_json::from_str::<Option<Part>>(&json).unwrap(), Part::new(3, 8));
        assert!(
            serde_json::from_str::<Part>(r#""8/3""#).unwrap_err().to_string().contains("the third of eight")
        );
    }
}
