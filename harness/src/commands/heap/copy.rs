//! `memgate heap trim` and `restore`: write copies of dumps. A failed copy is removed.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use memgate_hprof::read::{DumpFile, Packing, ReadError};
use memgate_hprof::{
    Cropped, Heap, Index, Question, RestoreError, Rules, TrimError, tree_of_trimmed, uncrop,
};
use memgate_model::format_bytes;

use super::read::{bad, open, read_heap, read_rules};
use super::target::{STREAM, is_file, same, write};
use super::watch::Watch;
use crate::exit::ExpectedError;

/// Contents that a trimmed dump keeps, and whether equal contents stay equal.
#[derive(Clone, Copy)]
pub(super) struct Keeps {
    pub(super) kept: Kept,
    pub(super) duplicates: bool,
}

/// Contents that a trimmed dump keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// Texts that an analysis reads, and single fields.
    Analysable,
    /// Texts and single fields that an analysis reads.
    InPrivate,
    /// No text, and single fields.
    Nothing,
}

/// Writes a dump without contents.
pub(super) fn trim(
    from: &Path,
    to: &Path,
    (Keeps { kept, duplicates }, rules): (Keeps, &[PathBuf]),
    prove: bool,
    watch: &Watch<'_>,
) -> Result<(), ExpectedError> {
    let wrong = |why: TrimError| match why {
        TrimError::Read(why) => bad(from)(why),
        TrimError::Io(source) => ExpectedError::file("read", from)(source),
        why => ExpectedError::Session { path: from.to_owned(), why: why.to_string(), hint: String::new() },
    };
    let usage = |what: &str, hint: &str| ExpectedError::usage(what, hint);
    if same(from, to) {
        return Err(usage("a dump cannot be trimmed into itself", "name another file"));
    }
    if from.as_os_str() == STREAM {
        if kept != Kept::Nothing {
            let hint = "add --zero, or write the dump to a file first";
            return Err(usage(
                "what is to be kept is only known at the end of a dump: it must be a file",
                hint,
            ));
        }
        write(to, |out| memgate_hprof::trim(io::stdin().lock(), out).map_err(wrong))?;
        return Ok(());
    }
    if prove && !is_file(to) {
        return Err(usage("--prove reads the trimmed dump again: it must be a file", ""));
    }
    let rules = read_rules(rules)?;
    let file = open(from)?;
    let (keep, before) = if kept == Kept::Nothing {
        (watch.passes(|told| Index::read(&file, told)).map_err(bad(from))?.kept_names(), None)
    } else {
        let heap = read_heap(from, &rules, watch)?;
        let keep = if kept == Kept::InPrivate { heap.kept_in_private(&rules) } else { heap.kept() };
        (
            keep.with_duplicates(duplicates),
            prove.then(|| leaks(&heap, &rules, watch)).transpose().map_err(bad(from))?,
        )
    };
    write(to, |out| watch.passes(|told| memgate_hprof::trim_file(&file, &keep, out, told)).map_err(wrong))?;
    if let Some(before) = before {
        let heap = read_heap(to, &rules, watch)?;
        if leaks(&heap, &rules, watch).map_err(bad(to))? != before {
            return Err(ExpectedError::Machinery {
                what: format!("the leaks of {} are not those of {}", to.display(), from.display()),
                hint: "a defect of memgate's: keep the dump as it is, and tell us".to_owned(),
            });
        }
    }
    if is_file(to) {
        let bytes = fs::metadata(to).map_err(ExpectedError::file("read", to))?.len();
        let proven = if prove { ", and the same leaks" } else { "" };
        #[expect(clippy::cast_precision_loss, reason = "for display")]
        let [bytes, before] = [bytes, file.bytes()].map(|bytes| format_bytes(bytes as f64));
        watch.console().line(&format!("{}: {bytes} of {before}{proven}", to.display()));
    }
    Ok(())
}

/// All leaks, without details that a trimmed dump lacks.
fn leaks(heap: &Heap, rules: &Rules, watch: &Watch<'_>) -> Result<String, ReadError> {
    let found = watch.passes(|told| heap.analyse(rules, &Question::default(), told))?;
    let all = found.leaks.iter().chain(&found.library_leaks);
    Ok(all
        .map(|leak| {
            format!("{} {} {}\n{}", leak.fingerprint, leak.instances, leak.attributed, tree_of_trimmed(leak))
        })
        .collect())
}

/// Writes a plain dump.
pub(super) fn restore(from: &Path, to: &Path, watch: &Watch<'_>) -> Result<(), ExpectedError> {
    if same(from, to) {
        let what = "a dump cannot be restored into itself".to_owned();
        return Err(ExpectedError::Usage { what, hint: "name another file".to_owned() });
    }
    let wrong = |why: String| ExpectedError::Session { path: from.to_owned(), why, hint: String::new() };
    let failed = |why: RestoreError| match why {
        RestoreError::Io(source) => ExpectedError::file("read", from)(source),
        RestoreError::Read(why) => bad(from)(why),
        why => wrong(why.to_string()),
    };
    match DumpFile::open(from) {
        Err(ReadError::Tailor) => {
            let file = File::open(from).map_err(ExpectedError::file("read", from))?;
            let input = BufReader::with_capacity(1 << 16, file);
            write(to, |out| memgate_hprof::restore(input, out).map_err(failed))?;
        }
        Ok(file) if file.packing() != Packing::Plain => {
            write(to, |out| watch.passes(|told| file.unpack(out, told)).map_err(bad(from)))?;
        }
        Ok(file) => {
            match watch.passes(|told| Cropped::of(&file, told)).map_err(bad(from))? {
                Cropped::Whole => {
                    return Err(wrong("it is a plain heap dump: there is nothing to restore".to_owned()));
                }
                Cropped::Neither => {
                    let why = "it is not whole, neither as it is nor as a dump that KOOM cropped";
                    return Err(wrong(why.to_owned()));
                }
                Cropped::Cropped => {}
            }
            write(to, |out| watch.passes(|told| uncrop(&file, out, told)).map_err(failed))?;
        }
        Err(why) => return Err(bad(from)(why)),
    }
    Ok(())
}
