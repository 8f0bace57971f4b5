//! Finds the best file for a module: the same build id, and as much symbol information as possible.
//!
//! Order: the path that the loader used, the user's symbol folders (indexed once, by build id), the system's debug
//! folders. The first file with lines ends the search. blazesym follows debug links inside a file later.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::elf::{ElfError, ElfInfo, Knows};
use crate::module::{ModuleRef, NotSymbolised};

/// Folders in which distributions install files with symbols.
pub(crate) const SYSTEM_DEBUG_DIRS: [&str; 2] = ["/usr/lib/debug", "/lib/debug"];

/// Maximum number of entries read in the symbol folders, so that a folder given by mistake (`/`) does not take
/// forever.
const MAX_ENTRIES: usize = 200_000;

/// Suffixes after the name of a library in the name of its file with symbols.
const SUFFIXES: [&str; 4] = ["", ".debug", ".dbg", ".sym"];

/// A file to take symbols from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) info: ElfInfo,
}

/// Finds files by module.
#[derive(Debug)]
pub(crate) struct Finder {
    symbol_dirs: Vec<PathBuf>,
    index: Option<BTreeMap<Vec<u8>, PathBuf>>,
}

impl Finder {
    pub(crate) fn new(symbol_dirs: Vec<PathBuf>) -> Self {
        Self { symbol_dirs, index: None }
    }

    /// The file with most symbol information for this build of `module`.
    pub(crate) fn find(&mut self, module: &ModuleRef) -> Result<Found, NotSymbolised> {
        let own = match_build(&module.path, module);
        if own.as_ref().is_ok_and(|own| own.info.knows == Knows::Lines) {
            return own;
        }
        let mut best = own;
        for path in self.by_build_id(&module.build_id) {
            let Ok(other) = match_build(&path, module) else { continue };
            if best.as_ref().map_or(true, |best| best.info.knows < other.info.knows) {
                best = Ok(other);
            }
        }
        best.map_err(|why| match why {
            NotSymbolised::Missing | NotSymbolised::BuildIdDiffers => {
                self.what_is_there(module).unwrap_or(why)
            }
            // The file itself exists.
            _ => why,
        })
    }

    /// The reason why the symbol folders have no file for this build: the user who named them can fix that.
    fn what_is_there(&mut self, module: &ModuleRef) -> Option<NotSymbolised> {
        if self.symbol_dirs.is_empty() {
            return None;
        }
        if module.build_id.is_empty() {
            return Some(NotSymbolised::NoBuildId);
        }
        let wanted = hex(&module.build_id);
        let name = module.path.file_name()?.to_string_lossy().into_owned();
        let Some(other) = self.named(&name).into_iter().next() else {
            return Some(NotSymbolised::NotInFolders(wanted));
        };
        Some(NotSymbolised::OtherBuild { path: other.path, its: hex(&other.info.build_id), wanted })
    }

    /// The files with this name in the symbol folders, one per build: `libtiles.so`, `libtiles.so.debug`.
    pub(crate) fn named(&mut self, name: &str) -> Vec<Found> {
        let index = self.index.get_or_insert_with(|| index(&self.symbol_dirs));
        let is_named = |path: &Path| {
            let own = path.file_name().map(|own| own.to_string_lossy()).unwrap_or_default();
            SUFFIXES.iter().any(|suffix| own.strip_suffix(suffix) == Some(name))
        };
        let paths = index.values().filter(|path| is_named(path));
        paths.filter_map(|path| Some(Found { info: ElfInfo::read(path).ok()?, path: path.clone() })).collect()
    }

    fn by_build_id(&mut self, id: &[u8]) -> Vec<PathBuf> {
        let Some((first, rest)) = id.split_first() else { return Vec::new() };
        let index = self.index.get_or_insert_with(|| index(&self.symbol_dirs));
        let below = format!(".build-id/{first:02x}/{}.debug", hex(rest));
        let system = SYSTEM_DEBUG_DIRS.map(|dir| Path::new(dir).join(&below));
        index.get(id).cloned().into_iter().chain(system).collect()
    }
}

/// The file at `path`, if it is this build of `module`.
fn match_build(path: &Path, module: &ModuleRef) -> Result<Found, NotSymbolised> {
    match ElfInfo::read(path) {
        Ok(info) if info.build_id == module.build_id => Ok(Found { path: path.to_owned(), info }),
        Ok(_) => Err(NotSymbolised::BuildIdDiffers),
        Err(ElfError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(NotSymbolised::Missing)
        }
        Err(error) => Err(NotSymbolised::Unreadable(error.to_string())),
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every ELF file with a build id below `dirs`. If several have the same id, the one with most symbol information.
/// Symbolic links to folders are not followed (they may form circles), and unreadable entries are skipped.
fn index(dirs: &[PathBuf]) -> BTreeMap<Vec<u8>, PathBuf> {
    let mut found: BTreeMap<Vec<u8>, (Knows, PathBuf)> = BTreeMap::new();
    let mut open: Vec<PathBuf> = dirs.iter().rev().cloned().collect();
    let mut entries = 0;
    'search: while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            entries += 1;
            if entries > MAX_ENTRIES {
                break 'search;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
                continue;
            }
            let Ok(info) = ElfInfo::read(&entry.path()) else { continue };
            let better = found.get(&info.build_id).is_none_or(|(knows, _)| *knows < info.knows);
            if better && !info.build_id.is_empty() {
                found.insert(info.build_id, (info.knows, entry.path()));
            }
        }
    }
    found.into_iter().map(|(id, (_, path))| (id, path)).collect()
}
