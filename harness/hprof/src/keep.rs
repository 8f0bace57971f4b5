//! Selects the texts that a trimmed dump keeps: the ones that an analysis reads, and none that a user wrote.
//!
//! Data flow: [`Heap`] → the device, the process, names of threads and of enum constants, LeakCanary's notes on what it
//! watched → ids of their arrays, and ids of all names that the dump uses. HotSpot writes every symbol of the virtual
//! machine: the ones that name nothing are removed. In a private copy the values of single fields are removed too (an
//! account number is a number), except those that a rule reads.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::analysis::Heap;
use crate::ids::{index, number};
use crate::index::Index;
use crate::objects::{WATCHERS, watched};
use crate::read::{REFERENCE, value_bytes};
use crate::rules::Rules;

/// Contents that trimming does not remove.
#[derive(Debug, Clone, Default)]
pub struct Keep {
    /// Arrays of primitives.
    pub(crate) arrays: HashSet<u64>,
    /// Texts that name something; `None`: all.
    pub(crate) names: Option<HashSet<u64>>,
    /// Values of single fields; `None`: all.
    pub(crate) values: Option<Values>,
    /// Equal contents stay equal: see [`Self::with_duplicates`].
    pub(crate) duplicates: bool,
}

impl Keep {
    /// Each array of bytes or characters with 8 to 32,768 elements begins with eight letters of a hash of its
    /// contents. The hash key is new each time and is not kept, so contents cannot be looked up by the hash.
    #[must_use]
    pub fn with_duplicates(self, duplicates: bool) -> Self {
        Self { duplicates, ..self }
    }
}

/// Values of single primitive fields that stay; all others become zeros.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    /// By the id of a class: the byte ranges of its instances that become zeros, in order.
    cut: HashMap<u64, Arc<[Range<u64>]>>,
    /// For instances of other classes: all bytes, because it is unknown where their references are.
    all: Arc<[Range<u64>]>,
    /// Static fields that stay: class and name.
    pub(crate) statics: HashSet<(u64, u64)>,
}

impl Values {
    pub(crate) fn to_cut(&self, class: u64) -> Arc<[Range<u64>]> {
        Arc::clone(self.cut.get(&class).unwrap_or(&self.all))
    }
}

/// Fields that hold a text.
const TEXTS: [(&str, &str); 3] = [
    ("java.lang.Thread", "name"),
    ("java.lang.Enum", "name"),
    ("android.content.pm.ApplicationInfo", "processName"),
];
/// Static fields that hold a text.
const STATIC_TEXTS: [(&str, &str); 6] = [
    ("android.os.Build", "MANUFACTURER"),
    ("android.os.Build", "ID"),
    ("android.os.Build", "BRAND"),
    ("android.os.Build", "MODEL"),
    ("android.os.Build$VERSION", "RELEASE"),
    ("android.os.Build$VERSION", "CODENAME"),
];
/// Primitive fields that say how the characters of a text are encoded.
const OF_TEXTS: [(&str, &str); 3] =
    [("java.lang.String", "coder"), ("java.lang.String", "offset"), ("java.lang.String", "count")];
/// Static primitive fields that an analysis reads.
const STATICS: [(&str, &str); 2] =
    [("android.os.Build$VERSION", "SDK_INT"), (WATCHERS[0], "heapDumpUptimeMillis")];

impl Index {
    /// Contents that a copy without any text keeps: the names of classes, fields, methods and source files. Many of
    /// HotSpot's other symbols are literals of the program.
    #[must_use]
    pub fn kept_names(&self) -> Keep {
        Keep { names: Some(self.names()), ..Keep::default() }
    }
}

impl Heap {
    /// Contents that a trimmed dump must keep so that [`Heap::analyse`] finds the same in it.
    #[must_use]
    pub fn kept(&self) -> Keep {
        let Self { dump, graph, .. } = self;
        let mut arrays = HashSet::new();
        let mut keep = |text: Option<u32>| {
            let characters = text.and_then(|text| graph.field(dump, text, "value"));
            arrays.extend(characters.map(|characters| dump.id(characters)));
        };
        let watched =
            WATCHERS.iter().flat_map(|class| [(*class, "key"), (*class, "description"), (*class, "name")]);
        for (class, field) in TEXTS.into_iter().chain(watched) {
            if dump.classes.iter().any(|known| known.name == class) {
                graph.instances(dump, class).for_each(|object| keep(graph.field(dump, object, field)));
            }
        }
        for (class, field) in STATIC_TEXTS {
            let classes = dump.classes.iter().filter(|known| known.name == class);
            let fields = classes.flat_map(|class| &class.statics);
            for found in fields.filter(|found| dump.string(found.name) == Some(field)) {
                keep(dump.object(found.value));
            }
        }
        Keep { arrays, names: Some(dump.names()), values: None, duplicates: false }
    }

    /// The same for a private copy: values of single fields are removed too, except those that these rules read.
    #[must_use]
    pub fn kept_in_private(&self, rules: &Rules) -> Keep {
        let dump = &self.dump;
        let (mut read, id_bytes) = (watched(rules), dump.header.id_bytes);
        read.extend(OF_TEXTS);
        let own = dump.field_bytes();
        let mut cut = HashMap::new();
        for (at, class) in dump.classes.iter().enumerate().filter(|(_, class)| class.instances.count > 0) {
            // A layout costs memory, so the file must have contained this many bytes.
            let bytes: u64 = dump.hierarchy(number(at)).map(|class| own[index(class)]).sum();
            if bytes > class.instances.largest {
                continue;
            }
            let (mut parts, mut offset): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
            for declares in dump.hierarchy(number(at)) {
                for field in &dump.classes[index(declares)].fields {
                    let (start, bytes) = (offset, value_bytes(field.kind, id_bytes).unwrap_or(0));
                    offset += bytes as u64;
                    let is_read = || dump.is_meant(&read, number(at), declares, field.name);
                    if field.kind == REFERENCE || is_read() {
                        continue;
                    }
                    match parts.last_mut() {
                        Some(before) if before.end == start => before.end = offset,
                        _ => parts.push(start..offset),
                    }
                }
            }
            cut.insert(class.id, parts.into());
        }
        let statics = STATICS.iter().flat_map(|(class, name)| {
            let classes = dump.classes.iter().filter(|known| known.name == *class);
            let fields = classes.flat_map(|class| class.statics.iter().map(|field| (class.id, field.name)));
            fields.filter(|(_, field)| dump.string(*field) == Some(*name))
        });
        let everything = std::iter::once(0..u64::MAX).collect();
        let values = Values { cut, all: everything, statics: statics.collect() };
        Keep { values: Some(values), ..self.kept() }
    }
}
