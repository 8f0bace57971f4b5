//! Reads dumps and rules. Errors are reported with the file's name.

use std::path::Path;

use memgate_hprof::read::{DumpFile, ReadError};
use memgate_hprof::{Heap, Index, Rules};

use super::watch::Watch;
use crate::exit::ExpectedError;
pub(super) use crate::heap_rules::read_rules;
use crate::names::OfDump;

pub(super) fn open(path: &Path) -> Result<DumpFile, ExpectedError> {
    DumpFile::open(path).map_err(bad(path))
}

pub(super) fn read_heap(path: &Path, rules: &Rules, watch: &Watch<'_>) -> Result<Heap, ExpectedError> {
    let file = open(path)?;
    watch.passes(|told| Heap::read(file, rules, told)).map_err(bad(path))
}

/// A mapping file of R8 or ProGuard. It stays in memory: it is read once for all dumps.
#[derive(Clone, Copy)]
pub(super) struct Renames<'a> {
    from: &'a Path,
    names: OfDump,
}

impl<'a> Renames<'a> {
    pub(super) fn read(from: Option<&'a Path>) -> Result<Option<Self>, ExpectedError> {
        from.map(|from| Ok(Self { from, names: OfDump::read(from)? })).transpose()
    }
}

/// A dump, and its mapping file if its names are to be the original ones.
#[derive(Clone, Copy)]
pub(super) struct Dump<'a> {
    pub(super) path: &'a Path,
    pub(super) renames: Option<Renames<'a>>,
}

impl<'a> Dump<'a> {
    pub(super) fn of(path: &'a Path, mapping: Option<&'a Path>) -> Result<Self, ExpectedError> {
        Ok(Self { path, renames: Renames::read(mapping)? })
    }
}

/// Reads a heap with the original names of classes and fields, from before R8 or ProGuard renamed them.
pub(super) fn read_original(dump: Dump<'_>, rules: &Rules, watch: &Watch<'_>) -> Result<Heap, ExpectedError> {
    let (file, index) = (open(dump.path)?, read_index(dump, watch)?);
    watch.passes(|told| Heap::of(file, index, rules, told)).map_err(bad(dump.path))
}

/// Only the first pass.
pub(super) fn read_index(
    Dump { path, renames }: Dump<'_>,
    watch: &Watch<'_>,
) -> Result<Index, ExpectedError> {
    let file = open(path)?;
    let mut index = watch.passes(|told| Index::read(&file, told)).map_err(bad(path))?;
    if let Some(Renames { from, names }) = renames
        && index.rename(&names) == 0
    {
        let (from, dump) = (from.display(), path.display());
        watch.console().warning(&format!("{from} names no class of {dump}: is it of this build?"));
    }
    Ok(index)
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
