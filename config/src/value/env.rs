//! `${NAME}`, `${NAME:-default}` and the escape `$$`. Any other `$` is a plain dollar sign.

use std::borrow::Cow;

/// Why a reference cannot be filled in. It never contains a value of the environment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EnvProblem {
    Missing { reference: String, name: String },
    Malformed { reference: String },
}

impl EnvProblem {
    /// The reference as written in the file.
    pub(crate) fn reference(&self) -> &str {
        match self {
            Self::Missing { reference, .. } | Self::Malformed { reference } => reference,
        }
    }

    /// Title, label, hint.
    pub(crate) fn words(&self) -> (String, &'static str, String) {
        match self {
            Self::Missing { name, .. } => (
                format!("the environment has no variable `{name}`"),
                "not set",
                format!("set it, or give a default: `${{{name}:-…}}`"),
            ),
            Self::Malformed { .. } => (
                "this refers to no variable".to_owned(),
                "expected `${NAME}` or `${NAME:-default}`",
                "write `$$` for a dollar sign that means itself".to_owned(),
            ),
        }
    }
}

pub(crate) fn interpolate<'t>(
    text: &'t str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Cow<'t, str>, EnvProblem> {
    if !text.contains("$$") && !text.contains("${") {
        return Ok(Cow::Borrowed(text));
    }
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        result.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("$$") {
            result.push('$');
            rest = after;
        } else if let Some(inner) = rest.strip_prefix("${") {
            let end = inner.find('}').ok_or_else(|| EnvProblem::Malformed { reference: rest.to_owned() })?;
            let reference = &rest[..end + 3];
            result.push_str(&look_up(&inner[..end], reference, env)?);
            rest = &inner[end + 1..];
        } else {
            result.push('$');
            rest = &rest[1..];
        }
    }
    result.push_str(rest);
    Ok(Cow::Owned(result))
}

fn look_up(inner: &str, reference: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, EnvProblem> {
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    let valid = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !valid {
        return Err(EnvProblem::Malformed { reference: reference.to_owned() });
    }
    // As in a shell, `:-` also replaces a variable that is set but empty.
    let value = env(name).filter(|value| default.is_none() || !value.is_empty());
    value
        .or_else(|| default.map(str::to_owned))
        .ok_or_else(|| EnvProblem::Missing { reference: reference.to_owned(), name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/x".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn references_are_filled_in() {
        for (text, expected) in [
            ("plain", "plain"),
            ("${HOME}/build", "/home/x/build"),
            ("${HOME}${EMPTY}!", "/home/x!"),
            ("${NONE:-build}/x", "build/x"),
            ("${NONE:-}", ""),
            ("${EMPTY:-build}", "build"),
            ("cost: $$5 and $${HOME}", "cost: $5 and ${HOME}"),
            ("^a$", "^a$"),
            ("$HOME", "$HOME"),
        ] {
            assert_eq!(interpolate(text, &env).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_value_is_not_looked_at_again() {
        let nested = |_: &str| Some("${HOME}".to_owned());
        assert_eq!(interpolate("${A}", &nested).unwrap(), "${HOME}");
    }

    #[test]
    fn wrong_references_name_themselves() {
        let missing = EnvProblem::Missing { reference: "${NONE}".to_owned(), name: "NONE".to_owned() };
        assert_eq!(interpolate("a ${NONE} b", &env), Err(missing));
        for text in ["${HOME", "${}", "${1A}", "${A-b}", "${ä}"] {
            assert_eq!(interpolate(text, &env), Err(EnvProblem::Malformed { reference: text.to_owned() }));
        }
    }
}
