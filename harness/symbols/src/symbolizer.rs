//! The public types, and the only place where blazesym is called.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer as Reader};

use crate::demangle::readable;
use crate::elf::ElfInfo;
use crate::find::{Finder, Found, SYSTEM_DEBUG_DIRS};
use crate::inlined::Inlined;
use crate::module::{ModuleRef, NotSymbolised};
use crate::variables::{Variable, Variables};

/// If the open files are larger than this in total, they are closed and their indexes dropped.
const MAX_OPEN_BYTES: u64 = 1 << 30;

/// Where to search for files with symbols.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Folders with unstripped or `.debug` files, at any depth: found by build id.
    pub symbol_dirs: Vec<PathBuf>,
}

/// One build of a library, found by its name alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// Its file, and its build id.
    pub module: ModuleRef,
    /// Addresses at which it contains code.
    pub code: Vec<Range<u64>>,
    /// Address that the beginning of the file is mapped to.
    pub base: u64,
}

/// One function at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Demangled function; never empty.
    pub function: String,
    /// Source file, as in the debug information.
    pub file: Option<String>,
    /// Line in it; for all but the innermost function, the line of the call.
    pub line: Option<u32>,
    /// Was it inlined into the next one?
    pub inlined: bool,
}

/// Resolves addresses. The file for a module's symbols is chosen once, at its first look-up.
///
/// Not `Send`: one per thread.
#[derive(Debug)]
pub struct Symbolizer {
    finder: Finder,
    debug_dirs: Vec<PathBuf>,
    modules: BTreeMap<ModuleRef, Result<File, NotSymbolised>>,
    variables: BTreeMap<ModuleRef, Result<Variables, NotSymbolised>>,
    inlined: BTreeMap<PathBuf, Option<Inlined>>,
    reader: Reader,
    open_bytes: u64,
}

/// A file in use.
#[derive(Debug)]
struct File {
    found: Found,
    /// Whether its debug information is used, or only its symbol table.
    debug: bool,
    /// Is it one of the files that the reader keeps open?
    open: bool,
}

impl Symbolizer {
    /// A symbolizer that also looks into the folders of `options`.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let mut debug_dirs = options.symbol_dirs.clone();
        debug_dirs.extend(SYSTEM_DEBUG_DIRS.map(PathBuf::from));
        Self {
            reader: reader(&debug_dirs),
            finder: Finder::new(options.symbol_dirs),
            debug_dirs,
            modules: BTreeMap::new(),
            variables: BTreeMap::new(),
            inlined: BTreeMap::new(),
            open_bytes: 0,
        }
    }

    /// The functions at each of `addresses` (virtual addresses of the file: `pc - 1 - bias`), innermost first; an
    /// empty list if the file knows none.
    ///
    /// # Errors
    /// There is no file of this build, or it cannot be read. The same module returns the same error again.
    pub fn resolve(
        &mut self,
        module: &ModuleRef,
        addresses: &[u64],
    ) -> Result<Vec<Vec<Symbol>>, NotSymbolised> {
        self.close_if_many();
        let Self { finder, debug_dirs, modules, inlined, reader: shared, open_bytes, .. } = self;
        let entry = modules
            .entry(module.clone())
            .or_insert_with(|| finder.find(module).map(|found| File { found, debug: true, open: false }));
        let file = entry.as_mut().map_err(|error| error.clone())?;
        if !file.open {
            file.open = true;
            *open_bytes = open_bytes.saturating_add(file.found.info.size);
        }
        loop {
            let why = match file.read(shared, addresses) {
                Ok(mut symbols) => {
                    for (address, symbols) in addresses.iter().zip(&mut symbols) {
                        name_in_full(inlined, &file.found.path, *address, symbols);
                    }
                    return Ok(symbols);
                }
                Err(Failure::Refused(why)) => why,
                Err(Failure::Panicked) => {
                    // The panic may have interrupted blazesym in the middle of a change.
                    *shared = reader(debug_dirs);
                    "its symbols contradict themselves".to_owned()
                }
            };
            if !file.debug {
                let error = NotSymbolised::Unreadable(why);
                *entry = Err(error.clone());
                return Err(error);
            }
            // The debug information is damaged, or a debug link leads to a file of another build: try only the symbol
            // table.
            file.debug = false;
        }
    }

    /// The variable with static storage at `offset` of the file's address space, or, with `thread_local`, of its
    /// block of thread-local variables; `None`: the file has none there.
    ///
    /// # Errors
    /// There is no file of this build, or it cannot be read.
    pub fn variable(
        &mut self,
        module: &ModuleRef,
        offset: u64,
        thread_local: bool,
    ) -> Result<Option<Variable>, NotSymbolised> {
        let Self { finder, variables, .. } = self;
        let entry = variables.entry(module.clone()).or_insert_with(|| {
            let found = finder.find(module)?;
            guard(|| Ok(Variables::read(&found.path))).map_or_else(
                |_panic| Err(NotSymbolised::Unreadable("its symbols contradict themselves".to_owned())),
                |read| read.map_err(|why| NotSymbolised::Unreadable(why.to_string())),
            )
        });
        entry.as_ref().map(|variables| variables.at(offset, thread_local)).map_err(Clone::clone)
    }

    /// The builds of a library in the symbol folders, for callers that know only its name.
    pub fn builds(&mut self, name: &str) -> Vec<Build> {
        let build = |found: Found| {
            let Found { path, info: ElfInfo { build_id, code, base, .. } } = found;
            Build { module: ModuleRef { path, build_id }, code, base }
        };
        self.finder.named(name).into_iter().map(build).collect()
    }

    fn close_if_many(&mut self) {
        if self.open_bytes > MAX_OPEN_BYTES {
            self.reader = reader(&self.debug_dirs);
            self.inlined.clear();
            self.open_bytes = 0;
            self.modules.values_mut().flatten().for_each(|file| file.open = false);
        }
    }
}

impl File {
    fn read(&self, reader: &Reader, addresses: &[u64]) -> Result<Vec<Vec<Symbol>>, Failure> {
        // Outside of code blazesym would return whichever symbol comes last.
        let has_code = |address: &&u64| self.found.info.code.iter().any(|code| code.contains(address));
        let known: Vec<u64> = addresses.iter().filter(has_code).copied().collect();
        let mut symbols = self.read_known(reader, &known)?.into_iter();
        let resolved = addresses.iter().map(|address| {
            let next = if has_code(&address) { symbols.next() } else { None };
            next.unwrap_or_default()
        });
        Ok(resolved.collect())
    }

    fn read_known(&self, reader: &Reader, addresses: &[u64]) -> Result<Vec<Vec<Symbol>>, Failure> {
        let source = |debug| {
            let mut elf = Elf::new(&self.found.path);
            elf.debug_syms = debug;
            Source::Elf(elf)
        };
        guard(|| {
            let found = reader.symbolize(&source(self.debug), Input::VirtOffset(addresses))?;
            let linked = reader.symbolize(&source(false), Input::VirtOffset(addresses))?;
            Ok(found.iter().zip(&linked).map(|(found, linked)| symbols(found, linked)).collect())
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Failure {
    Refused(String),
    Panicked,
}

/// All calls of blazesym and gimli go through here. blazesym is written for trusted files: contradictory DWARF, such as
/// a line of a source file that is not in its table, makes it panic.
fn guard<T>(call: impl FnOnce() -> blazesym::Result<T>) -> Result<T, Failure> {
    match panic::catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| Failure::Refused(error.to_string())),
        Err(_panic) => Err(Failure::Panicked),
    }
}

fn reader(debug_dirs: &[PathBuf]) -> Reader {
    Reader::builder()
        .enable_auto_reload(false)
        .enable_code_info(true)
        .enable_inlined_fns(true)
        // We demangle names ourselves, with limits: see `demangle`.
        .enable_demangling(false)
        .set_debug_dirs(Some(debug_dirs))
        .build()
}

/// Innermost first. blazesym returns the function and then the functions inlined into it, outermost first.
fn symbols(found: &Symbolized<'_>, linked: &Symbolized<'_>) -> Vec<Symbol> {
    let Symbolized::Sym(Sym { name, code_info, inlined, .. }) = found else { return Vec::new() };
    let inner =
        inlined.iter().rev().map(|function| symbol(&function.name, function.code_info.as_ref(), true));
    let mut inner: Vec<Symbol> = inner.collect();
    let mut outer = symbol(name, code_info.as_deref(), false);
    // DWARF has only `load` if a function is static or in an unnamed namespace; the linker's name is complete.
    if let Symbolized::Sym(linked) = linked {
        let full = readable(&linked.name);
        if full != linked.name && full.contains(name.as_ref()) {
            outer.function = full;
        }
    }
    // An inlined lambda has only the name `operator()`, like function objects of the standard library. The caller of a
    // lambda has the lambda among its template arguments.
    let is_called = |symbol: &&mut Symbol| {
        let is_of_library = symbol.file.as_deref().is_some_and(|file| file.contains("/include/c++/"));
        symbol.function.starts_with("operator()") && !is_of_library
    };
    let called = inner.iter_mut().rev().find(is_called);
    if let Some((called, lambda)) = called.zip(lambda_argument(&outer.function)) {
        called.function = format!("{lambda}::{}", called.function);
    }
    inner.into_iter().chain([outer]).filter(|symbol| !symbol.function.is_empty()).collect()
}

/// Gives functions that are inlined at an address their full names, if they have only plain ones.
fn name_in_full(
    known: &mut BTreeMap<PathBuf, Option<Inlined>>,
    file: &Path,
    address: u64,
    symbols: &mut [Symbol],
) {
    // A linker's name has parameters. C has no namespaces.
    let is_plain = |name: &str| name == "operator()" || !name.contains(['(', ':']);
    let is_of_c = |symbol: &Symbol| symbol.file.as_deref().is_some_and(|file| file.ends_with(".c"));
    let plain = |symbol: &&mut Symbol| symbol.inlined && is_plain(&symbol.function) && !is_of_c(symbol);
    for symbol in symbols.iter_mut().filter(plain) {
        if !known.contains_key(file) {
            let read = guard(|| Ok(Inlined::read(file))).unwrap_or_default();
            let bytes = |known: &Option<Inlined>| known.as_ref().map_or(0, |known| known.bytes);
            if known.values().map(bytes).sum::<u64>().saturating_add(bytes(&read)) > MAX_OPEN_BYTES {
                known.clear();
            }
            known.insert(file.to_owned(), read);
        }
        let Some(Some(known_here)) = known.get_mut(file) else { continue };
        let full = guard(|| Ok(known_here.full_name(address, &symbol.function).map(str::to_owned)));
        match full {
            Ok(Some(full)) => symbol.function = full,
            Ok(None) => {}
            Err(_contradiction) => {
                known.insert(file.to_owned(), None);
            }
        }
    }
}

/// `Registry::collect()::{lambda()#1}` of `std::thread::_State_impl<std::tuple<Registry::collect()::{lambda()#1}> >`;
/// `None`: there is none, or more than one.
fn lambda_argument(function: &str) -> Option<&str> {
    let mut lambdas =
        arguments(function).filter(|argument| argument.ends_with('}') && argument.contains("::{lambda("));
    let first = lambdas.next()?;
    lambdas.all(|other| other == first).then_some(first)
}

/// The innermost template arguments of a name.
fn arguments(function: &str) -> impl Iterator<Item = &str> {
    let (mut begins, mut parentheses, mut previous) = (None, 0_usize, ' ');
    function.char_indices().filter_map(move |(at, c)| {
        let is_arrow = std::mem::replace(&mut previous, c) == '-';
        let mut ended = None;
        match c {
            '(' | '{' => parentheses += 1,
            ')' | '}' => parentheses = parentheses.saturating_sub(1),
            _ if parentheses > 0 => {}
            '<' => begins = Some(at + 1),
            ',' => ended = begins.replace(at + 1),
            '>' if !is_arrow => ended = begins.take(),
            _ => {}
        }
        ended.and_then(|begin: usize| function.get(begin..at)).map(str::trim)
    })
}

fn symbol(name: &str, place: Option<&CodeInfo<'_>>, inlined: bool) -> Symbol {
    Symbol {
        function: readable(name),
        file: place.map(|place| place.to_path().to_string_lossy().into_owned()),
        line: place.and_then(|place| place.line),
        inlined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lambda_is_found_among_the_template_arguments_of_what_calls_it() {
        let collect = "prometheus::Registry::Collect() const::{lambda(std::vector<int, X>&)#1}";
        for (function, lambda) in [
            (
                format!("std::thread::_State_impl<std::thread::_Invoker<std::tuple<{collect}> > >::_M_run()"),
                Some(collect),
            ),
            (
                format!("std::_Function_handler<void (int), {collect}>::_M_invoke(std::_Any_data const&)"),
                Some(collect),
            ),
            (
                format!("void std::__invoke_impl<void, {collect}>(std::__invoke_other, {collect}&&)"),
                Some(collect),
            ),
            (format!("void each<{collect}, other()::{{lambda()#1}}>()"), None),
            ("void std::thread::run<void (*)(int)>()".to_owned(), None),
            ("operator<".to_owned(), None),
        ] {
            assert_eq!(lambda_argument(&function), lambda, "{function}");
        }
    }

    #[test]
    fn a_panic_of_the_reader_is_an_error_value() {
        assert_eq!(guard::<()>(|| panic!("index out of bounds")), Err(Failure::Panicked));
        let io = || Err(std::io::Error::other("no such luck").into());
        assert_eq!(guard::<()>(io), Err(Failure::Refused("no such luck".to_owned())));
    }
}
