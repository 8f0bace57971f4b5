//! Rules about objects that should no longer exist: the built-in ones, and those of files.

use std::path::PathBuf;

use memgate_hprof::Rules;

use crate::bounded;
use crate::exit::ExpectedError;

/// Maximum size of a rules file.
const LARGEST_RULES: u64 = 16 << 20;

/// Reads the rules of these files after the built-in ones.
pub(crate) fn read_rules(files: &[PathBuf]) -> Result<Rules, ExpectedError> {
    let mut rules = Rules::built_in()
        .map_err(|why| ExpectedError::machinery(format!("the built-in rules cannot be read: {why}"), ""))?;
    for path in files {
        let wrong = |why: String| {
            ExpectedError::session(path.clone(), why, "`memgate docs heap` shows how rules are written")
        };
        let bytes = bounded::read(path, LARGEST_RULES).map_err(ExpectedError::file("read", path))?;
        let text = String::from_utf8(bytes).map_err(|_other| wrong("it is no text in UTF-8".to_owned()))?;
        rules.add(&text).map_err(|why| wrong(why.to_string()))?;
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_without_an_end_fill_no_memory() {
        let why = read_rules(&[PathBuf::from("/dev/zero")]).unwrap_err().to_string();
        assert!(why.contains("/dev/zero: it is longer than 16"), "{why}");
    }
}
