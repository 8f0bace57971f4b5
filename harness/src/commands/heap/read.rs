//! Reads dumps and rules. What is wrong with a file is reported with its name.

use std::fs;
use std::path::{Path, PathBuf};

use memgate_hprof::read::{DumpFile, ReadError};
use memgate_hprof::{Heap, Rules};

use super::watch::Watch;
use crate::exit::ExpectedError;

/// A rules file is not larger.
const LARGEST_RULES: u64 = 16 << 20;

pub(super) fn open(path: &Path) -> Result<DumpFile, ExpectedError> {
    DumpFile::open(path).map_err(bad(path))
}

pub(super) fn read_heap(path: &Path, rules: &Rules, watch: &Watch<'_>) -> Result<Heap, ExpectedError> {
    let file = open(path)?;
    watch.passes(|told| Heap::read(file, rules, told)).map_err(bad(path))
}

pub(super) fn read_rules(files: &[PathBuf]) -> Result<Rules, ExpectedError> {
    let mut rules = Rules::built_in().map_err(|why| ExpectedError::Machinery {
        what: format!("the built-in rules cannot be read: {why}"),
        hint: String::new(),
    })?;
    for path in files {
        let failed = || ExpectedError::file("read", path);
        let wrong = |why: String| ExpectedError::Session {
            path: path.clone(),
            why,
            hint: "docs/heap.md shows how rules are written".to_owned(),
        };
        if fs::metadata(path).map_err(failed())?.len() > LARGEST_RULES {
            return Err(wrong("it is larger than 16 MiB".to_owned()));
        }
        let text = fs::read_to_string(path).map_err(failed())?;
        rules.add(&text).map_err(|why| wrong(why.to_string()))?;
    }
    Ok(rules)
}

pub(super) fn bad(path: &Path) -> impl Fn(ReadError) -> ExpectedError {
    let path = path.to_owned();
    move |why| {
        let hint = match &why {
            ReadError::NotADump => "a heap dump begins with `JAVA PROFILE 1.0`, plain, in gzip or in zstd",
            ReadError::Changed => "jcmd and am dumpheap end when the dump is written",
            ReadError::Tailor | ReadError::TooMany => "",
            ReadError::Io(source) => {
                let source = std::io::Error::new(source.kind(), source.to_string());
                return ExpectedError::File { action: "read", path: path.clone(), source };
            }
        };
        ExpectedError::Session { path: path.clone(), why: why.to_string(), hint: hint.to_owned() }
    }
}
