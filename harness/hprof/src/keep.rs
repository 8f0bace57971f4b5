//! What a trimmed dump keeps of its texts: those that an analysis reads, and none that a user wrote.
//!
//! Data flow: [`Heap`] → the device, the process, names of threads and of enum constants, what
//! LeakCanary noted of what it watched → ids of their arrays; and of all names that something in the
//! dump is called by. HotSpot writes every symbol of the virtual machine: those that name nothing go.

use std::collections::HashSet;

use crate::analysis::Heap;
use crate::objects::WATCHERS;

/// What is not cut out.
#[derive(Debug, Clone, Default)]
pub struct Keep {
    /// Arrays of primitives.
    pub(crate) arrays: HashSet<u64>,
    /// Texts that name something; `None`: all.
    pub(crate) names: Option<HashSet<u64>>,
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

impl Heap {
    /// What a trimmed dump must keep, so that [`Heap::analyse`] finds the same in it.
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
        Keep { arrays, names: Some(dump.names()) }
    }
}
