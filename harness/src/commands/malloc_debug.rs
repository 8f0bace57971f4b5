//! `memgate malloc-debug`: reads files of Android's malloc_debug, and shows them.
//!
//! Data flow: each file → its bytes (limited) → a heap dump, recognised by its title, otherwise a leak-info buffer with
//! the out values of its sidecar or of the flags → snapshot → with `--symbols`, names of its frames → text or JSON;
//! with `--diff`, the changes from the first to the second.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use memgate_formats::malloc_debug::{
    HeapDumpError, HeapDumpProblem, LeakInfoError, Snapshot, is_heap_dump, read_heap_dump, read_leak_info,
};

use crate::cli::MallocDebugArgs;
use crate::exit::{self, ExpectedError};
use crate::output::Console;

mod show;
mod sidecar;
mod symbols;

use symbols::{Namer, Names};

/// Maximum file size: malloc_debug writes no larger file.
const LARGEST: u64 = 512 << 20;

pub(super) fn malloc_debug(request: &MallocDebugArgs, console: &Console) -> Result<u8, ExpectedError> {
    if request.diff && request.files.len() != 2 {
        return Err(ExpectedError::usage(
            "`--diff` compares two files: the one before and the one after",
            "",
        ));
    }
    let mut sidecars = request.sidecar.iter();
    let read = request.files.iter().map(|path| snapshot(path, &mut sidecars, request));
    let snapshots = read.collect::<Result<Vec<_>, _>>()?;
    if sidecars.next().is_some() {
        return Err(ExpectedError::usage(
            "there are more sidecars than leak-info buffers",
            "a heap dump needs none; the first sidecar belongs to the first buffer, and so on",
        ));
    }
    let mut namer = Namer::new(&request.symbols)?;
    let named = request.files.iter().zip(&snapshots).map(|(path, snapshot)| show::Read {
        path,
        snapshot,
        names: if request.symbols.is_empty() { Names::new() } else { namer.names(snapshot) },
    });
    let read: Vec<show::Read<'_>> = named.collect();
    for (library, why) in namer.doubts() {
        console.warning(&format!("{library}: {why}"));
    }
    let shown = match (request.diff, read.as_slice()) {
        (true, [before, after]) => show::difference(before, after, request.json),
        _ => show::snapshots(&read, request.json, request.verbose),
    };
    let shown = shown.map_err(|why| ExpectedError::machinery(format!("cannot write JSON: {why}"), ""))?;
    if request.json {
        console.result(shown.as_bytes())?
    } else {
        console.text(&shown)?
    };
    Ok(exit::PASS)
}

fn snapshot<'a>(
    path: &Path,
    sidecars: &mut impl Iterator<Item = &'a PathBuf>,
    request: &MallocDebugArgs,
) -> Result<Snapshot, ExpectedError> {
    let bytes = read(path)?;
    let wrong = |why: String, hint: &str| ExpectedError::session(path, why, hint);
    if is_heap_dump(&bytes) {
        return read_heap_dump(&bytes).map_err(|error| wrong(error.to_string(), dump_hint(&error)));
    }
    let out = match (sidecars.next(), request.out()) {
        (Some(sidecar), _) => sidecar::read(sidecar, &read(sidecar)?)?,
        (None, Some(mut out)) => {
            out.overall_size = bytes.len() as u64;
            out
        }
        (None, None) => {
            return Err(wrong(
                "it is no heap dump, and for a leak-info buffer the out values of the call are missing"
                    .to_owned(),
                "give them: --sidecar FILE.json, or --info-size and --backtrace-size",
            ));
        }
    };
    read_leak_info(&bytes, &out).map_err(|error| wrong(error.to_string(), buffer_hint(&error)))
}

/// The bytes of a file; one that is too large, or does not end, is refused.
fn read(path: &Path) -> Result<Vec<u8>, ExpectedError> {
    let failed = || ExpectedError::file("read", path);
    let file = File::open(path).map_err(failed())?;
    let mut bytes = Vec::new();
    if file.metadata().map_err(failed())?.len() <= LARGEST {
        file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed())?;
        if bytes.len() as u64 <= LARGEST {
            return Ok(bytes);
        }
    }
    Err(ExpectedError::session(path, "it is larger than 512 MiB", "malloc_debug writes no such file"))
}

const ENABLE: &str = "start the process with malloc_debug's option `backtrace` (wrap.sh, or the property libc.debug.malloc.options)";

const fn dump_hint(error: &HeapDumpError) -> &'static str {
    match error.problem {
        HeapDumpProblem::NotEnabled => ENABLE,
        HeapDumpProblem::CutOff(_) | HeapDumpProblem::Records { .. } => {
            "pull it again when the process has written it to the end"
        }
        _ => "",
    }
}

const fn buffer_hint(error: &LeakInfoError) -> &'static str {
    match error {
        LeakInfoError::NothingMeasured => ENABLE,
        _ => "buffer and out values must be of one call",
    }
}
