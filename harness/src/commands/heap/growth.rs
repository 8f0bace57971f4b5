//! `memgate heap growth` and `ledger`: find containers that grow from dump to dump.
//!
//! Data flow: each file, a dump or a ledger → its ledger, one dump in memory at a time → `memgate_hprof::growth`.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use memgate_hprof::{FEWEST, Ledger};

use super::read::{Dump, Renames, bad, read_original, read_rules};
use super::show::Shown;
use super::target::{same, write};
use super::watch::Watch;
use super::{Answer, Oddities};
use crate::exit::{self, ExpectedError};

/// First byte of a ledger; no dump begins with it.
const JSON: u8 = b'{';
/// Maximum size of a ledger: that of a large dump has a few megabytes.
const LONGEST: u64 = 256 << 20;

pub(super) fn growth(
    (files, renames): (&[PathBuf], Option<Renames<'_>>),
    loops: u64,
    (top, allow_truncated): (usize, bool),
    watch: &Watch<'_>,
) -> Result<Answer, ExpectedError> {
    if files.len() < FEWEST {
        return Err(ExpectedError::usage(
            format!("{} dumps decide nothing: whatever is filled once has grown between them", files.len()),
            format!("name {FEWEST} or more, the oldest first, with the same work done before each"),
        ));
    }
    let (mut ledgers, mut odd) = (Vec::new(), Vec::new());
    for file in files {
        let (ledger, its) = read(Dump { path: file, renames }, watch)?;
        odd.push((file.clone(), its));
        ledgers.push(ledger);
    }
    in_order(files.iter().map(PathBuf::as_path).zip(ledgers.iter().map(|ledger| ledger.milliseconds)))?;
    for (files, ledgers) in files.windows(2).zip(ledgers.windows(2)) {
        let ([before, after], [old, new]) = (files, ledgers) else { continue };
        if same(before, after) || (old.milliseconds > 0 && old.milliseconds == new.milliseconds) {
            let names = format!("{} and {}", before.display(), after.display());
            watch.console().warning(&format!("{names} are one dump: nothing can grow between them"));
        }
    }
    let mut growing = memgate_hprof::growth(&ledgers, loops).unwrap_or_default();
    let code = match growing.is_empty() {
        false => exit::FAIL,
        true => unless_cut(&ledgers, allow_truncated),
    };
    let hidden = growing.len().saturating_sub(top);
    growing.truncate(top);
    let dumps = ledgers.iter().map(|ledger| ledger.objects).collect();
    Ok(Answer { shown: Shown::Growth { dumps, growing, hidden }, code, odd })
}

/// Are dumps named in the order in which they were written, as far as their times are known? `*.hprof` expands to day10
/// before day2, and growth cannot be seen in that order.
pub(super) fn in_order<'f>(files: impl Iterator<Item = (&'f Path, u64)>) -> Result<(), ExpectedError> {
    let mut last = None::<(&Path, u64)>;
    for (file, written) in files.filter(|(_, written)| *written > 0) {
        if let Some((before, _)) = last.filter(|(_, before)| *before > written) {
            let what = format!("{} was written before {}", file.display(), before.display());
            return Err(ExpectedError::usage(what, "name the oldest dump first"));
        }
        last = Some((file, written));
    }
    Ok(())
}

/// The exit code where nothing is over a limit: what a ledger lacks may have grown.
pub(super) fn unless_cut(ledgers: &[Ledger], allow_truncated: bool) -> u8 {
    let is_cut = ledgers.iter().any(|ledger| ledger.truncated);
    if is_cut && !allow_truncated { exit::NOT_MEASURED } else { exit::PASS }
}

/// Writes the ledger of a dump to a file; returns the exit code.
pub(super) fn ledger(
    dump: Dump<'_>,
    to: &Path,
    allow_truncated: bool,
    watch: &Watch<'_>,
) -> Result<u8, ExpectedError> {
    let from = dump.path;
    if same(from, to) {
        return Err(ExpectedError::usage("a ledger cannot take the place of its dump", "name another file"));
    }
    let (ledger, odd) = read(dump, watch)?;
    write(to, |out| {
        serde_json::to_writer(out, &ledger).map_err(|why| ExpectedError::file("write", to)(why.into()))
    })?;
    for sentence in odd.sentences().filter(|_| odd.truncated()) {
        watch.console().warning(&format!("{}: {sentence}", from.display()));
    }
    Ok(unless_cut(&[ledger], allow_truncated))
}

pub(super) fn read(dump: Dump<'_>, watch: &Watch<'_>) -> Result<(Ledger, Oddities), ExpectedError> {
    let path = dump.path;
    if is_ledger(path)? {
        // The ledger may have other names than the dumps. Then no growth would be found.
        if dump.renames.is_some() {
            let what = format!("{} is a ledger: no mapping file changes its names", path.display());
            return Err(ExpectedError::usage(
                what,
                "`memgate heap ledger --mapping` writes each with original names",
            ));
        }
        let ledger = read_ledger(path)?;
        if ledger.truncated {
            watch
                .console()
                .warning(&format!("{}: its dump was not whole, or has too many containers", path.display()));
        }
        return Ok((ledger, Oddities::default()));
    }
    let rules = read_rules(&[])?;
    let heap = read_original(dump, &rules, watch)?;
    let ledger = watch.passes(|told| heap.ledger(&rules, told)).map_err(bad(path))?;
    if ledger.truncated && !heap.dump.odd.truncated() {
        watch.console().warning(&format!("{}: it has too many containers: not all count", path.display()));
    }
    Ok((ledger, heap.dump.odd))
}

fn is_ledger(path: &Path) -> Result<bool, ExpectedError> {
    let mut first = [0];
    let mut file = File::open(path).map_err(ExpectedError::file("read", path))?;
    let count = file.read(&mut first).map_err(ExpectedError::file("read", path))?;
    Ok(count == 1 && first == [JSON])
}

fn read_ledger(path: &Path) -> Result<Ledger, ExpectedError> {
    let wrong = |why: String| ExpectedError::session(path, why, "`memgate heap ledger DUMP OUT` writes one");
    let file = File::open(path).map_err(ExpectedError::file("read", path))?;
    let ledger: Ledger = serde_json::from_reader(BufReader::new(file.take(LONGEST)))
        .map_err(|why| wrong(format!("it is no ledger: {why}")))?;
    ledger.check().map_err(|why| wrong(why.to_string()))?;
    Ok(ledger)
}
