//! Leaks of a dump: objects no longer in use that are still there, what holds them, and how much they retain.
//!
//! Data flow: [`Index`], [`Graph`] → texts that rules need (device, names of threads) → objects no longer in use, found
//! by rules, by LeakCanary's own references, or by request → [`crate::search`] → one more pass for the details that are
//! shown → reasons along each path, suspects, fingerprint → groups, most attributed bytes first.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use schemars::JsonSchema;
use serde::Serialize;
use sha1::{Digest as _, Sha1};

use crate::contents::{Contents, Wanted};
use crate::follow::{Collections, Follow, Via};
use crate::graph::{Graph, Kind};
use crate::ids::{NONE, index, number};
use crate::index::Index;
use crate::looked::{Found, MOST_PATHS, Others};
use crate::mistakes::mistakes;
use crate::objects::{Inspector, Seen, watched};
use crate::read::{DumpFile, Oddities, Progress, ReadError};
use crate::rules::{Device, Rules};
use crate::search::{Cut, Path, Searched, Step, search, ways};
use crate::text::{printable, shortened, simple_name};

/// Largest number of steps in all paths; further paths are not built.
const MOST_STEPS: usize = 1_000_000;
/// Largest number of nodes of a path that are shown; a longer path is shown without its middle.
const LONGEST_PATH: usize = 200;

/// Bytes of texts in all paths, and of all unreachable objects. Objects beyond this limit are only counted.
const MOST_TEXT: usize = 64 << 20;
/// Most classes of one leak.
const MOST_CLASSES: usize = 10;

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

impl Node {
    /// Bytes of its texts, and roughly of the node itself.
    fn bytes(&self) -> usize {
        let labels = self.labels.iter().map(String::len).sum::<usize>();
        let reference = self.reference.as_ref();
        let reference = reference.map_or(0, |of| of.owner.len() + of.name.len() + of.generic.len());
        size_of::<Self>() + self.class.len() + self.why.len() + labels + reference
    }
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
        let searched = |cut: &Cut| search(&work.follow, rules, &work.device, &wanted, &native, cut, progress);
        let all = searched(&Cut::new());
        let (found, paths) = if question.ways > 0 {
            ways(&work.follow, question.ways, MOST_STEPS, &all, searched).into_iter().unzip()
        } else {
            (all.found.clone(), all.paths(&work.follow, MOST_PATHS, MOST_STEPS))
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
        let Heap { file, dump, graph } = heap;
        let inspector = Inspector::new(dump, graph, rules);
        let (device, process, locals) = before(file, dump, graph, rules, &inspector, progress)?;
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
        let told = Teller { work: &self, contents: &contents, seen: RefCell::default() };
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
        for (kind, _, at) in graph.odd.iter() {
            odd.add(kind, at);
        }
        if self.follow.exhausted.get() {
            odd.add(crate::read::Odd::Collections, 0);
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

/// The objects of these paths that are shown, and the contents to read from the dump to describe them.
fn wanted_of_paths(heap: &Heap, found: &[Found], paths: &[Path]) -> (Vec<u32>, Wanted) {
    let Heap { dump, graph, .. } = heap;
    let mut shown: Vec<u32> = Vec::new();
    let mut wanted = Wanted::default();
    for (found, path) in found.iter().zip(paths) {
        for step in cut(&path.steps).into_iter().flatten() {
            shown.push(step.object);
            if let Via::Element | Via::ElementOf(_) = step.held.via {
                wanted.place(dump, step.array(), step.held.object);
            }
            if let Via::Value(key) = step.held.via
                && key != NONE
                && graph.class_name(dump, key) == "java.lang.String"
            {
                wanted.text(dump, graph, key);
            }
        }
        shown.push(found.object);
    }
    (shown, wanted)
}

/// Reads what a search needs: the device, the process, and the local variables of threads.
fn before(
    file: &DumpFile,
    dump: &Index,
    graph: &Graph,
    rules: &Rules,
    inspector: &Inspector<'_>,
    progress: Progress<'_>,
) -> Result<(Device, Option<String>, crate::search::Locals), ReadError> {
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

/// Steps that are shown; of a long path, only the beginning and the end.
fn cut(steps: &[Step]) -> [&[Step]; 2] {
    if steps.len() <= LONGEST_PATH {
        return [steps, &[]];
    }
    [&steps[..LONGEST_PATH / 2], &steps[steps.len() - LONGEST_PATH / 2..]]
}

/// Number of these objects, including those that are only counted.
fn instances(found: &[Found]) -> u64 {
    found.iter().map(|found| 1 + found.beside.instances).sum()
}

/// Describes objects as text.
struct Teller<'a> {
    work: &'a Work<'a>,
    contents: &'a Contents,
    /// An object can be on many paths: it is inspected once.
    seen: RefCell<HashMap<u32, Rc<Seen>>>,
}

impl Teller<'_> {
    fn look(&self, object: u32) -> Rc<Seen> {
        let mut seen = self.seen.borrow_mut();
        Rc::clone(seen.entry(object).or_insert_with(|| Rc::new(self.work.inspector.look(object))))
    }

    /// One leak per path, or per fingerprint if `grouped`; and the number of objects whose paths were examined.
    fn leaks(&self, found: &[Found], paths: &[Path], grouped: bool) -> (Vec<Leak>, u64) {
        let mut leaks: Vec<Leak> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut classes: Vec<BTreeMap<String, u64>> = Vec::new();
        let (mut room, mut looked_at) = (MOST_TEXT, 0);
        for (found, path) in found.iter().zip(paths) {
            let leak = self.leak(found, path);
            let place = places.get(&leak.fingerprint).copied().filter(|_| grouped).unwrap_or(leaks.len());
            if place == leaks.len() {
                classes.push(BTreeMap::new());
            }
            let own = leak.path.last().map(|node| (&node.class, 1));
            for (class, count) in
                own.into_iter().chain(found.beside.classes.iter().map(|(class, count)| (class, *count)))
            {
                *classes[place].entry(printable(class)).or_default() += count;
            }
            match places.get(&leak.fingerprint).filter(|_| grouped) {
                Some(place) => {
                    let group = &mut leaks[*place];
                    group.instances += leak.instances;
                    group.attributed = group.attributed.saturating_add(leak.attributed);
                    group.objects += leak.objects;
                }
                None => {
                    places.insert(leak.fingerprint.clone(), leaks.len());
                    room = leak.path.iter().map(Node::bytes).fold(room, usize::saturating_sub);
                    leaks.push(leak);
                }
            }
            looked_at += 1 + found.beside.instances;
            if room == 0 {
                break;
            }
        }
        for (leak, classes) in leaks.iter_mut().zip(classes) {
            leak.classes = most_frequent(classes);
        }
        (leaks, looked_at)
    }

    fn leak(&self, found: &Found, path: &Path) -> Leak {
        let more = |others: &Others| Some(others.more).filter(|more| *more > 0);
        let rules = self.work.rules;
        let parts = cut(&path.steps);
        let left_out = path.steps.len() - parts[0].len() - parts[1].len();
        let steps: Vec<Step> = parts.concat();
        let mut seen: Vec<Rc<Seen>> = steps.iter().map(|step| self.look(step.object)).collect();
        let mut last = Seen::clone(&self.look(found.object));
        if last.leaking.is_empty() {
            last.leaking.push("it was asked for".to_owned());
        }
        for other in &found.also_retains.first {
            last.labels.push(format!("Also retains leaking object {}", self.object(*other)));
        }
        if let Some(more) = more(&found.also_retains) {
            last.labels.push(format!("Also retains {more} more leaking objects"));
        }
        for other in &found.retained_by.first {
            last.labels.push(format!("Also retained by leaking object {}", self.object(*other)));
        }
        if let Some(more) = more(&found.retained_by) {
            last.labels.push(format!("Also retained by {more} more leaking objects"));
        }
        seen.push(Rc::new(last));
        let objects: Vec<u32> = steps.iter().map(|step| step.object).chain([found.object]).collect();
        let mut nodes: Vec<Node> =
            objects.iter().zip(seen).map(|(object, seen)| self.node(*object, &seen)).collect();
        propagate(&mut nodes);
        for (at, step) in steps.iter().enumerate() {
            let mut reference = self.reference(*step);
            reference.suspect = match nodes[at].status {
                Status::Unknown => true,
                Status::NotLeaking => nodes.get(at + 1).is_some_and(|next| next.status != Status::NotLeaking),
                Status::Leaking => false,
            };
            nodes[at].reference = Some(reference);
        }
        if left_out > 0 {
            nodes[LONGEST_PATH / 2]
                .labels
                .insert(0, format!("{left_out} more objects of the path before it"));
        }
        let known = path.library.or_else(|| path.steps.iter().find_map(|step| step.held.library));
        let library = known.map(|rule| rules.references[rule].text.clone());
        let library_name = known.map(|rule| rules.references[rule].name.clone());
        let fingerprint = match &library {
            Some(pattern) => sha1(pattern),
            None => sha1(&self.suspects(path, &nodes, left_out)),
        };
        Leak {
            fingerprint,
            library,
            library_name,
            instances: 1 + found.beside.instances,
            classes: Vec::new(),
            attributed: found.bytes.saturating_add(found.beside.bytes),
            objects: found.objects + found.beside.objects,
            retained: None,
            path: nodes,
            root: root_name(path.root),
        }
    }

    /// The text whose hash is LeakCanary's fingerprint.
    fn suspects(&self, path: &Path, nodes: &[Node], left_out: usize) -> String {
        let Heap { dump, graph, .. } = self.work.heap;
        let shown = |nodes: &[Node]| -> String {
            let suspects = nodes.iter().filter_map(|node| {
                let reference = node.reference.as_ref().filter(|reference| reference.suspect)?;
                Some(format!("{}{}", node.class, reference.generic))
            });
            suspects.collect()
        };
        if left_out == 0 {
            return shown(nodes);
        }
        // Nodes between are not shown, but are part of the fingerprint: they were not inspected, so they are suspects.
        let beginning = LONGEST_PATH / 2;
        let between = path.steps[beginning..beginning + left_out].iter();
        let between = between
            .map(|step| format!("{}{}", graph.class_name(dump, step.object), self.reference(*step).generic));
        [shown(&nodes[..beginning]), between.collect(), shown(&nodes[beginning..])].concat()
    }

    fn node(&self, object: u32, seen: &Seen) -> Node {
        let Heap { dump, graph, .. } = self.work.heap;
        let class = printable(graph.class_name(dump, object));
        let kind = match graph.kind(object) {
            Kind::Class(_) => "class",
            Kind::Of(class) if graph.is_array(class) => "array",
            Kind::Primitives(_) => "array",
            Kind::Of(_) | Kind::Unknown => "instance",
        };
        let status = match (seen.leaking.is_empty(), seen.not_leaking.is_empty()) {
            (true, true) => Status::Unknown,
            (_, false) => Status::NotLeaking,
            (false, true) => Status::Leaking,
        };
        let why = match status {
            Status::Unknown => String::new(),
            Status::Leaking => seen.leaking.join(" and "),
            Status::NotLeaking if seen.leaking.is_empty() => seen.not_leaking.join(" and "),
            Status::NotLeaking => {
                format!("{}. Conflicts with {}", seen.not_leaking.join(" and "), seen.leaking.join(" and "))
            }
        };
        let labels = seen.labels.iter().map(|label| printable(label)).collect();
        Node { id: dump.id(object), class, kind, status, why: printable(&why), labels, reference: None }
    }

    /// An object that nothing holds.
    fn last(&self, object: u32) -> Node {
        let Seen { leaking, labels, .. } = Seen::clone(&self.look(object));
        self.node(object, &Seen { leaking, labels, ..Seen::default() })
    }

    /// LeakCanary's name of an object: its id as a signed number.
    fn object(&self, object: u32) -> String {
        let Heap { dump, graph, .. } = self.work.heap;
        let id = dump.id(object);
        let id = if dump.header.id_bytes == 4 {
            i64::from(u32::try_from(id).unwrap_or(u32::MAX).cast_signed())
        } else {
            id.cast_signed()
        };
        format!("{id} ({})", graph.class_name(dump, object))
    }

    fn reference(&self, step: Step) -> Reference {
        let Heap { dump, graph, .. } = self.work.heap;
        let class = graph.class_name(dump, step.object);
        let (owner, name, kind, generic) = match (step.held.via, graph.kind(step.object)) {
            (Via::Field(slot), Kind::Of(class)) => {
                let slot = &graph.layout(class).slots[slot];
                let name = dump.name(slot.name);
                (dump.classes[index(slot.class)].name.clone(), name.clone(), "field", name)
            }
            (Via::Static(at), Kind::Class(class)) => {
                let class = &dump.classes[index(class)];
                let mut fields = class.statics.iter().filter(|field| field.kind == 2);
                let name = fields.nth(at).map_or_else(|| "?".to_owned(), |field| dump.name(field.name));
                (class.name.clone(), name.clone(), "static", name)
            }
            (Via::Element | Via::ElementOf(_), _) => {
                let place = self.contents.place(dump, step.array(), step.held.object);
                let owner = class.strip_suffix("[]").unwrap_or(class);
                let place = place.map_or_else(|| "x".to_owned(), |place| place.to_string());
                (owner.to_owned(), format!("[{place}]"), "element", "[x]".to_owned())
            }
            (Via::Item(at), _) => (class.to_owned(), format!("[{at}]"), "element", "[x]".to_owned()),
            (Via::Key, _) => {
                let set = if class.contains("Set") { "element()" } else { "key()" };
                (class.to_owned(), format!("[{set}]"), "element", "[x]".to_owned())
            }
            (Via::Value(key), _) => {
                let shown = if key == NONE {
                    "null".to_owned()
                } else if let Some(text) = self.contents.text(dump, graph, key) {
                    format!("\"{}\"", shortened(text))
                } else {
                    format!("instance @{} of {}", dump.id(key), graph.class_name(dump, key))
                };
                (class.to_owned(), format!("[{shown}]"), "element", "[x]".to_owned())
            }
            (Via::Local, _) => {
                (class.to_owned(), "<Java Local>".to_owned(), "local", "<Java Local>".to_owned())
            }
            (Via::Class, _) => (class.to_owned(), "<class>".to_owned(), "class", "<class>".to_owned()),
            (Via::Loader, _) => (class.to_owned(), "<loader>".to_owned(), "class", "<loader>".to_owned()),
            (Via::Above, _) => (class.to_owned(), "<super>".to_owned(), "class", "<super>".to_owned()),
            (Via::Inner | Via::Field(_) | Via::Static(_), _) => {
                (class.to_owned(), "[inside]".to_owned(), "element", "[x]".to_owned())
            }
        };
        let (owner, name) = (printable(&owner), printable(&name));
        let is_value = matches!(step.held.via, Via::Value(_));
        Reference { owner, name, kind, suspect: false, generic, is_value }
    }
}

fn most_frequent(classes: BTreeMap<String, u64>) -> Vec<OfClass> {
    let of_class = |(class, instances)| OfClass { class, instances };
    let mut classes: Vec<OfClass> = classes.into_iter().map(of_class).collect();
    classes.sort_by_key(|of| std::cmp::Reverse(of.instances));
    classes.truncate(MOST_CLASSES);
    classes
}

/// All objects before the last one in use are in use. All objects after the first leaking one are leaking.
fn propagate(nodes: &mut [Node]) {
    let last = nodes.len().saturating_sub(1);
    // The last object always counts as leaking: it may be a requested one.
    if let Some(node) = nodes.last_mut().filter(|node| node.status != Status::Leaking) {
        node.status = Status::Leaking;
    }
    let in_use = nodes[..last].iter().rposition(|node| node.status == Status::NotLeaking);
    let from = in_use.map_or(0, |at| at + 1);
    let over =
        nodes[from..].iter().position(|node| node.status == Status::Leaking).map_or(last, |at| at + from);
    if let Some(in_use) = in_use {
        for at in 0..in_use {
            let next = nodes[at + 1..=in_use].iter().find(|node| node.status == Status::NotLeaking);
            let next = next.map(|node| simple_name(&node.class).to_owned()).unwrap_or_default();
            let node = &mut nodes[at];
            let own = match node.status {
                Status::NotLeaking => format!(" and {}", node.why),
                Status::Leaking => format!(". Conflicts with {}", node.why),
                Status::Unknown => String::new(),
            };
            node.why = format!("{next}↓ is not leaking{own}");
        }
        nodes[..in_use].iter_mut().for_each(|node| node.status = Status::NotLeaking);
    }
    for at in over + 1..=last {
        let before = nodes[over..at].iter().rfind(|node| node.status == Status::Leaking);
        let before = before.map(|node| simple_name(&node.class).to_owned()).unwrap_or_default();
        let node = &mut nodes[at];
        let own = if node.status == Status::Leaking { format!(" and {}", node.why) } else { String::new() };
        node.why = format!("{before}↑ is leaking{own}");
    }
    nodes[over..].iter_mut().for_each(|node| node.status = Status::Leaking);
}

fn sha1(text: &str) -> String {
    Sha1::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// LeakCanary's name of a kind of root.
#[must_use]
pub const fn root_name(tag: u8) -> &'static str {
    match tag {
        0x01 => "Global variable in native code",
        0x02 => "Local variable in native code",
        0x03 => "Java local variable",
        0x04 => "Input or output parameters in native code",
        0x05 => "System class",
        0x06 => "Thread block",
        0x07 => "Monitor (anything that called the wait() or notify() methods, or that is synchronized.)",
        0x08 => "Thread object",
        0x8e => "Root JNI monitor",
        0x89 => "Interned string",
        0x8a => "Finalizing",
        0x8b => "Debugger",
        0x8c => "Reference cleanup",
        0x8d => "Virtual machine",
        0x90 => "Unreachable",
        _ => "Unknown",
    }
}
