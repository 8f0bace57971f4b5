//! A glob of tests as an expression for AndroidJUnitRunner's `tests_regex`.

/// The expression for a glob: `com.example.TileCacheTest`, `com.example.TileCacheTest.evicts` (or
/// `#evicts`), `*.TileCacheTest.*`. The runner compares with `CLASS#METHOD`.
#[must_use]
pub fn tests_regex(glob: &str) -> String {
    let mut regex = String::from("^");
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
            assert_eq!(tests_regex(glob), regex, "{glob}");
        }
    }
}
