//! Texts, and the id of a leak.

use crate::read::{Fault, Value};
use crate::value::value_schema;

/// A text that is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Words(pub(crate) String);

value_schema!(Words, "Text", { "type": "string", "minLength": 1 });

impl Value for Words {
    const WHAT: &'static str = "a text";
    const HINT: &'static str = "write some text; quotes are only needed around special characters";

    fn parse(text: &str) -> Result<Self, Fault> {
        if text.trim().is_empty() {
            Err(Fault::new("empty"))
        } else if text.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')) {
            Err(Fault::new("contains a control character"))
        } else {
            Ok(Self(text.to_owned()))
        }
    }
}

/// A text that may be empty, such as the value of a variable or an argument. Numbers and booleans of YAML are taken as
/// written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Argument(pub(crate) String);

value_schema!(Argument, "Argument", { "type": ["string", "number", "boolean"] });

impl Value for Argument {
    const WHAT: &'static str = "a single value";
    const HINT: &'static str = "write a text or a number";

    fn parse(text: &str) -> Result<Self, Fault> {
        if text.contains('\0') { Err(Fault::new("contains a NUL byte")) } else { Ok(Self(text.to_owned())) }
    }
}

/// The id of a leak, as reports print it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeakId(pub(crate) String);

value_schema!(LeakId, "LeakId", { "type": "string", "examples": ["n1-5f1c09a2b47d1e03"] });

impl Value for LeakId {
    const WHAT: &'static str = "the id of a leak";
    const HINT: &'static str =
        "copy it from the report: `n1-`, `j1-`, `o1-`, `m1-` or `h1-` and 16 hexadecimal digits";

    fn parse(text: &str) -> Result<Self, Fault> {
        let hash = ["n1-", "j1-", "o1-", "m1-", "h1-"].iter().find_map(|kind| text.strip_prefix(kind));
        match hash {
            Some(hash)
                if hash.len() == 16 && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) =>
            {
                Ok(Self(text.to_owned()))
            }
            Some(_) => Err(Fault::new("expected 16 hexadecimal digits after the kind")),
            None => Err(Fault::new("expected `n1-`, `j1-`, `o1-`, `m1-` or `h1-` first")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leak_ids() {
        assert!(LeakId::parse("n1-5f1c09a2b47d1e03").is_ok());
        for text in [
            "n1-5f1c",
            "5f1c09a2b47d1e03",
            "x1-5f1c09a2b47d1e03",
            "n1-5F1C09A2B47D1E03",
            "n1-5f1c09a2b47d1e0ä",
            "",
        ] {
            assert!(LeakId::parse(text).is_err(), "{text}");
        }
    }
}
