//! Secrets: the file contains only the name of an environment variable. The code that needs the value looks it up when
//! it uses it. So no checked setting contains a secret, and a machine without the variable can run everything else.

use crate::read::{Read, Reader};
use crate::value::value_schema;
use crate::yaml::{Kind, Node};

/// An environment variable that contains a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable(pub(crate) String);

value_schema!(Variable, "Variable", { "type": "string", "pattern": "^\\$\\{[A-Za-z_][A-Za-z0-9_]*\\}$", "examples": ["${MEMGATE_SMTP_PASSWORD}"] });

impl Read for Variable {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let Kind::Scalar(raw) = &node.kind else {
            reader.wrong_kind(node, "a variable of the environment", Some(HINT));
            return None;
        };
        let name =
            raw.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).filter(|name| is_name(name));
        if name.is_none() {
            // The text may be the secret itself: the message does not repeat it.
            reader
                .error(&node.span, "a secret does not belong into the file")
                .label("expected `${NAME}`")
                .hint(Some(HINT));
        }
        name.map(|name| Self(name.to_owned()))
    }
}

const HINT: &str = "put it into a variable of the environment, and write `\"${NAME}\"` here";

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
