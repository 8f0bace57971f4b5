//! Full names of inlined functions without a linker name: static ones, those of unnamed namespaces, lambdas.
//!
//! Debug information gives such a function its plain name (`load`). Where it is not inlined, the linker's name has its
//! namespaces and classes, too. Both have to be equal, because the id of a leak is made from them, and a compiler may
//! inline a function in one build and not in the next.
//!
//! Data flow: the debug sections of a file, read once → the unit of an address → its entries, read once: the entries
//! around a function make its full name → the name of the function that is inlined at the address. Functions that were
//! inlined from another unit (`-flto`) keep their plain names.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

use gimli::{AttributeValue, DebugInfoOffset, DwarfSections, UnitRef};
use object::read::ReadCache;

use crate::dwarf::{self, Slice};

/// Maximum number of scopes, of inlined functions and of parts of units. Damaged files may name one part many times.
const MOST_SCOPES: usize = 4 << 20;
/// Maximum number of entries around a function. Damaged ones may form a circle.
const MOST_STEPS: usize = 64;

/// The inlined functions of one file.
#[derive(Debug)]
pub(crate) struct Inlined {
    sections: DwarfSections<Vec<u8>>,
    /// Length of the sections.
    pub(crate) bytes: u64,
    /// Start of the code of a unit → its end, and the unit.
    units: BTreeMap<u64, (u64, DebugInfoOffset)>,
    /// The functions of each unit that was needed.
    functions: BTreeMap<usize, Vec<Function>>,
}

/// An inlined function without a linker name.
#[derive(Debug)]
struct Function {
    code: Range<u64>,
    name: String,
    full: String,
}

impl Inlined {
    /// `None`: the file has no debug information that can be used.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::read::elf::ElfFile64::<object::LittleEndian, _>::parse(&cache).ok()?;
        let (sections, bytes) = dwarf::sections(&file)?;
        let units = units(&dwarf::borrowed(&sections)).ok()?;
        Some(Self { sections, bytes, units, functions: BTreeMap::new() })
    }

    /// The full name of the function called `name` that is inlined at an address; `None`: it is not known.
    pub(crate) fn full_name(&mut self, address: u64, name: &str) -> Option<&str> {
        let Self { sections, units, functions, .. } = self;
        let (_, (_, unit)) = units.range(..=address).next_back().filter(|(_, (end, _))| address < *end)?;
        let known =
            functions.entry(unit.0).or_insert_with(|| functions_of(sections, *unit).unwrap_or_default());
        let mut called = known.iter().filter(|function| function.name == name);
        let mut full = called.by_ref().filter(|function| function.code.contains(&address)).map(|f| &f.full);
        let first = full.next()?;
        full.all(|other| other == first).then_some(first)
    }
}

fn units(dwarf: &gimli::Dwarf<Slice<'_>>) -> gimli::Result<BTreeMap<u64, (u64, DebugInfoOffset)>> {
    let mut units = BTreeMap::new();
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        let Some(offset) = header.debug_info_offset() else { continue };
        let unit = dwarf.unit(header)?;
        let mut ranges = unit.unit_ref(dwarf).unit_ranges()?;
        while let Some(range) = ranges.next()?.filter(|_| units.len() < MOST_SCOPES) {
            units.insert(range.begin, (range.end, offset));
        }
    }
    Ok(units)
}

fn functions_of(sections: &DwarfSections<Vec<u8>>, offset: DebugInfoOffset) -> gimli::Result<Vec<Function>> {
    let dwarf = dwarf::borrowed(sections);
    let unit = dwarf.unit(dwarf.debug_info.header_from_offset(offset)?)?;
    let unit = unit.unit_ref(&dwarf);
    let mut scopes = Scopes::default();
    let mut inlined = Vec::new();
    // The scopes around the entry, with their depths.
    let mut open: Vec<(isize, usize)> = Vec::new();
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        open.truncate(open.partition_point(|(depth, _)| *depth < entry.depth()));
        if entry.tag() == gimli::DW_TAG_inlined_subroutine {
            let Some(origin) = reference(entry, gimli::DW_AT_abstract_origin) else { continue };
            let mut ranges = unit.die_ranges(entry)?;
            while let Some(range) = ranges.next()?.filter(|_| inlined.len() < MOST_SCOPES) {
                inlined.push((range.begin..range.end, origin));
            }
        } else if let Some(kind) = Kind::of(entry.tag()) {
            if scopes.0.len() >= MOST_SCOPES {
                return Ok(Vec::new());
            }
            let around = open.last().map(|(_, offset)| *offset);
            scopes.0.insert(entry.offset().0, Scope::new(&unit, entry, kind, around)?);
            open.push((entry.depth(), entry.offset().0));
        }
    }
    let functions = inlined.into_iter().filter_map(|(code, origin)| {
        let (name, full) = scopes.names(origin)?;
        (name != full).then(|| Function { code, name: name.to_owned(), full })
    });
    Ok(functions.collect())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Namespace,
    Type,
    Function,
}

impl Kind {
    const fn of(tag: gimli::DwTag) -> Option<Self> {
        match tag {
            gimli::DW_TAG_namespace => Some(Self::Namespace),
            gimli::DW_TAG_class_type | gimli::DW_TAG_structure_type | gimli::DW_TAG_union_type => {
                Some(Self::Type)
            }
            gimli::DW_TAG_subprogram => Some(Self::Function),
            _ => None,
        }
    }
}

/// A function, or what may be around one.
#[derive(Debug)]
struct Scope<'a> {
    kind: Kind,
    name: Option<Cow<'a, str>>,
    /// The next scope around it.
    around: Option<usize>,
    /// The entry of which it is the definition or a copy.
    of: Option<usize>,
    /// Do other units see it? Then it has a linker name.
    is_external: bool,
}

impl<'a> Scope<'a> {
    fn new(
        unit: &UnitRef<'_, Slice<'a>>,
        entry: &gimli::DebuggingInformationEntry<Slice<'a>>,
        kind: Kind,
        around: Option<usize>,
    ) -> gimli::Result<Self> {
        let name = entry.attr_value(gimli::DW_AT_name).map(|name| unit.attr_string(name)).transpose()?;
        let of = reference(entry, gimli::DW_AT_specification);
        let linked = [gimli::DW_AT_linkage_name, gimli::DW_AT_MIPS_linkage_name, gimli::DW_AT_external];
        Ok(Self {
            kind,
            name: name.map(|name| name.to_string_lossy()),
            around,
            of: of.or_else(|| reference(entry, gimli::DW_AT_abstract_origin)),
            is_external: linked.into_iter().any(|attribute| entry.attr(attribute).is_some()),
        })
    }
}

fn reference(entry: &gimli::DebuggingInformationEntry<Slice<'_>>, name: gimli::DwAt) -> Option<usize> {
    match entry.attr_value(name) {
        Some(AttributeValue::UnitRef(offset)) => Some(offset.0),
        _ => None,
    }
}

/// The scopes of a unit, by their offsets in it.
#[derive(Debug, Default)]
struct Scopes<'a>(BTreeMap<usize, Scope<'a>>);

impl Scopes<'_> {
    /// Plain and full name of a function without a linker name.
    fn names(&self, function: usize) -> Option<(&str, String)> {
        let mut names: Vec<&str> = Vec::new();
        let mut next = Some(function);
        for _ in 0..MOST_STEPS {
            let Some(offset) = next else {
                let plain = *names.first()?;
                names.reverse();
                return Some((plain, names.join("::")));
            };
            let scope = self.0.get(&offset)?;
            if names.is_empty() && (scope.kind != Kind::Function || scope.is_external) {
                return None;
            }
            next = scope.of.or(scope.around);
            if scope.of.is_none() {
                names.push(match (scope.kind, scope.name.as_deref()) {
                    (_, Some(name)) => name,
                    (Kind::Namespace, None) => "(anonymous namespace)",
                    (Kind::Type, None) if names.last() == Some(&"operator()") => "{lambda}",
                    (Kind::Type, None) => "{unnamed type}",
                    (Kind::Function, None) => return None,
                });
            }
        }
        None
    }
}
