//! The number of a shard: which part of a run over several machines it is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Maximum number of shards of a run.
pub const MOST_SHARDS: u32 = 1_000;

/// A shard of a run by its number: `3/8` is the third of eight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ShardNumber {
    index: u32,
    of: u32,
}

/// A text that is no number of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoShardNumber;

impl ShardNumber {
    /// Shard `index` of `of`, counted from 1; `None`: there is no such shard.
    #[must_use]
    pub fn new(index: u32, of: u32) -> Option<Self> {
        (1..=of).contains(&index).then_some(Self { index, of }).filter(|number| number.of <= MOST_SHARDS)
    }

    /// Number of the shard, counted from 1.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Number of shards.
    #[must_use]
    pub const fn of(self) -> u32 {
        self.of
    }
}

impl fmt::Display for NoShardNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a part is written `3/8`: the third of eight, of {MOST_SHARDS} at most")
    }
}

impl std::error::Error for NoShardNumber {}

impl fmt::Display for ShardNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for ShardNumber {
    type Err = NoShardNumber;

    fn from_str(text: &str) -> Result<Self, NoShardNumber> {
        let number =
            |text: &str| text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        let (index, of) = text.split_once('/').ok_or(NoShardNumber)?;
        Self::new(number(index).ok_or(NoShardNumber)?, number(of).ok_or(NoShardNumber)?).ok_or(NoShardNumber)
    }
}

impl TryFrom<String> for ShardNumber {
    type Error = NoShardNumber;

    fn try_from(text: String) -> Result<Self, NoShardNumber> {
        text.parse()
    }
}

impl From<ShardNumber> for String {
    fn from(number: ShardNumber) -> Self {
        number.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_a_number_of_a_number() {
        for (text, number) in [
            ("1/1", ShardNumber::new(1, 1)),
            ("3/8", ShardNumber::new(3, 8)),
            ("0/8", None),
            ("9/8", None),
            ("1/1001", None),
            ("3", None),
            ("+3/8", None),
            ("3/8/9", None),
            ("/8", None),
            ("99999999999/8", None),
        ] {
            assert_eq!(text.parse::<ShardNumber>().ok(), number, "{text}");
        }
        let json = serde_json::to_string(&ShardNumber::new(3, 8)).unwrap();
        assert_eq!(json, r#""3/8""#);
        assert_eq!(serde_json::from_str::<Option<ShardNumber>>(&json).unwrap(), ShardNumber::new(3, 8));
        assert!(
            serde_json::from_str::<ShardNumber>(r#""8/3""#)
                .unwrap_err()
                .to_string()
                .contains("the third of eight")
        );
    }
}
