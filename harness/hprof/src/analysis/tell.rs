//! Describes found paths as text: the nodes of a path with their status and labels, its references, its fingerprint.
//!
//! Data flow: [`Found`], [`Path`] → what the dump is read for once more ([`wanted_of_paths`]) → [`Contents`] →
//! [`Teller`]: [`Leak`]s, grouped by fingerprint.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use sha1::{Digest as _, Sha1};

use super::{Heap, Leak, MOST_TEXT, Node, OfClass, Reference, Status, Work};
use crate::contents::{Contents, Wanted};
use crate::follow::Via;
use crate::graph::Kind;
use crate::ids::{NONE, index};
use crate::looked::{Found, Others};
use crate::objects::Seen;
use crate::search::{Path, Step};
use crate::text::{printable, shortened, simple_name};

/// Largest number of nodes of a path that are shown; a longer path is shown without its middle.
const LONGEST_PATH: usize = 200;
/// Most classes of one leak.
const MOST_CLASSES: usize = 10;

/// The objects of these paths that are shown, and the contents to read from the dump to describe them.
pub(super) fn wanted_of_paths(heap: &Heap, found: &[Found], paths: &[Path]) -> (Vec<u32>, Wanted) {
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

/// Steps that are shown; of a long path, only the beginning and the end.
fn cut(steps: &[Step]) -> [&[Step]; 2] {
    if steps.len() <= LONGEST_PATH {
        return [steps, &[]];
    }
    [&steps[..LONGEST_PATH / 2], &steps[steps.len() - LONGEST_PATH / 2..]]
}

/// Describes objects as text.
pub(super) struct Teller<'a> {
    work: &'a Work<'a>,
    contents: &'a Contents,
    /// An object can be on many paths: it is inspected once.
    seen: RefCell<HashMap<u32, Rc<Seen>>>,
}

impl<'a> Teller<'a> {
    pub(super) fn new(work: &'a Work<'a>, contents: &'a Contents) -> Self {
        Self { work, contents, seen: RefCell::default() }
    }

    fn look(&self, object: u32) -> Rc<Seen> {
        let mut seen = self.seen.borrow_mut();
        Rc::clone(seen.entry(object).or_insert_with(|| Rc::new(self.work.inspector.look(object))))
    }

    /// One leak per path, or per fingerprint if `grouped`; and the number of objects whose paths were examined.
    pub(super) fn leaks(&self, found: &[Found], paths: &[Path], grouped: bool) -> (Vec<Leak>, u64) {
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
    pub(super) fn last(&self, object: u32) -> Node {
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
            (Via::Signers, _) => (class.to_owned(), "<signers>".to_owned(), "class", "<signers>".to_owned()),
            (Via::Domain, _) => (class.to_owned(), "<domain>".to_owned(), "class", "<domain>".to_owned()),
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

impl Node {
    /// Bytes of its texts, and roughly of the node itself.
    pub(super) fn bytes(&self) -> usize {
        let labels = self.labels.iter().map(String::len).sum::<usize>();
        let reference = self.reference.as_ref();
        let reference = reference.map_or(0, |of| of.owner.len() + of.name.len() + of.generic.len());
        size_of::<Self>() + self.class.len() + self.why.len() + labels + reference
    }
}
