//! Programs that are a test as a whole: the argument that repeats their work.
//!
//! A command line with `{n}` in it is run with growing numbers; what grows with the number is the
//! slope per repetition.

/// What stands for the number of repetitions.
pub const PLACEHOLDER: &str = "{n}";

/// The numbers a repeatable program is run with: evenly spaced, and far from the one-time costs of
/// the first.
pub const COUNTS: [u32; 6] = [4, 8, 12, 16, 20, 24];

/// Whether a command line names the argument that repeats its work.
#[must_use]
pub fn is_repeatable(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| argument.contains(PLACEHOLDER))
}

/// The command line for `n` repetitions.
#[must_use]
pub fn with_count(arguments: &[String], n: u32) -> Vec<String> {
    let n = n.to_string();
    arguments.iter().map(|argument| argument.replace(PLACEHOLDER, &n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_becomes_the_number() {
        let line = ["replay", "--count={n}", "{n}x{n}", "{m}"].map(str::to_owned);
        assert!(is_repeatable(&line));
        assert_eq!(with_count(&line, 12), ["replay", "--count=12", "12x12", "{m}"]);
        assert!(!is_repeatable(&["replay".to_owned()]));
    }
}
