//! Defines which references a search follows, and in which order. The order is LeakCanary's, so that both choose the
//! same one of two equally short paths.
//!
//! Data flow: [`Graph`], classes and the rules about references → a [`Shape`] for each class → [`Follow::each`], which
//! reports the references of one object. A collection is read as its elements: its nodes and tables are reported as
//! inner objects, which are counted but not followed. An invalid collection (its chains do not end, or have nodes of an
//! unknown class) is read like any other object.

use std::cell::Cell;
use std::collections::HashMap;

use crate::graph::{Graph, Kind, Slot};
use crate::ids::{NONE, index, number};
use crate::index::Index;
use crate::rules::{Device, Pattern, Rules};

/// Kind of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// Slot of an instance.
    Field(usize),
    /// Reference of a class object: its index among the static references.
    Static(usize),
    /// Element of an array of objects.
    Element,
    /// Element of the array of a list.
    ElementOf(u32),
    /// Element of a list of nodes, with its position.
    Item(u32),
    /// Key of a map, or element of a set.
    Key,
    /// Value of a map, with its key.
    Value(u32),
    /// A local variable of a thread.
    Local,
    /// A part of a collection.
    Inner,
    /// The class of an instance; the dump has no field for it.
    Class,
    /// The loader of a class.
    Loader,
    /// The superclass.
    Above,
    /// The signers of a class.
    Signers,
    /// The protection domain of a class.
    Domain,
}

impl Via {
    /// References that keep a class, or that a class has. They are followed after all fields: nearly all that they
    /// lead to is held otherwise.
    pub(crate) const fn keeps_class(self) -> bool {
        matches!(self, Self::Class | Self::Loader | Self::Above | Self::Signers | Self::Domain)
    }
}

/// A reference of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) object: u32,
    pub(crate) via: Via,
    /// Followed only when nothing else is left.
    pub(crate) low: bool,
    /// Index of the known leak in [`Rules`], if it is one.
    pub(crate) library: Option<usize>,
}

/// The collections that are read as their elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collections {
    /// LeakCanary's: paths get the same fingerprints.
    LeakCanarys,
    /// All known collections: for counting elements.
    All,
}

/// How the objects of a class are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Has no references to follow.
    Leaf,
    Fields,
    Elements,
    /// Slot with the array of its elements.
    List(usize),
    /// Slot with the first node.
    Linked(usize),
    /// As in Android before 7: slot with a node before the first one, in a circle.
    Ring(usize),
    /// Slot with the table.
    Map(usize),
    /// Slot with the root of a tree of entries.
    Tree(usize),
    /// Slot with the highest of the index lists that lead to a list of entries.
    Skips(usize),
    /// Reports only values.
    WeakMap(usize),
    /// Slot with the map whose keys are the elements.
    Set(usize),
    /// Slot with the first entry.
    Entries(usize),
    /// Slot with the array of its elements; sets have keys.
    ArraySet(usize),
    /// Slot with the first message.
    Messages(usize),
}

/// How a search treats a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    Ignored,
    Library(usize),
}

/// Slots of a node of a collection.
#[derive(Debug, Clone, Copy, Default)]
struct Node {
    /// Is the class a known node class? A class that is not known may have any references.
    known: bool,
    key: Option<usize>,
    value: Option<usize>,
    next: Option<usize>,
    /// Nodes below it: both children in a tree; in an index list the lower list and the entry.
    below: [Option<usize>; 2],
    /// The table to which the entries of this bucket have moved, while the map grows.
    moved_to: Option<usize>,
}

pub(crate) struct Follow<'a> {
    pub(crate) dump: &'a Index,
    pub(crate) graph: &'a Graph,
    shapes: Vec<Shape>,
    nodes: Vec<Node>,
    /// By class: its class object, which instances keep; [`NONE`]: it stays anyway.
    classes: Vec<u32>,
    /// By class: the rules for its slots; empty: none.
    slots: Vec<Vec<Known>>,
    statics: Vec<Vec<Known>>,
    /// Local variables of threads, and the known leak they are, if any.
    locals: HashMap<u32, (Vec<u32>, Option<usize>)>,
    /// Remaining steps through collections.
    steps: Cell<u64>,
    pub(crate) exhausted: Cell<bool>,
    /// Texts and arrays of wrappers are read like other objects: something in them is searched.
    pub(crate) opened: bool,
}

impl<'a> Follow<'a> {
    pub(crate) fn new(
        dump: &'a Index,
        graph: &'a Graph,
        rules: &Rules,
        device: &Device,
        locals: HashMap<u32, (Vec<u32>, Option<usize>)>,
        collections: Collections,
    ) -> Self {
        let known = KnownReferences::new(rules, device);
        let count = dump.classes.len();
        let mut follow = Self {
            dump,
            graph,
            shapes: Vec::with_capacity(count),
            nodes: Vec::with_capacity(count),
            classes: dump.kept_by_instances(|root| root.place().is_some()),
            slots: Vec::with_capacity(count),
            statics: Vec::with_capacity(count),
            locals,
            steps: Cell::new(64 + 16 * (graph.len() as u64)),
            exhausted: Cell::new(false),
            opened: false,
        };
        for class in (0..count).map(number) {
            follow.shapes.push(shape(dump, graph, class, collections));
            follow.nodes.push(node(dump, graph, class));
            follow.slots.push(known.slots(dump, graph, class));
            follow.statics.push(known.statics(dump, class));
        }
        follow
    }

    /// Can only a text or an array of wrappers hold the object?
    pub(crate) fn is_behind_leaves(&self, object: u32) -> bool {
        match self.graph.kind(object) {
            Kind::Of(class) => is_wrapper(&self.dump.classes[index(class)].name),
            kind => matches!(kind, Kind::Primitives(_)),
        }
    }

    /// From now on texts and arrays of wrappers are followed.
    pub(crate) fn open_leaves(&mut self) {
        self.opened = true;
        for (class, shape) in (0..).zip(&mut self.shapes).filter(|(_, shape)| **shape == Shape::Leaf) {
            if self.graph.is_array(class) {
                *shape = Shape::Elements;
            } else if !self.graph.layout(class).slots.is_empty() {
                *shape = Shape::Fields;
            }
        }
    }

    /// Reports the references of an object in the order in which they count.
    #[inline]
    pub(crate) fn each(&self, object: u32, mut told: impl FnMut(Held)) {
        match self.graph.kind(object) {
            Kind::Of(class) => {
                match self.shapes[index(class)] {
                    Shape::Leaf => {}
                    Shape::Elements => {
                        for held in self.graph.references(object) {
                            told(Held { object: *held, via: Via::Element, low: false, library: None });
                        }
                    }
                    shape => self.instance(object, class, shape, &mut told),
                }
                if self.classes[index(class)] != NONE {
                    let object = self.classes[index(class)];
                    told(Held { object, via: Via::Class, low: true, library: None });
                }
            }
            Kind::Class(class) => self.class(object, class, &mut told),
            Kind::Primitives(_) | Kind::Unknown => {}
        }
    }

    /// Has the object no references to follow?
    #[inline]
    pub(crate) fn is_leaf(&self, object: u32) -> bool {
        match self.graph.kind(object) {
            Kind::Of(class) => self.shapes[index(class)] == Shape::Leaf && self.classes[index(class)] == NONE,
            Kind::Class(_) => false,
            Kind::Primitives(_) | Kind::Unknown => true,
        }
    }

    fn class(&self, object: u32, class: u32, told: &mut impl FnMut(Held)) {
        let held = self.graph.references(object);
        let known = &self.statics[index(class)];
        let Some((statics, above)) = held.split_last_chunk::<4>() else { return };
        for (at, held) in statics.iter().enumerate() {
            let (low, library) = match known.get(at).copied().unwrap_or(Known::Nothing) {
                Known::Ignored => continue,
                Known::Library(rule) => (true, Some(rule)),
                Known::Nothing => (false, None),
            };
            if *held != NONE {
                told(Held { object: *held, via: Via::Static(at), low, library });
            }
        }
        for (object, via) in above.iter().zip([Via::Loader, Via::Above, Via::Signers, Via::Domain]) {
            if *object != NONE {
                told(Held { object: *object, via, low: true, library: None });
            }
        }
    }

    fn instance(&self, object: u32, class: u32, shape: Shape, told: &mut impl FnMut(Held)) {
        if !self.locals.is_empty()
            && let Some((locals, library)) = self.locals.get(&object)
        {
            for local in locals {
                told(Held { object: *local, via: Via::Local, low: true, library: *library });
            }
        }
        match shape {
            Shape::Leaf | Shape::Elements => {}
            Shape::Fields => self.fields(object, class, told),
            Shape::Messages(_) => {
                self.parts(object, shape, told);
                self.fields(object, class, told);
            }
            _ => {
                if self.parts(object, shape, told) {
                    self.inner(object, told);
                } else {
                    self.fields(object, class, told);
                }
            }
        }
    }

    fn fields(&self, object: u32, class: u32, told: &mut impl FnMut(Held)) {
        let known = &self.slots[index(class)];
        for (slot, held) in self.graph.references(object).iter().enumerate() {
            if *held == NONE {
                continue;
            }
            let (low, library) = match known.get(slot).copied().unwrap_or(Known::Nothing) {
                Known::Ignored => continue,
                Known::Library(rule) => (true, Some(rule)),
                Known::Nothing => (false, None),
            };
            told(Held { object: *held, via: Via::Field(slot), low, library });
        }
    }

    /// Reports the elements of a collection. Returns `false` if it cannot be read as one.
    fn parts(&self, object: u32, shape: Shape, told: &mut impl FnMut(Held)) -> bool {
        let mut tell = |object, via| told(Held { object, via, low: false, library: None });
        match shape {
            Shape::List(slot) | Shape::ArraySet(slot) => {
                let Some(array) = self.slot(object, slot) else { return true };
                // The graph has no nulls of an array, so the positions are lost. In a damaged dump the object may be
                // something else.
                let via = if let Shape::ArraySet(_) = shape { Via::Key } else { Via::ElementOf(array) };
                let held = self.graph.references(array).iter().filter(|held| **held != NONE);
                held.for_each(|held| tell(*held, via));
                true
            }
            Shape::Linked(slot) => self.items(self.slot(object, slot), NONE, &mut tell, |node, links| {
                // A node of a queue refers to itself after its item was taken.
                self.slot(node, links.value?).filter(|item| *item != node)
            }),
            Shape::Ring(slot) => {
                let head = self.slot(object, slot);
                let links = head.map(|head| self.links(head)).unwrap_or_default();
                let first = head.and_then(|head| self.slot(head, links.next?));
                let end = head.unwrap_or(NONE);
                self.items(first, end, &mut tell, |node, links| self.slot(node, links.value?))
            }
            Shape::Map(slot) | Shape::WeakMap(slot) => {
                let Some(table) = self.slot(object, slot) else { return true };
                self.table(table, matches!(shape, Shape::WeakMap(_)), &mut tell)
            }
            Shape::Entries(slot) => self.chain(self.slot(object, slot), NONE, |node, links| {
                entry(self, node, links, false, &mut tell);
            }),
            Shape::Tree(slot) => self.tree(self.slot(object, slot), |node, links| {
                entry(self, node, links, false, &mut tell);
            }),
            Shape::Skips(slot) => {
                let list = |at: &u32| self.slot(*at, self.links(*at).below[0]?);
                let lowest = std::iter::successors(self.slot(object, slot), list).take(HIGHEST).last();
                let Some(lowest) = lowest else { return true };
                let first = self.links(lowest).below[1].and_then(|slot| self.slot(lowest, slot));
                first.is_some()
                    && self.chain(first, NONE, |node, links| {
                        // The first node, and a node that marks a removed entry, have a value but no key.
                        if links.key.is_some_and(|slot| self.slot(node, slot).is_some()) {
                            entry(self, node, links, false, &mut tell);
                        }
                    })
            }
            Shape::Set(slot) => {
                let Some(map) = self.slot(object, slot) else { return true };
                let Kind::Of(class) = self.graph.kind(map) else { return false };
                let Shape::Map(table) = self.shapes[index(class)] else { return false };
                let Some(table) = self.slot(map, table) else { return true };
                self.table(table, false, &mut |object, via| {
                    if via == Via::Key {
                        tell(object, via);
                    }
                })
            }
            Shape::Messages(slot) => {
                self.items(self.slot(object, slot), NONE, &mut tell, |node, _| Some(node))
            }
            Shape::Leaf | Shape::Fields | Shape::Elements => true,
        }
    }

    /// Reports the items of a list of nodes by their position. A node without an item has a position, too.
    fn items(
        &self,
        first: Option<u32>,
        end: u32,
        tell: &mut impl FnMut(u32, Via),
        item: impl Fn(u32, Node) -> Option<u32>,
    ) -> bool {
        let mut at = 0;
        self.chain(first, end, |node, links| {
            if let Some(item) = item(node, links) {
                tell(item, Via::Item(at));
            }
            at += 1;
        })
    }

    /// Reports the entries of each bucket.
    fn table(&self, table: u32, weak: bool, tell: &mut impl FnMut(u32, Via)) -> bool {
        self.buckets(table, |node, links| entry(self, node, links, weak, tell))
    }

    /// Reports the nodes of each bucket of a table, and of the table that entries are being moved to.
    fn buckets(&self, table: u32, mut told: impl FnMut(u32, Node)) -> bool {
        let mut moved_to = None;
        let mut each = |table: u32, moved_to: &mut Option<u32>| {
            self.graph.references(table).iter().all(|bucket| {
                self.chain(Some(*bucket), NONE, |node, links| {
                    if let Some(slot) = links.moved_to {
                        *moved_to = self.slot(node, slot);
                    }
                    told(node, links);
                })
            })
        };
        each(table, &mut moved_to) && moved_to.is_none_or(|table| each(table, &mut None))
    }

    /// Reports the nodes of a tree. Returns `false` if it is no tree.
    fn tree(&self, root: Option<u32>, mut told: impl FnMut(u32, Node)) -> bool {
        let mut open: Vec<u32> = root.into_iter().collect();
        while let Some(node) = open.pop() {
            let links = self.links(node);
            if !links.known || !self.step() {
                return false;
            }
            told(node, links);
            open.extend(links.below.into_iter().flatten().filter_map(|slot| self.slot(node, slot)));
        }
        true
    }

    /// Reports nodes from `first` on, by their `next`, up to `end`. Returns `false` if the chain does not end, or has
    /// an object that is no node.
    fn chain(&self, first: Option<u32>, end: u32, mut told: impl FnMut(u32, Node)) -> bool {
        // Brent's algorithm: if the chain returns to the marked node, it is a circle.
        let (mut waits, mut lap, mut left) = (NONE, 1_u32, 1_u32);
        let mut at = first;
        while let Some(node) = at.filter(|node| *node != end) {
            if node == waits || !self.step() {
                return false;
            }
            left -= 1;
            if left == 0 {
                waits = node;
                lap = lap.saturating_mul(2);
                left = lap;
            }
            let links = self.links(node);
            if !links.known {
                return false;
            }
            told(node, links);
            at = links.next.and_then(|slot| self.slot(node, slot));
        }
        true
    }

    /// Reports everything in a collection that was not reported yet.
    fn inner(&self, collection: u32, told: &mut impl FnMut(Held)) {
        // The searcher has already marked the elements, and marks each object that is reported here. Only the
        // collection's own nodes are left.
        let Kind::Of(class) = self.graph.kind(collection) else { return };
        for held in self.graph.references(collection) {
            if *held != NONE {
                told(inner(*held));
            }
        }
        match self.shapes[index(class)] {
            Shape::Map(slot) | Shape::WeakMap(slot) => self.inner_table(self.slot(collection, slot), told),
            Shape::Linked(slot) | Shape::Ring(slot) | Shape::Entries(slot) => {
                self.inner_chain(self.slot(collection, slot), told);
            }
            Shape::Tree(slot) => {
                self.tree(self.slot(collection, slot), |node, _| told(inner(node)));
            }
            Shape::Skips(slot) => {
                let mut list = self.slot(collection, slot);
                for _ in 0..HIGHEST {
                    let Some(at) = list else { break };
                    let [list_below, entry] = self.links(at).below.map(|slot| self.slot(at, slot?));
                    self.inner_chain(Some(at), told);
                    if list_below.is_none() {
                        self.inner_chain(entry, told);
                    }
                    list = list_below;
                }
            }
            Shape::Set(slot) => {
                let Some(map) = self.slot(collection, slot) else { return };
                let Kind::Of(class) = self.graph.kind(map) else { return };
                if let Shape::Map(table) = self.shapes[index(class)] {
                    for held in self.graph.references(map).iter().filter(|held| **held != NONE) {
                        told(inner(*held));
                    }
                    self.inner_table(self.slot(map, table), told);
                }
            }
            _ => {}
        }
    }

    fn inner_table(&self, table: Option<u32>, told: &mut impl FnMut(Held)) {
        if let Some(table) = table {
            self.buckets(table, |node, links| {
                told(inner(node));
                if let Some(table) = links.moved_to.and_then(|slot| self.slot(node, slot)) {
                    told(inner(table));
                }
            });
        }
    }

    fn inner_chain(&self, first: Option<u32>, told: &mut impl FnMut(Held)) {
        // A ring is reported until it is recognised: a searcher that marks nodes sees a node twice.
        self.chain(first, NONE, |node, _| told(inner(node)));
    }

    fn step(&self) -> bool {
        let left = self.steps.get();
        if left == 0 {
            self.exhausted.set(true);
            return false;
        }
        self.steps.set(left - 1);
        true
    }

    fn links(&self, node: u32) -> Node {
        match self.graph.kind(node) {
            Kind::Of(class) => self.nodes[index(class)],
            _ => Node::default(),
        }
    }

    fn slot(&self, object: u32, slot: usize) -> Option<u32> {
        self.graph.references(object).get(slot).copied().filter(|held| *held != NONE)
    }
}

/// Maximum number of levels in a [`Shape::Skips`].
const HIGHEST: usize = 64;

const fn inner(object: u32) -> Held {
    Held { object, via: Via::Inner, low: false, library: None }
}

fn entry(follow: &Follow<'_>, node: u32, links: Node, weak: bool, tell: &mut impl FnMut(u32, Via)) {
    let key = links.key.and_then(|slot| follow.slot(node, slot));
    if let Some(key) = key.filter(|_| !weak) {
        tell(key, Via::Key);
    }
    if let Some(value) = links.value.and_then(|slot| follow.slot(node, slot)) {
        tell(value, Via::Value(key.unwrap_or(NONE)));
    }
}

fn shape(dump: &Index, graph: &Graph, class: u32, collections: Collections) -> Shape {
    let name = dump.classes[index(class)].name.as_str();
    if graph.is_array(class) {
        let leaf = name.strip_suffix("[]").is_some_and(is_wrapper);
        return if leaf { Shape::Leaf } else { Shape::Elements };
    }
    if name == "java.lang.String" || is_wrapper(name) || graph.layout(class).slots.is_empty() {
        // A thread has slots, so an object without slots holds nothing.
        return Shape::Leaf;
    }
    let slot = |names: &[&str]| names.iter().find_map(|name| graph.slot(dump, class, name));
    let found = match name {
        "java.util.ArrayList" => slot(&["elementData", "array"]).map(Shape::List),
        "java.util.concurrent.CopyOnWriteArrayList" => slot(&["array", "elements"]).map(Shape::List),
        "java.util.LinkedList" => {
            slot(&["first"]).map(Shape::Linked).or_else(|| slot(&["voidLink"]).map(Shape::Ring))
        }
        "java.util.HashMap" | "java.util.LinkedHashMap" | "java.util.concurrent.ConcurrentHashMap" => {
            slot(&["table"]).map(Shape::Map)
        }
        "java.util.WeakHashMap" => slot(&["table", "elementData"]).map(Shape::WeakMap),
        "java.util.HashSet" | "java.util.LinkedHashSet" => slot(&["map", "backingMap"]).map(Shape::Set),
        "androidx.arch.core.internal.SafeIterableMap" | "androidx.arch.core.internal.FastSafeIterableMap" => {
            slot(&["mStart"]).map(Shape::Entries)
        }
        "android.util.ArraySet" => slot(&["mArray"]).map(Shape::ArraySet),
        "android.os.MessageQueue" => slot(&["mMessages"]).map(Shape::Messages),
        _ if collections == Collections::LeakCanarys => None,
        "java.util.TreeMap" => slot(&["root"]).map(Shape::Tree),
        "java.util.Hashtable" => slot(&["table"]).map(Shape::Map),
        "java.util.concurrent.ConcurrentSkipListMap" => slot(&["head"]).map(Shape::Skips),
        "java.util.concurrent.ConcurrentLinkedQueue"
        | "java.util.concurrent.ConcurrentLinkedDeque"
        | "java.util.concurrent.LinkedBlockingQueue"
        | "java.util.concurrent.LinkedTransferQueue" => slot(&["head"]).map(Shape::Linked),
        "java.util.concurrent.LinkedBlockingDeque" => slot(&["first"]).map(Shape::Linked),
        _ => None,
    };
    found.unwrap_or(Shape::Fields)
}

/// Slots of the nodes of collections.
fn node(dump: &Index, graph: &Graph, class: u32) -> Node {
    let slot = |name| graph.slot(dump, class, name);
    let of = |key, value, next| Node {
        known: true,
        key: slot(key),
        value: slot(value),
        next: slot(next),
        ..Node::default()
    };
    let name = dump.classes[index(class)].name.as_str();
    let (package, of_what) = name.rsplit_once('.').unwrap_or_default();
    let collection = of_what.split_once('$');
    match (package, collection) {
        ("java.util", Some(("LinkedList", "Node"))) => of("", "item", "next"),
        ("java.util", Some(("LinkedList", "Link"))) => of("", "data", "next"),
        ("java.util", Some(("WeakHashMap", "Entry"))) => of("", "value", "next"),
        (
            "java.util",
            Some((
                "HashMap" | "LinkedHashMap" | "Hashtable",
                "Node" | "TreeNode" | "Entry" | "HashMapEntry" | "LinkedEntry" | "LinkedHashMapEntry"
                | "HashtableEntry",
            )),
        ) => of("key", "value", "next"),
        ("java.util", Some(("TreeMap", "Entry" | "TreeMapEntry"))) => {
            Node { below: ["left", "right"].map(slot), ..of("key", "value", "") }
        }
        // The entries of a bucket that is a tree are linked from `first`.
        ("java.util.concurrent", Some(("ConcurrentHashMap", "TreeBin"))) => of("", "", "first"),
        ("java.util.concurrent", Some(("ConcurrentHashMap", "ForwardingNode"))) => {
            Node { moved_to: slot("nextTable"), ..of("", "", "") }
        }
        ("java.util.concurrent", Some(("ConcurrentHashMap", "Node" | "TreeNode" | "ReservationNode"))) => {
            of("key", "val", "next")
        }
        ("java.util.concurrent", Some(("ConcurrentSkipListMap", "Index" | "HeadIndex"))) => {
            Node { below: ["down", "node"].map(slot), ..of("", "", "right") }
        }
        ("java.util.concurrent", Some(("ConcurrentSkipListMap", "Node"))) => {
            let node = of("key", "val", "next");
            Node { value: node.value.or_else(|| slot("value")), ..node }
        }
        (
            "java.util.concurrent",
            Some((
                "ConcurrentLinkedQueue"
                | "ConcurrentLinkedDeque"
                | "LinkedBlockingQueue"
                | "LinkedBlockingDeque"
                | "LinkedTransferQueue",
                "Node" | "DualNode",
            )),
        ) => of("", "item", "next"),
        ("androidx.arch.core.internal", Some(("SafeIterableMap", "Entry"))) => of("mKey", "mValue", "mNext"),
        ("android.os", None) if of_what == "Message" => of("", "", "next"),
        _ => Node::default(),
    }
}

/// The eight wrappers of primitive values.
pub(crate) fn is_wrapper(class: &str) -> bool {
    let Some(name) = class.strip_prefix("java.lang.") else { return false };
    ["Boolean", "Character", "Float", "Double", "Byte", "Short", "Integer", "Long"].contains(&name)
}

/// Rules about references that apply here, by class.
struct KnownReferences<'a> {
    instance: HashMap<&'a str, Vec<(&'a str, Known)>>,
    statics: HashMap<&'a str, Vec<(&'a str, Known)>>,
}

impl<'a> KnownReferences<'a> {
    fn new(rules: &'a Rules, device: &Device) -> Self {
        let mut known = Self { instance: HashMap::new(), statics: HashMap::new() };
        for (at, rule) in rules.references.iter().enumerate().filter(|(_, rule)| rule.applies(device)) {
            let what = if rule.library { Known::Library(at) } else { Known::Ignored };
            match &rule.pattern {
                Pattern::Instance { class, field } => {
                    known.instance.entry(class.as_str()).or_default().push((field.as_str(), what));
                }
                Pattern::Static { class, field } => {
                    known.statics.entry(class.as_str()).or_default().push((field.as_str(), what));
                }
                Pattern::Thread(_) | Pattern::NativeGlobal(_) => {}
            }
        }
        known
    }

    /// For each slot, the rule of the first class in the hierarchy, from the subclass up, that names the field.
    fn slots(&self, dump: &Index, graph: &Graph, class: u32) -> Vec<Known> {
        let layout = graph.layout(class);
        if layout.slots.is_empty() {
            return Vec::new();
        }
        let above: Vec<(u32, &Vec<(&str, Known)>)> = dump
            .hierarchy(class)
            .filter_map(|class| Some((class, self.instance.get(dump.classes[index(class)].name.as_str())?)))
            .collect();
        if above.is_empty() {
            return Vec::new();
        }
        let of = |slot: &Slot| {
            // A field that a subclass declares under the same name is a different field.
            let has_it = |class: u32| dump.hierarchy(class).any(|above| above == slot.class);
            let lists = above.iter().filter(|(class, _)| has_it(*class)).flat_map(|(_, list)| list.iter());
            let name = dump.string(slot.name);
            let found = lists.into_iter().find(|(field, _)| Some(*field) == name);
            found.map_or(Known::Nothing, |(_, known)| *known)
        };
        layout.slots.iter().map(of).collect()
    }

    fn statics(&self, dump: &Index, class: u32) -> Vec<Known> {
        let class = &dump.classes[index(class)];
        let list = self.statics.get(class.name.as_str());
        let known = |name: Option<&str>| match name {
            Some("$staticOverhead" | "$classOverhead" | "<resolved_references>") => Known::Ignored,
            name => {
                let found = list.and_then(|list| list.iter().find(|(field, _)| Some(*field) == name));
                found.map_or(Known::Nothing, |(_, known)| *known)
            }
        };
        let all: Vec<Known> = class
            .statics
            .iter()
            .filter(|field| field.kind == 2)
            .map(|field| known(dump.string(field.name)))
            .collect();
        if all.iter().all(|known| *known == Known::Nothing) { Vec::new() } else { all }
    }
}
