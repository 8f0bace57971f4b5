//! Converts class patterns with original names into the names of a renamed program.
//!
//! A pattern is a name, or a prefix followed by `*`; a pattern after `!` excludes classes that earlier patterns
//! selected. The last match decides (`measure.java.follow`). The agent compares patterns with the names it sees, so
//! each renamed class that the patterns would treat differently from its original is added by name.

use memgate_formats::mapping::Mapping;

/// The patterns, and the additional ones that are needed.
pub(super) fn renamed(mapping: &Mapping<'_>, patterns: Vec<String>) -> Vec<String> {
    if patterns.is_empty() {
        return patterns;
    }
    let mut more = Vec::new();
    for (new, original) in mapping.classes() {
        // A class, and arrays of it.
        for suffix in ["", "[]"] {
            let chosen = chooses(&patterns, &format!("{original}{suffix}"));
            if chosen != chooses(&patterns, &format!("{new}{suffix}")) {
                more.push(format!("{}{new}{suffix}", if chosen { "" } else { "!" }));
            }
        }
    }
    patterns.into_iter().chain(more).collect()
}

/// The agent's own rule.
fn chooses(patterns: &[String], class: &str) -> bool {
    let fits = |pattern: &str| match pattern.strip_suffix('*') {
        Some(beginning) => class.starts_with(beginning),
        None => class == pattern,
    };
    let last = patterns.iter().rev().find(|pattern| fits(pattern.strip_prefix('!').unwrap_or(pattern)));
    last.is_some_and(|pattern| !pattern.starts_with('!'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
com.example.Tile -> a.b:
com.example.Cache -> a.c:
com.example.cold.Ice -> a.d:
com.example.Kept -> com.example.Kept:
org.other.Thing -> com.example.x:
";

    #[test]
    fn what_the_user_wrote_chooses_the_same_classes_in_the_renamed_program() {
        let mapping = Mapping::read(TEXT).unwrap();
        let of = |patterns: &[&str]| {
            renamed(&mapping, patterns.iter().map(|&pattern| pattern.to_owned()).collect())
        };
        assert!(of(&[]).is_empty());
        assert_eq!(of(&["com.example.Tile"]), ["com.example.Tile", "a.b"]);
        assert_eq!(of(&["com.example.Tile[]"]), ["com.example.Tile[]", "a.b[]"]);
        // A class of the renamed program whose name only looks like a match, and one that is excluded again.
        let told = of(&["com.example.*", "!com.example.cold.*"]);
        let (given, more) = told.split_at(2);
        assert_eq!(given, ["com.example.*", "!com.example.cold.*"]);
        assert_eq!(more, ["a.b", "a.b[]", "a.c", "a.c[]", "!com.example.x", "!com.example.x[]"]);
        let seen = ["a.b", "a.b[]", "a.c", "a.d", "com.example.Kept", "com.example.x", "java.util.Map"];
        let chosen: Vec<&str> = seen.into_iter().filter(|class| chooses(&told, class)).collect();
        assert_eq!(chosen, ["a.b", "a.b[]", "a.c", "com.example.Kept"]);
    }
}
