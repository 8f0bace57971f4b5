//! Resolves stacks to frames with functions and lines, and remembers the result.
//!
//! Data flow: a stack of a `ProcessRecord` → (module, address) pairs → what the session remembers, else
//! `memgate-symbols`, which also searches the files the user named ([`SymbolFiles`]) → model frames. The symbols
//! resolved during the run are written to `symbols.json`, so that a session can be judged again after a rebuild, and on
//! another machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memgate_analysis::{ProcessRecord, Resolve, ResolvedStack, StackStep, Variable};
use memgate_history::hex;
use memgate_model::Frame;
use memgate_symbols::{ModuleRef, Options, Symbol, Symbolizer};
use memgate_wire::Module;
use serde::{Deserialize, Serialize};

use crate::exit::ExpectedError;
use crate::run::engine::KeptFiles;
use crate::session::write_atomically;
use crate::symbol_files::SymbolFiles;

/// Name of the file in the session folder.
const FILE: &str = "symbols.json";

/// Shown for an address in no mapped file: generated code.
const NO_MODULE: &str = "[unknown]";

/// Why a module has no symbols.
#[derive(Debug)]
struct Failure {
    why: String,
    build_id: Vec<u8>,
}

/// Resolves stacks. Each address is looked up once.
#[derive(Debug)]
pub struct Symbols {
    symbolizer: Symbolizer,
    known: BTreeMap<ModuleKey, BTreeMap<u64, Vec<Known>>>,
    variables: BTreeMap<ModuleKey, Vec<KnownVariable>>,
    failures: BTreeMap<String, Failure>,
    /// Unpacked files exist as long as they are searched.
    files: SymbolFiles,
    kept: Arc<KeptFiles>,
}

/// A build of a module.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ModuleKey {
    path: String,
    build_id: Vec<u8>,
}

/// A resolved function, as stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Known {
    function: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    inlined: bool,
}

/// One module in `symbols.json`.
#[derive(Debug, Serialize, Deserialize)]
struct StoredModule {
    path: String,
    build_id: String,
    addresses: BTreeMap<u64, Vec<Known>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    variables: Vec<KnownVariable>,
}

/// The variable at an offset in the static data of a module, as stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct KnownVariable {
    offset: u64,
    thread_local: bool,
    name: String,
    into: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<(String, u32)>,
}

impl Symbols {
    /// Looks for symbols in the modules themselves, in the system's debug folders and in `files`.
    #[must_use]
    pub fn new(files: SymbolFiles) -> Self {
        Self {
            symbolizer: Symbolizer::new(Options { symbol_dirs: files.folders() }),
            known: BTreeMap::new(),
            variables: BTreeMap::new(),
            failures: BTreeMap::new(),
            files,
            kept: Arc::default(),
        }
    }

    /// Also searches files that are gone from their places.
    #[must_use]
    pub fn with_kept(self, kept: Arc<KeptFiles>) -> Self {
        Self { kept, ..self }
    }

    /// Loads the symbols that were resolved when `session` was recorded.
    ///
    /// # Errors
    /// When the session's file exists but cannot be read.
    pub fn recall(&mut self, session: &Path) -> Result<(), ExpectedError> {
        let path = session.join(FILE);
        if !path.is_file() {
            return Ok(());
        }
        let bytes = fs::read(&path).map_err(ExpectedError::file("read", &path))?;
        let stored: Vec<StoredModule> = serde_json::from_slice(&bytes).map_err(|why| {
            ExpectedError::session(path, why.to_string(), "delete it: the symbols are then looked up again")
        })?;
        for module in stored {
            let key = ModuleKey { path: module.path, build_id: from_hex(&module.build_id) };
            self.variables.entry(key.clone()).or_default().extend(module.variables);
            self.known.entry(key).or_default().extend(module.addresses);
        }
        Ok(())
    }

    /// Writes the resolved symbols into `session`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn remember(&self, session: &Path) -> Result<(), ExpectedError> {
        let keys: BTreeSet<&ModuleKey> = self.known.keys().chain(self.variables.keys()).collect();
        let none = BTreeMap::new();
        let stored: Vec<_> = keys
            .into_iter()
            .map(|key| (key, self.known.get(key).unwrap_or(&none)))
            .map(|(key, addresses)| StoredModule {
                variables: self.variables.get(key).cloned().unwrap_or_default(),
                path: key.path.clone(),
                build_id: hex(&key.build_id),
                addresses: addresses
                    .iter()
                    .filter(|(_, found)| !found.is_empty())
                    .map(|(a, f)| (*a, f.clone()))
                    .collect(),
            })
            .filter(|module| !module.addresses.is_empty() || !module.variables.is_empty())
            .collect();
        let path = session.join(FILE);
        let bytes = serde_json::to_vec(&stored)
            .map_err(|why| ExpectedError::machinery(format!("cannot write symbols: {why}"), ""))?;
        write_atomically(&path, &bytes).map_err(|why| ExpectedError::failed(&why))
    }

    /// Modules without symbols, each with the reason. Of the copies of one build only the first is named. A device's
    /// own libraries are left out, because their symbols are not available.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut builds = BTreeSet::new();
        let told = self.failures.iter().filter(|(module, _)| !is_of_android(module));
        let told =
            told.filter(move |(_, failure)| failure.build_id.is_empty() || builds.insert(&failure.build_id));
        told.map(|(module, failure)| (module.as_str(), failure.why.as_str()))
    }

    /// Whether the user named files with symbols.
    #[must_use]
    pub const fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    fn look_up(&mut self, module: &Module, address: u64) -> &[Known] {
        let key = ModuleKey { path: module.path.clone(), build_id: module.build_id.clone() };
        let Self { symbolizer, known, failures, kept, .. } = self;
        known.entry(key).or_default().entry(address).or_insert_with(|| {
            let path = PathBuf::from(&module.path);
            let path = kept.instead_of(&path).unwrap_or(path);
            let there = ModuleRef { path, build_id: module.build_id.clone() };
            match symbolizer.resolve(&there, &[address]) {
                Ok(found) => found.into_iter().flatten().map(Known::from).collect(),
                Err(why) => {
                    let failure = || Failure { why: why.to_string(), build_id: module.build_id.clone() };
                    failures.entry(module.path.clone()).or_insert_with(failure);
                    Vec::new()
                }
            }
        })
    }

    fn step(&mut self, modules: &[Arc<Module>], step: StackStep) -> Vec<Frame> {
        // `pc` is a return address: the call is before it.
        let pc = step.pc.saturating_sub(1);
        let Some(module) = modules.iter().find(|m| (m.start..m.end).contains(&pc)) else {
            return vec![Frame { offset: pc, ..unnamed(NO_MODULE) }];
        };
        let offset = pc.wrapping_sub(module.bias);
        let name = file_name(&module.path);
        let found = self.look_up(module, offset);
        if found.is_empty() {
            return vec![Frame { offset, ..unnamed(&name) }];
        }
        found
            .iter()
            .map(|known| Frame {
                function: Some(known.function.clone()),
                file: known.file.clone(),
                line: known.line,
                module: name.clone(),
                offset,
                inlined: known.inlined,
            })
            .collect()
    }
}

impl Resolve for Symbols {
    fn frames(&mut self, record: &ProcessRecord, stack: u32) -> ResolvedStack {
        let (steps, truncated) = record.stack(stack);
        let frames =
            steps.into_iter().flat_map(|step| self.step(record.modules(step.generation), step)).collect();
        ResolvedStack { frames, truncated }
    }

    fn functions(&mut self, record: &ProcessRecord, pc: u64) -> Vec<Frame> {
        if pc == 0 {
            return Vec::new();
        }
        self.step(record.last_modules(), StackStep { pc, generation: 0 })
    }

    fn variable(&mut self, module: &Module, offset: u64, thread_local: bool) -> Option<Variable> {
        let key = ModuleKey { path: module.path.clone(), build_id: module.build_id.clone() };
        let Self { symbolizer, variables, kept, .. } = self;
        let known = variables.entry(key).or_default();
        let found = known.iter().find(|it| it.offset == offset && it.thread_local == thread_local).cloned();
        let found = found.or_else(|| {
            let path = PathBuf::from(&module.path);
            let path = kept.instead_of(&path).unwrap_or(path);
            let there = ModuleRef { path, build_id: module.build_id.clone() };
            // The function look-up reports why a module has no symbols.
            let variable = symbolizer.variable(&there, offset, thread_local).ok().flatten()?;
            let memgate_symbols::Variable { name, into, place } = variable;
            let found = KnownVariable { offset, thread_local, name, into, place };
            known.push(found.clone());
            Some(found)
        })?;
        let KnownVariable { name, into, place, .. } = found;
        Some(Variable { name, into, place })
    }
}

impl From<Symbol> for Known {
    fn from(Symbol { function, file, line, inlined }: Symbol) -> Self {
        Self { function, file, line, inlined }
    }
}

/// Whether a module belongs to the system of a device.
fn is_of_android(path: &str) -> bool {
    ["/system/", "/system_ext/", "/apex/", "/vendor/", "/product/"]
        .iter()
        .any(|place| path.starts_with(place))
}

fn unnamed(module: &str) -> Frame {
    Frame { module: module.to_owned(), ..Frame::default() }
}

fn file_name(path: &str) -> String {
    Path::new(path).file_name().map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Text that is not hex gives a build id that no module has, and is never used.
fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).filter_map(|d| u8::try_from(d).ok()).collect();
    digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module() -> Module {
        Module {
            start: 0x1000,
            end: 0x2000,
            bias: 0x1000,
            path: "/gone/bin/tests".into(),
            build_id: vec![0xab, 1],
        }
    }

    #[test]
    fn an_address_without_symbols_keeps_its_module_and_offset() {
        let mut symbols = Symbols::new(SymbolFiles::default());
        let frames = symbols.step(&[Arc::new(module())], StackStep { pc: 0x1235, generation: 0 });
        assert_eq!(frames, [Frame { offset: 0x234, ..unnamed("tests") }]);
        assert!(
            symbols.failures().any(|(module, _)| module == "/gone/bin/tests"),
            "and the reader is told why"
        );
    }

    #[test]
    fn of_the_copies_of_a_library_without_symbols_only_the_first_is_named() {
        let mut symbols = Symbols::new(SymbolFiles::default());
        for (path, build_id) in
            [("/gone/plug-b", vec![1]), ("/gone/plug-a", vec![1]), ("/gone/x", vec![]), ("/gone/y", vec![])]
        {
            symbols.look_up(&Module { path: path.to_owned(), build_id, ..module() }, 0x40);
        }
        let named: Vec<_> = symbols.failures().map(|(module, _)| module).collect();
        assert_eq!(named, ["/gone/plug-a", "/gone/x", "/gone/y"]);
    }

    #[test]
    fn an_address_outside_of_every_module_is_generated_code() {
        let frames = Symbols::new(SymbolFiles::default())
            .step(&[Arc::new(module())], StackStep { pc: 0x9001, generation: 0 });
        assert_eq!(frames, [Frame { offset: 0x9000, ..unnamed("[unknown]") }]);
    }

    #[test]
    fn what_was_resolved_serves_after_the_module_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let mut recorded = Symbols::new(SymbolFiles::default());
        let key = ModuleKey { path: module().path, build_id: module().build_id };
        let known =
            Known { function: "leak()".into(), file: Some("a.cpp".into()), line: Some(7), inlined: false };
        recorded.known.entry(key).or_default().insert(0x234, vec![known]);
        recorded.remember(folder.path()).unwrap();

        let mut later = Symbols::new(SymbolFiles::default());
        later.recall(folder.path()).unwrap();
        let frames = later.step(&[Arc::new(module())], StackStep { pc: 0x1235, generation: 0 });
        assert_eq!(frames[0].function.as_deref(), Some("leak()"));
        let rebuilt = Module { build_id: vec![0xcd], ..module() };
        let frames = later.step(&[Arc::new(rebuilt)], StackStep { pc: 0x1235, generation: 0 });
        assert_eq!(frames[0].function, None, "another build's symbols are not used");
    }

    #[test]
    fn a_broken_symbols_file_is_an_error_with_a_way_out() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "{").unwrap();
        let error = Symbols::new(SymbolFiles::default()).recall(folder.path()).unwrap_err();
        assert!(error.hint().unwrap().contains("delete it"));
    }
}
