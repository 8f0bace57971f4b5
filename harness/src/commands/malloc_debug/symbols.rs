//! Names for the frames of a heap dump, from folders of unstripped libraries and from APKs.
//!
//! Data flow: `--symbols` → folders ([`SymbolFiles`]) → an address of the dump → its mapping (`MAPS`) → the library's
//! name and start → its build → function, file and line.
//!
//! A dump contains names of libraries but no build ids. So a build is only used if its code has the same position in
//! the file as in the process's mapping; if an APK was named, only builds in it are used. Their symbols may come from
//! the folders, by build id. Undecidable frames get no name, and this is reported; so is a build that is known only by
//! its name and the position of its code.

use std::collections::BTreeMap;
use std::path::PathBuf;

use memgate_formats::malloc_debug::{Mapping, Snapshot};
use memgate_history::hex;
use memgate_symbols::{Build, Options, Symbol, Symbolizer};

use crate::exit::ExpectedError;
use crate::symbol_files::{Packed, SymbolFiles};

/// Page sizes of Android's and Linux's kernels, to which mappings are rounded.
const PAGES: [u64; 3] = [4096, 16_384, 65_536];

/// Functions of a snapshot's frames, by address, innermost first.
pub(super) type Names = BTreeMap<u64, Vec<Symbol>>;

/// Finds the names of frames.
pub(super) struct Namer {
    symbolizer: Symbolizer,
    /// Build ids of the libraries of APKs, by file name.
    packed: BTreeMap<String, Vec<Vec<u8>>>,
    /// Libraries that are stored uncompressed in an APK, and mapped from there.
    within: Vec<Within>,
    /// Why frames of a library have no name, or may have a wrong one.
    doubts: BTreeMap<String, String>,
    _files: SymbolFiles,
}

/// A stored entry of an APK.
struct Within {
    apk: String,
    place: u64,
    library: String,
}

impl Namer {
    /// Uses the symbols in these folders and APKs.
    pub(super) fn new(sources: &[PathBuf]) -> Result<Self, ExpectedError> {
        let files = SymbolFiles::open(sources)?;
        let mut packed = BTreeMap::<String, Vec<Vec<u8>>>::new();
        let mut within = Vec::new();
        let mut of_apks = Symbolizer::new(Options { symbol_dirs: files.of_apks() });
        for Packed { apk, library, place } in files.packed() {
            let ids = of_apks.builds(library).into_iter().map(|build| build.module.build_id);
            packed.insert(library.clone(), ids.collect());
            if let Some(place) = *place {
                // Its own file name, and its name when installed.
                let names = [apk.clone(), "base.apk".to_owned()];
                within.extend(names.map(|apk| Within { apk, place, library: library.clone() }));
            }
        }
        let symbolizer = Symbolizer::new(Options { symbol_dirs: files.folders() });
        Ok(Self { symbolizer, packed, within, doubts: BTreeMap::new(), _files: files })
    }

    /// Names for every frame of `snapshot`.
    pub(super) fn names(&mut self, snapshot: &Snapshot) -> Names {
        let mut names = Names::new();
        for pc in snapshot.records.iter().flat_map(|record| &record.frames) {
            if !names.contains_key(pc) {
                names.insert(*pc, self.name(snapshot, *pc));
            }
        }
        names
    }

    /// Libraries whose frames have no name, or perhaps a wrong one, each with the reason.
    pub(super) fn doubts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.doubts.iter().map(|(library, why)| (library.as_str(), why.as_str()))
    }

    fn name(&mut self, snapshot: &Snapshot, pc: u64) -> Vec<Symbol> {
        let Some(mapping) = snapshot.maps.mapping(pc) else { return Vec::new() };
        let Some((library, offset)) = self.library(mapping) else { return Vec::new() };
        // Start of the library: the nearest mapping of its first byte before `pc`.
        let starts =
            snapshot.maps.iter().filter(|m| m.name == mapping.name && m.offset == offset && m.start <= pc);
        let Some(start) = starts.map(|m| m.start).max() else { return Vec::new() };
        match self.resolve(&library, mapping, start, pc) {
            Ok(symbols) => symbols,
            Err(why) => {
                // Symbols of system libraries are never available, so no doubt is reported.
                if !mapping.name.starts_with("/system/") && !mapping.name.starts_with("/apex/") {
                    self.doubts.entry(mapping.name.clone()).or_insert_with(|| format!("no symbols: {why}"));
                }
                Vec::new()
            }
        }
    }

    /// The library mapped here, and the offset of its file in the mapped file.
    fn library(&self, mapping: &Mapping) -> Option<(String, u64)> {
        let name = file_name(&mapping.name);
        if !mapping.name.starts_with('/') {
            return None;
        }
        let apk = self.within.iter().filter(|within| within.apk == name && within.place <= mapping.offset);
        match apk.max_by_key(|within| within.place) {
            Some(within) => Some((within.library.clone(), within.place)),
            None => Some((name.to_owned(), 0)),
        }
    }

    fn resolve(
        &mut self,
        library: &str,
        mapping: &Mapping,
        start: u64,
        pc: u64,
    ) -> Result<Vec<Symbol>, String> {
        let known = self.symbolizer.builds(library);
        if known.is_empty() {
            return Err(format!("no file {library} with a build id is in what --symbols names"));
        }
        let packed = self.packed.get(library);
        let is_packed = |build: &&Build| packed.is_none_or(|ids| ids.contains(&build.module.build_id));
        let fitting: Vec<&Build> =
            known.iter().filter(is_packed).filter(|build| fits(build, mapping, start)).collect();
        let build = match fitting.as_slice() {
            [only] => *only,
            [] => {
                return Err(format!(
                    "the {library} at hand is of another build: its code lies elsewhere in the file"
                ));
            }
            several => {
                return Err(format!(
                    "{} builds of {library} fit: name the APK too, or a folder with one of them",
                    several.len()
                ));
            }
        };
        if packed.is_none() {
            let id = hex(&build.module.build_id);
            let doubt = format!(
                "named by the build {id}: a dump does not say which build it was; with the APK in --symbols it is known"
            );
            self.doubts.entry(mapping.name.clone()).or_insert(doubt);
        }
        // The process already moved the addresses back into the call.
        let address = pc.wrapping_sub(start).wrapping_add(build.base);
        let found = self.symbolizer.resolve(&build.module, &[address]).map_err(|why| why.to_string())?;
        Ok(found.into_iter().next().unwrap_or_default())
    }
}

/// Whether the code of this build matches the position of the code mapping.
fn fits(build: &Build, mapping: &Mapping, start: u64) -> bool {
    let place = |address: u64| address.wrapping_sub(start).wrapping_add(build.base);
    let (from, to) = (place(mapping.start), place(mapping.end));
    build.code.iter().any(|code| {
        PAGES.iter().any(|page| {
            code.start & !(page - 1) == from && code.end.checked_next_multiple_of(*page) == Some(to)
        })
    })
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
