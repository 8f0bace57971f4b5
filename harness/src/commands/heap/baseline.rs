//! `memgate heap analyze --baseline`: leaks that an earlier dump had.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

use memgate_hprof::Analysis;
use serde::Deserialize;

use crate::exit::ExpectedError;

/// A longer one is none.
const LONGEST: u64 = 256 << 20;

/// What `analyze --json` printed, as far as it counts here.
#[derive(Deserialize)]
struct Earlier {
    schema_version: u32,
    leaks: Vec<Leak>,
    leaks_in_all: usize,
}

#[derive(Deserialize)]
struct Leak {
    fingerprint: String,
}

/// The fingerprints of all its leaks.
pub(super) fn read(path: &Path) -> Result<BTreeSet<String>, ExpectedError> {
    let wrong = |why: String| ExpectedError::Session {
        path: path.to_owned(),
        why,
        hint: "`memgate heap analyze DUMP --json --top 1000000 > FILE` writes a baseline".to_owned(),
    };
    let file = File::open(path).map_err(ExpectedError::file("read", path))?;
    let earlier: Earlier = serde_json::from_reader(BufReader::new(file.take(LONGEST)))
        .map_err(|why| wrong(format!("it is no answer of `heap analyze --json`: {why}")))?;
    if earlier.schema_version != 1 {
        return Err(wrong(format!("it is of version {}, and version 1 is read", earlier.schema_version)));
    }
    if earlier.leaks.len() < earlier.leaks_in_all {
        let (listed, all) = (earlier.leaks.len(), earlier.leaks_in_all);
        return Err(wrong(format!("it lists {listed} of {all} leaks")));
    }
    Ok(earlier.leaks.into_iter().map(|leak| leak.fingerprint).collect())
}

/// Leaks that are known, and others.
pub(super) fn split(analysis: &Analysis, known: &BTreeSet<String>) -> (usize, usize) {
    let old = analysis.leaks.iter().filter(|leak| known.contains(&leak.fingerprint)).count();
    (old, analysis.leaks.len() - old)
}
