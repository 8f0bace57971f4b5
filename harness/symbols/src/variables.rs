//! Variables with static storage: their names from the symbol tables, their source locations from DWARF.
//!
//! Limited: the locations are not read in files with very much debug information (`dwarf`).

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use gimli::{AttributeValue, Operation};
use object::read::ReadCache;
use object::{Object, ObjectSymbol, SymbolKind};

use crate::demangle::readable;
use crate::dwarf::{self, Slice};

/// Maximum number of variables per file.
const MOST_VARIABLES: usize = 4 << 20;

/// A variable with static storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Demangled, with its namespaces, or with the function in which it is static.
    pub name: String,
    /// Offset of the requested address in it.
    pub into: u64,
    /// Source file, as in the debug information, and line of its definition.
    pub place: Option<(String, u32)>,
}

/// The variables of one file.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    /// Sorted by address.
    statics: Vec<Named>,
    thread_locals: Vec<Named>,
    places: HashMap<(bool, u64), (String, u32)>,
}

#[derive(Debug)]
struct Named {
    start: u64,
    size: u64,
    /// The linker's name.
    name: String,
}

impl Variables {
    pub(crate) fn read(path: &Path) -> std::io::Result<Self> {
        let cache = ReadCache::new(File::open(path)?);
        let wrong = |why: object::read::Error| std::io::Error::other(why.to_string());
        let file = object::read::elf::ElfFile64::<object::LittleEndian, _>::parse(&cache).map_err(wrong)?;
        let mut variables = Self::default();
        for symbol in file.symbols().chain(file.dynamic_symbols()).take(MOST_VARIABLES) {
            let list = match symbol.kind() {
                SymbolKind::Data => &mut variables.statics,
                SymbolKind::Tls => &mut variables.thread_locals,
                _ => continue,
            };
            let (Ok(name), false) = (symbol.name(), symbol.is_undefined() || symbol.size() == 0) else {
                continue;
            };
            list.push(Named { start: symbol.address(), size: symbol.size(), name: name.to_owned() });
        }
        for list in [&mut variables.statics, &mut variables.thread_locals] {
            list.sort_by_key(|named| named.start);
        }
        // A variable without readable debug information has no location, but it still has a name.
        let sections = dwarf::sections(&file);
        variables.places =
            sections.and_then(|(sections, _)| places(&dwarf::borrowed(&sections)).ok()).unwrap_or_default();
        Ok(variables)
    }

    /// The variable at an offset.
    pub(crate) fn at(&self, offset: u64, thread_local: bool) -> Option<Variable> {
        let list = if thread_local { &self.thread_locals } else { &self.statics };
        let until = list.partition_point(|named| named.start <= offset);
        // Only a few variables may begin before the offset and also end before it.
        const FEW: usize = 16;
        let near = list.get(until.saturating_sub(FEW)..until)?.iter().rev();
        let named = near.into_iter().find(|named| offset - named.start < named.size)?;
        Some(Variable {
            name: plain(&readable(&named.name)),
            into: offset - named.start,
            place: self.places.get(&(thread_local, named.start)).cloned(),
        })
    }
}

/// The name as written in the sources.
fn plain(name: &str) -> String {
    name.replace("_GLOBAL__N_1", "(anonymous namespace)").replace("[abi:cxx11]", "")
}

/// Source locations of variables, by kind of storage and address.
fn places(dwarf: &gimli::Dwarf<Slice<'_>>) -> gimli::Result<HashMap<(bool, u64), (String, u32)>> {
    let mut places = HashMap::new();
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        let unit = dwarf.unit(header)?;
        let unit = unit.unit_ref(dwarf);
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            if entry.tag() != gimli::DW_TAG_variable || places.len() >= MOST_VARIABLES {
                continue;
            }
            let Some(AttributeValue::Exprloc(location)) = entry.attr_value(gimli::DW_AT_location) else {
                continue;
            };
            let Some(key) = storage(location, unit.encoding()) else { continue };
            if let Some(place) = place_of(&unit, entry)? {
                places.entry(key).or_insert(place);
            }
        }
    }
    Ok(places)
}

/// Is it thread-local, and what is its address?
fn storage(location: gimli::Expression<Slice<'_>>, encoding: gimli::Encoding) -> Option<(bool, u64)> {
    let mut operations = location.operations(encoding);
    let address = match operations.next().ok()?? {
        Operation::Address { address } => return Some((false, address)),
        Operation::UnsignedConstant { value } => value,
        _ => return None,
    };
    matches!(operations.next().ok()??, Operation::TLS).then_some((true, address))
}

/// A definition outside of its class may have its location only in the declaration.
fn place_of(
    unit: &gimli::UnitRef<'_, Slice<'_>>,
    entry: &gimli::DebuggingInformationEntry<Slice<'_>>,
) -> gimli::Result<Option<(String, u32)>> {
    let number = |entry: &gimli::DebuggingInformationEntry<Slice<'_>>, name| {
        entry.attr(name).and_then(|attribute| attribute.udata_value())
    };
    let line = number(entry, gimli::DW_AT_decl_line).and_then(|line| u32::try_from(line).ok());
    let file = match entry.attr_value(gimli::DW_AT_decl_file) {
        Some(AttributeValue::FileIndex(index)) => Some(index),
        _ => number(entry, gimli::DW_AT_decl_file),
    };
    let declaration = match entry.attr_value(gimli::DW_AT_specification) {
        Some(AttributeValue::UnitRef(offset)) => Some(unit.entry(offset)?),
        _ => None,
    };
    let of_declaration = |name| declaration.as_ref().and_then(|entry| number(entry, name));
    let file = file.or_else(|| match declaration.as_ref()?.attr_value(gimli::DW_AT_decl_file) {
        Some(AttributeValue::FileIndex(index)) => Some(index),
        _ => None,
    });
    let line =
        line.or_else(|| of_declaration(gimli::DW_AT_decl_line).and_then(|line| u32::try_from(line).ok()));
    let program = unit.line_program.as_ref();
    let name = file.and_then(|file| program?.header().file(file).map(gimli::FileEntry::path_name));
    let name = name.map(|name| unit.attr_string(name)).transpose()?;
    Ok(name.map(|name| name.to_string_lossy().into_owned()).zip(line))
}
