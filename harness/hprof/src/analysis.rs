//! Leaks of a dump: objects no longer in use that are still there, what holds them, and how much they retain.
//!
//! Data flow: [`Index`], [`Graph`] → texts that rules need (device, names of threads) → objects no longer in use, found
//! by rules, by LeakCanary's own references, or by request → [`crate::search`] → one more pass for the details that are
//! shown → [`tell`]: reasons along each path, suspects, fingerprint → groups, most attributed bytes first.

mod tell;

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::contents::{Contents, Wanted};
use crate::follow::{Collections, Follow};
use crate::graph::{Graph, Kind};
use crate::ids::number;
use crate::index::Index;
use crate::looked::{Found, MOST_PATHS};
use crate::mistakes::mistakes;
use crate::objects::{Inspector, watched};
use crate::read::{DumpFile, Oddities, Progress, ReadError};
use crate::rules::{Device, Rules};
use crate::search::{Cut, Path, Search, Searched, ways};
use crate::text::printable;
pub use tell::root_name;
use tell::{Teller, wanted_of_paths};

/// Largest number of steps in all paths; further paths are not built.
const MOST_STEPS: usize = 1_000_000;
/// Bytes of texts in all paths, and of all unreachable objects. Objects beyond this limit are only counted.
const MOST_TEXT: usize = 64 << 20;

/// What to search for.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Classes of the objects to search for, or their ids (`0x…`).
    pub wanted: Vec<String>,
    /// Search only for these objects.
    pub only_wanted: bool,
    /// Number of paths to the first of these objects, each reported separately; 0: report only the shortest path to
    /// each object.
    pub ways: usize,
}

/// Result of an analysis.
#[derive(Debug, Clone, Serialize)]
pub struct Analysis {
    /// Properties of the dump.
    pub about: About,
    /// Groups of leaks of the program, most attributed bytes first.
    pub leaks: Vec<Leak>,
    /// Groups of known leaks of libraries.
    pub library_leaks: Vec<Leak>,
    /// Objects that are no longer in use and that no live object holds.
    pub unreachable: Vec<Node>,
    /// Number of further such objects, which are not listed.
    pub unreachable_more: u64,
    /// Bytes that all leaks together retain.
    pub attributed_bytes: u64,
    /// Number of objects that all leaks together retain.
    pub attributed_objects: u64,
    /// Number of objects whose paths were not examined, because there are too many.
    pub not_looked_at: u64,
    /// User rules that can never match in this dump, in sentences.
    pub mistakes: Vec<String>,
}

/// Properties of a dump.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct About {
    /// Title of the format: `JAVA PROFILE 1.0.x`.
    pub format: String,
    /// Bytes of an object id: 4 or 8.
    pub id_bytes: usize,
    /// Time when the dump was written, in milliseconds since 1970; 0: unknown.
    pub milliseconds: u64,
    /// Size of the file in bytes, unpacked.
    pub file_bytes: u64,
    /// Android API level; `null`: no Android dump.
    pub sdk: Option<i64>,
    /// Manufacturer of the Android device; `null`: unknown.
    pub manufacturer: Option<String>,
    /// Name of the Android process; `null`: unknown.
    pub process: Option<String>,
    /// Number of class objects.
    pub classes: u64,
    /// Number of instances.
    pub instances: u64,
    /// Number of object arrays.
    pub object_arrays: u64,
    /// Number of primitive arrays.
    pub primitive_arrays: u64,
    /// Number of threads that have an object.
    pub threads: u64,
    /// Bytes of all objects, according to the file.
    pub heap_bytes: u64,
    /// Number of objects that the search for leaks visited.
    pub met: u64,
    /// Number of Android bitmaps.
    pub bitmaps: u64,
    /// Number of LeakCanary's references whose object was collected.
    pub cleared: u64,
    /// Number of rules that find objects no longer in use and apply to a class of the dump; LeakCanary's references
    /// count as one rule. 0: only requested objects were searched for.
    pub rules: usize,
    /// Descriptions of oddities of the dump.
    pub odd: Vec<String>,
    /// Is a part of the heap missing?
    pub truncated: bool,
}

/// Leaks with the same fingerprint.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Leak {
    /// LeakCanary's fingerprint of the leak: 40 hexadecimal digits.
    pub fingerprint: String,
    /// Pattern of the known library leak; `null`: the leak is one of the program.
    pub library: Option<String>,
    /// LeakCanary's name of the known library leak; `null`: the leak is one of the program.
    pub library_name: Option<String>,
    /// Number of leaking objects.
    pub instances: u64,
    /// Classes of the leaking objects, the most frequent first, at most ten.
    pub classes: Vec<OfClass>,
    /// Bytes attributed to the leaking objects. Each byte is attributed to only one leak.
    pub attributed: u64,
    /// Number of objects attributed to the leaking objects.
    pub objects: u64,
    /// Exact number of bytes that the first leaking object retains; `null`: not computed (`--exact`).
    pub retained: Option<u64>,
    /// Path from the root to the first leaking object.
    pub path: Vec<Node>,
    /// Kind of the root.
    pub root: &'static str,
}

/// Leaking objects of one class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OfClass {
    /// The class.
    pub class: String,
    /// Number of leaking objects of this class.
    pub instances: u64,
}

/// An object on a path.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Node {
    /// Object id.
    pub id: u64,
    /// Class of the object; for a class object, the class itself.
    pub class: String,
    /// Kind of the object: `class`, `array` or `instance`.
    pub kind: &'static str,
    /// Whether the object is in use.
    pub status: Status,
    /// Reasons for the status; empty if it is unknown.
    pub why: String,
    /// Labels that describe the object, as in LeakCanary.
    pub labels: Vec<String>,
    /// Reference to the next object of the path; `null` for the last object.
    pub reference: Option<Reference>,
}

/// A reference to the next object of a path.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Reference {
    /// Class that declares the field.
    pub owner: String,
    /// Name of the field, or the index or key in brackets.
    pub name: String,
    /// Kind of the reference: `field`, `static`, `element`, `local` or `class`.
    pub kind: &'static str,
    /// Whether this reference may be the cause of the leak.
    pub suspect: bool,
    /// The name for the fingerprint, without indexes and keys.
    #[serde(skip)]
    pub(crate) generic: String,
    /// Is it a value of a map, named by its key?
    #[serde(skip)]
    pub(crate) is_value: bool,
}

/// Whether an object is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The object is no longer in use.
    Leaking,
    /// The object is in use.
    NotLeaking,
    /// It is unknown whether the object is in use.
    Unknown,
}

/// Index and references of a dump, ready for questions.
#[derive(Debug)]
pub struct Heap {
    /// The file.
    pub file: DumpFile,
    /// Result of the first pass.
    pub dump: Index,
    /// Result of the second pass.
    pub graph: Graph,
}

impl Heap {
    /// Reads a dump twice.
    ///
    /// # Errors
    /// The file cannot be read, or is not a heap dump.
    pub fn read(file: DumpFile, rules: &Rules, progress: Progress<'_>) -> Result<Self, ReadError> {
        let dump = Index::read(&file, progress)?;
        Self::of(file, dump, rules, progress)
    }

    /// Reads a dump a second time.
    ///
    /// # Errors
    /// The file cannot be read any more.
    pub fn of(file: DumpFile, dump: Index, rules: &Rules, progress: Progress<'_>) -> Result<Self, ReadError> {
        let graph = Graph::read(&file, &dump, &watched(rules), progress)?;
        Ok(Self { file, dump, graph })
    }

    /// Objects of a class, or (`0x…`) with an id. `None`: there is none.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Vec<u32>> {
        let found = match name.strip_prefix("0x").or_else(|| name.strip_prefix('@')) {
            Some(hex) => {
                let id = u64::from_str_radix(hex.trim_start_matches("0x"), 16).ok()?;
                self.dump.object(id).into_iter().collect()
            }
            None => {
                let exact = |object: &u32| {
                    matches!(self.graph.kind(*object), Kind::Of(_) | Kind::Primitives(_))
                        && self.graph.class_name(&self.dump, *object) == name
                };
                (0..self.graph.len()).map(number).filter(exact).collect::<Vec<u32>>()
            }
        };
        (!found.is_empty()).then_some(found)
    }

    /// Searches for leaks.
    ///
    /// # Errors
    /// The dump cannot be read any more.
    pub fn analyse(
        &self,
        rules: &Rules,
        question: &Question,
        progress: Progress<'_>,
    ) -> Result<Analysis, ReadError> {
        let mut work = Work::new(self, rules, Collections::LeakCanarys, progress)?;
        let mut wanted = if question.only_wanted { Vec::new() } else { work.inspector.leaking() };
        for name in &question.wanted {
            wanted.extend(self.named(name).unwrap_or_default());
        }
        wanted.sort_unstable();
        wanted.dedup();
        if question.ways > 0 {
            wanted.truncate(1);
        }
        if wanted.iter().any(|object| work.follow.is_behind_leaves(*object)) {
            work.follow.open_leaves();
        }
        let native = native_bytes(self);
        let Work { follow, device, .. } = &work;
        let search = Search { follow, rules, device, wanted: &wanted, native: &native };
        let searched = |cut: &Cut| search.without(cut, progress);
        let all = searched(&Cut::new());
        let (found, paths) = if question.ways > 0 {
            ways(follow, question.ways, MOST_STEPS, &all, searched).into_iter().unzip()
        } else {
            (all.found.clone(), all.paths(follow, MOST_PATHS, MOST_STEPS))
        };
        work.tell(&all, (&found, &paths), question.ways == 0, progress)
    }
}

/// One analysis.
pub(crate) struct Work<'a> {
    heap: &'a Heap,
    rules: &'a Rules,
    inspector: Inspector<'a>,
    pub(crate) follow: Follow<'a>,
    pub(crate) device: Device,
    process: Option<String>,
}

impl<'a> Work<'a> {
    pub(crate) fn new(
        heap: &'a Heap,
        rules: &'a Rules,
        collections: Collections,
        progress: Progress<'_>,
    ) -> Result<Self, ReadError> {
        let Heap { dump, graph, .. } = heap;
        let inspector = Inspector::new(dump, graph, rules);
        let (device, process, locals) = before(heap, rules, &inspector, progress)?;
        let follow = Follow::new(dump, graph, rules, &device, locals, collections);
        Ok(Self { heap, rules, inspector, follow, device, process })
    }

    /// Builds the report for these paths. `grouped`: merge leaks with the same fingerprint.
    fn tell(
        mut self,
        searched: &Searched,
        (found, paths): (&[Found], &[Path]),
        grouped: bool,
        progress: Progress<'_>,
    ) -> Result<Analysis, ReadError> {
        let Heap { file, dump, graph } = self.heap;
        let (mut shown, mut wanted) = wanted_of_paths(self.heap, found, paths);
        let unreachable = &searched.unreachable[..searched.unreachable.len().min(MOST_PATHS)];
        shown.extend(unreachable);
        shown.sort_unstable();
        shown.dedup();
        for object in &shown {
            self.inspector.want(&mut wanted, *object);
        }
        let contents = Contents::read(file, dump, wanted, progress)?;
        self.inspector.take(&contents, shown.iter().copied());
        let told = Teller::new(&self, &contents);
        let (mut leaks, looked_at) = told.leaks(found, paths, grouped);
        leaks.sort_by_key(|leak| std::cmp::Reverse(leak.attributed));
        let (mut gone, mut room) = (Vec::new(), MOST_TEXT);
        for object in unreachable {
            let node = told.last(*object);
            room = room.saturating_sub(node.bytes());
            gone.push(node);
            if room == 0 {
                break;
            }
        }
        let (library_leaks, leaks) = leaks.into_iter().partition(|leak| leak.library.is_some());
        let more = if grouped { searched.more } else { 0 };
        let mut odd = dump.odd.clone();
        odd.add_all(&graph.odd);
        if self.follow.exhausted.get() {
            odd.add_found_later(crate::read::Odd::Collections, 1);
        }
        Ok(Analysis {
            about: self.about(searched, &odd),
            leaks,
            library_leaks,
            unreachable_more: (searched.unreachable.len() - gone.len()) as u64,
            unreachable: gone,
            attributed_bytes: searched.attributed.0,
            attributed_objects: searched.attributed.1,
            not_looked_at: instances(found) - looked_at + more,
            mistakes: mistakes(dump, graph, self.rules),
        })
    }

    fn about(&self, searched: &Searched, odd: &Oddities) -> About {
        let Heap { dump, graph, .. } = self.heap;
        let threads = dump.roots.iter().filter(|root| root.tag == 0x08 && dump.object(root.id).is_some());
        let heap_bytes =
            (0..graph.len()).map(|object| graph.bytes(number(object))).fold(0, u64::saturating_add);
        let bitmaps = dump.classes.iter().filter(|class| class.name == "android.graphics.Bitmap");
        About {
            format: dump.header.title.clone(),
            id_bytes: dump.header.id_bytes,
            milliseconds: dump.header.milliseconds,
            file_bytes: dump.bytes,
            sdk: self.device.sdk,
            manufacturer: self.device.manufacturer.clone(),
            process: self.process.clone(),
            classes: dump.counts.classes,
            instances: dump.counts.instances,
            object_arrays: dump.counts.object_arrays,
            primitive_arrays: dump.counts.primitive_arrays,
            threads: threads.count() as u64,
            heap_bytes,
            met: searched.met,
            bitmaps: bitmaps.map(|class| class.instances.count).sum(),
            cleared: self.inspector.cleared,
            rules: self.inspector.applicable(),
            odd: odd.sentences().collect(),
            truncated: odd.truncated(),
        }
    }
}

/// Reads what a search needs: the device, the process, and the local variables of threads.
fn before(
    heap: &Heap,
    rules: &Rules,
    inspector: &Inspector<'_>,
    progress: Progress<'_>,
) -> Result<(Device, Option<String>, crate::search::Locals), ReadError> {
    let Heap { file, dump, graph } = heap;
    let mut device = Device { android: false, ..Device::default() };
    device.sdk = inspector.static_number("android.os.Build$VERSION", "SDK_INT");
    device.android = device.sdk.is_some();
    let mut wanted = Wanted::default();
    let field = |object: Option<u32>, name| graph.field(dump, object?, name);
    let texts = ["MANUFACTURER", "ID"].map(|name| inspector.static_reference("android.os.Build", name));
    let thread = inspector.static_reference("android.app.ActivityThread", "sCurrentActivityThread");
    let bound = field(field(thread, "mBoundApplication"), "appInfo");
    let process = field(bound, "processName");
    for text in texts.into_iter().chain([process]).flatten() {
        wanted.text(dump, graph, text);
    }
    // Rules about locals use names of threads only on Android.
    let name = |thread| field(Some(thread), "name");
    if device.android {
        let threads = dump.roots.iter().filter(|root| root.tag == 0x08);
        for name in threads.filter_map(|root| name(dump.object(root.id)?)) {
            wanted.text(dump, graph, name);
        }
    }
    let contents = Contents::read(file, dump, wanted, progress)?;
    let text = |text: Option<u32>| contents.text(dump, graph, text?);
    let [manufacturer, build_id] = texts;
    (device.manufacturer, device.build_id) = (text(manufacturer), text(build_id));
    let process = text(process).map(|process| printable(&process));
    let locals = crate::search::locals(dump, rules, &device, |thread| text(name(thread)));
    Ok((device, process, locals))
}

/// Bytes of native memory that Android's cleaners free, by the object that owns them.
pub(crate) fn native_bytes(heap: &Heap) -> HashMap<u32, u64> {
    let Heap { dump, graph, .. } = heap;
    let mut bytes: HashMap<u32, u64> = HashMap::new();
    let thunk_class = "libcore.util.NativeAllocationRegistry$CleanerThunk";
    if !dump.classes.iter().any(|class| class.name == thunk_class) {
        return bytes;
    }
    for cleaner in graph.instances(dump, "sun.misc.Cleaner") {
        let field = |object, name| graph.field(dump, object, name);
        let size = || {
            let thunk =
                field(cleaner, "thunk").filter(|thunk| graph.class_name(dump, *thunk) == thunk_class)?;
            graph.number(dump, field(thunk, "this$0")?, "size")
        };
        if let (Some(object), Some(size)) = (field(cleaner, "referent"), size()) {
            let sum = bytes.entry(object).or_default();
            *sum = sum.saturating_add(u64::try_from(size).unwrap_or(0));
        }
    }
    bytes
}

/// Number of these objects, including those that are only counted.
fn instances(found: &[Found]) -> u64 {
    found.iter().map(|found| 1 + found.beside.instances).sum()
}
