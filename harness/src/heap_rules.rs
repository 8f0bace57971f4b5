//! Rules about objects that should no longer exist: the built-in ones, and those of files.

use std::fs;
use std::path::PathBuf;

use memgate_hprof::Rules;

use crate::exit::ExpectedError;

/// Maximum size of a rules file.
const LARGEST_RULES: u64 = 16 << 20;

/// Reads the rules of these files after the built-in ones.
pub(crate) fn read_rules(files: &[PathBuf]) -> Result<Rules, ExpectedError> {
    let mut rules = Rules::built_in()
        .map_err(|why| ExpectedError::machinery(format!("the built-in rules cannot be read: {why}"), ""))?;
    for path in files {
        let failed = || ExpectedError::file("read", path);
        let wrong = |why: String| {
            ExpectedError::session(path.clone(), why, "docs/heap.md shows how rules are written")
        };
        if fs::metadata(path).map_err(failed())?.len() > LARGEST_RULES {
            return Err(wrong("it is larger than 16 MiB".to_owned()));
        }
        let text = fs::read_to_string(path).map_err(failed())?;
        rules.add(&text).map_err(|why| wrong(why.to_string()))?;
    }
    Ok(rules)
}
