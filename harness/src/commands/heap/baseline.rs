//! `memgate heap analyze --baseline`: reads the leaks of an earlier dump.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

use memgate_hprof::Analysis;
use serde::Deserialize;

use crate::exit::ExpectedError;

/// Maximum size of a baseline file.
const LONGEST: u64 = 256 << 20;

/// The relevant part of the output of `analyze --json`.
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

/// Numbers of known and of other leaks.
pub(super) fn split(analysis: &Analysis, known: &BTreeSet<String>) -> (usize, usize) {
    let old = analysis.leaks.iter().filter(|leak| known.contains(&leak.fingerprint)).count();
    (old, analysis.leaks.len() - old)
}
