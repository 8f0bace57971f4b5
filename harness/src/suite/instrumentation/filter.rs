//! A glob of tests as an expression for AndroidJUnitRunner's `tests_regex`.

/// The expression for a glob: `com.example.TileCacheTest`, `com.example.TileCacheTest.evicts` (or
/// `#evicts`), `*.TileCacheTest.*`. The runner searches for it in `CLASS#METHOD`. A test must fit `own` too, the
/// expression of the suite.
#[must_use]
pub fn tests_regex(glob: &str, own: Option<&str>) -> String {
    let mut regex = own.map(|own| format!("^(?=.*(?:{own}))")).unwrap_or_else(|| "^".to_owned());
    for c in glob.chars() {
        match c {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '.' | '#' => regex.push_str("[.#]"),
            c if c.is_alphanumeric() || c == '_' => regex.push(c),
            c => regex.extend(['\\', c]),
        }
    }
    // The name of a class selects all its tests, the name of a method all its parameters.
    regex.push_str(r"([#\[].*)?$");
    regex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_become_expressions() {
        for (glob, regex) in [
            ("a.ATest", r"^a[.#]ATest([#\[].*)?$"),
            ("a.ATest.x?", r"^a[.#]ATest[.#]x.([#\[].*)?$"),
            ("*.B$C#y[0]", r"^.*[.#]B\$C[.#]y\[0\]([#\[].*)?$"),
        ] {
            assert_eq!(tests_regex(glob, None), regex, "{glob}");
        }
        assert_eq!(tests_regex("a.B", Some("Slow|^a")), r"^(?=.*(?:Slow|^a))a[.#]B([#\[].*)?$");
    }
}
