//! Programs that are a test as a whole: the argument that repeats their work.
//!
//! A command line with `{n}` in it runs with increasing numbers; the growth with the number is the slope per
//! repetition.

use memgate_config::REPETITIONS;

/// The numbers of repetitions: evenly spaced, and large enough that the one-time costs of the first do not matter.
pub const COUNTS: [u32; 6] = [4, 8, 12, 16, 20, 24];

/// The command line for `n` repetitions.
#[must_use]
pub fn with_count(arguments: &[String], n: u32) -> Vec<String> {
    let n = n.to_string();
    arguments.iter().map(|argument| argument.replace(REPETITIONS, &n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_becomes_the_number() {
        let line = ["replay", "--count={n}", "{n}x{n}", "{m}"].map(str::to_owned);
        assert_eq!(with_count(&line, 12), ["replay", "--count=12", "12x12", "{m}"]);
    }
}
