//! Who holds what grew: exact survivors of one more window, and the shortest way from a root to them.
//!
//! Data flow: [`Hunt::begin`] numbers all classes and marks the instances of the grown ones as old; one more window runs; [`Hunt::end`]
//! finds the instances without a mark, and walks the references backwards, one level per pass over the heap, until roots are met. Only
//! grown classes and what lies on the ways carry tags, never the whole heap. Everything is bounded: instances, objects on the way,
//! passes and time; where a bound is met the answer says so.
//!
//! Visitors run while the virtual machine stands still: they write into vectors that were made large enough before.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use jni::Env;
use jni::objects::{JClass, JObject};
use memgate_ffi::process;
use memgate_jvmti::{HeapFilter, Jvmti, Method, Reference, ReferenceKind, Visit, raw};
use memgate_wire::java::{HolderLink, HolderPath};

use super::vm::class_name;

/// Classes that are explained at most: those with most bytes.
pub(crate) const MAX_CLASSES: usize = 8;
/// New instances of one class whose holders are looked for.
const MAX_INSTANCES: usize = 256;
/// Objects on the ways.
const MAX_NODES: usize = 200_000;
/// References between them.
const MAX_EDGES: usize = 800_000;
/// References to one object that are followed; roots come beside.
const EDGES_PER_NODE: u32 = 64;
const MAX_LEVELS: u32 = 40;
const MAX_NS: u64 = 10_000_000_000;
/// Room for a reference to every class.
const LOCAL_REFERENCES: usize = 1 << 16;
/// Ways told per class.
const MAX_PATHS: usize = 5;

/// Tag of an instance that was there before the window.
const OLD: i64 = 1 << 40;
/// Tag of the first object on a way; below lie the numbers of classes.
const FIRST: i64 = 1 << 41;

/// Holders of one class, as they go into the stream.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) class: String,
    pub(crate) instances: u64,
    pub(crate) paths: Vec<HolderPath>,
    pub(crate) cut: Option<String>,
}

/// A class with its number.
struct Known {
    name: String,
    /// Of a soft, weak or phantom reference: the number of the field whose object it does not hold.
    referent: Option<u32>,
}

/// Between the two halves.
pub(crate) struct Hunt {
    /// Names of the classes that are explained.
    wanted: Vec<String>,
}

/// A reference to an object on a way.
#[derive(Debug, Clone, Copy)]
struct Edge {
    to: usize,
    from: From,
    kind: ReferenceKind,
    /// Number of the class of the object that refers.
    class: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Root,
    /// A static field (or another part) of the class with this number.
    Class(i64),
    /// Another object on the way.
    Node(usize),
}

/// An object on a way.
struct Node {
    class: i64,
    /// References between it and an instance.
    level: u32,
    /// References to it that were taken.
    edges: u32,
}

impl Hunt {
    /// Marks what is there now.
    pub(crate) fn begin(env: &mut Env<'_>, jvmti: Jvmti, wanted: Vec<String>) -> Self {
        // Asked for only now: it costs the virtual machine something while it has it. Where it is refused, no way is found.
        let _refused = jvmti.add_capabilities(&[raw::CAN_TAG_OBJECTS]);
        with_classes(env, jvmti, |_, classes| {
            for (_, class) in classes.iter().filter(|(known, _)| wanted.contains(&known.name)) {
                // What cannot be marked counts as new, and its holders are told too.
                let _unmarked = jvmti.iterate(HeapFilter::Tagged, Some(class), &mut |_, _, tag| {
                    *tag = OLD;
                    Visit::Beside
                });
            }
        });
        Self { wanted }
    }

    /// Finds what came since, and who holds it. Takes all tags away again.
    pub(crate) fn end(self, env: &mut Env<'_>, jvmti: Jvmti) -> Vec<Found> {
        let found = with_classes(env, jvmti, |env, classes| {
            let mut ways = Ways::with_room();
            let mut counts = BTreeMap::new();
            for (known, class) in classes.iter().filter(|(known, _)| self.wanted.contains(&known.name)) {
                *counts.entry(known.name.clone()).or_insert(0) += ways.take_new(jvmti, class);
            }
            let (last, cut) = ways.walk_back(jvmti, classes);
            let mut names = Names { jvmti, classes, fields: BTreeMap::new() };
            let explain = |name: &String| {
                let instances = counts.get(name).copied().unwrap_or(0);
                ways.found(env, &mut names, name, instances, (&last, cut))
            };
            self.wanted.iter().map(explain).collect()
        });
        forget_tags(jvmti);
        found
    }
}

/// Runs `work` with every loaded class, numbered from 1 by its tag.
fn with_classes<R: Default>(
    env: &mut Env<'_>,
    jvmti: Jvmti,
    work: impl FnOnce(&mut Env<'_>, &[(Known, JClass<'_>)]) -> R,
) -> R {
    let done = env.with_local_frame(LOCAL_REFERENCES, |env| -> Result<R, jni::errors::Error> {
        let reference = env.find_class(jni::jni_str!("java/lang/ref/Reference"))?;
        let loaded = jvmti.loaded_classes(env).unwrap_or_default();
        for (number, class) in loaded.iter().enumerate() {
            let _unnumbered = jvmti.set_tag(class, i64::try_from(number).unwrap_or(0) + 1);
        }
        let mut classes = Vec::new();
        for class in loaded {
            let name = name_of(jvmti, &class);
            let is_reference = env.is_assignable_from(&class, &reference).unwrap_or(false);
            let fields = if is_reference { fields_of(env, jvmti, &class) } else { Vec::new() };
            let referent = fields
                .iter()
                .position(|(owner, field)| owner == "java.lang.ref.Reference" && field == "referent")
                .and_then(|index| u32::try_from(index).ok());
            classes.push((Known { name, referent }, class));
        }
        Ok(work(env, &classes))
    });
    done.unwrap_or_default()
}

fn name_of(jvmti: Jvmti, class: &JObject<'_>) -> String {
    let signature = jvmti.class_signature(class).unwrap_or_default();
    let plain = signature.strip_prefix('L').and_then(|s| s.strip_suffix(';')).unwrap_or(&signature);
    class_name(&plain.replace('/', "."))
}

fn forget_tags(jvmti: Jvmti) {
    // A tag that stays costs memory, not exactness: nobody reads it any more.
    let _kept = jvmti.iterate(HeapFilter::Untagged, None, &mut |_, _, tag| {
        *tag = 0;
        Visit::Beside
    });
}

/// The part of the heap that lies between roots and instances, as far as it was walked.
struct Ways {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// How many of the nodes are the instances themselves.
    instances: usize,
}

impl Ways {
    fn with_room() -> Self {
        Self { nodes: Vec::with_capacity(MAX_NODES), edges: Vec::with_capacity(MAX_EDGES), instances: 0 }
    }

    /// Takes the unmarked instances of a class; returns how many there are.
    fn take_new(&mut self, jvmti: Jvmti, class: &JObject<'_>) -> u64 {
        let (mut count, mut taken) = (0, 0);
        let nodes = &mut self.nodes;
        let _told_by_the_count = jvmti.iterate(HeapFilter::Tagged, Some(class), &mut |class, _, tag| {
            count += 1;
            if taken < MAX_INSTANCES && nodes.len() < MAX_NODES {
                taken += 1;
                *tag = tag_of(nodes.len());
                nodes.push(Node { class, level: 0, edges: 0 });
            }
            Visit::Beside
        });
        self.instances = self.nodes.len();
        count
    }

    /// One pass per level, from the instances to the roots. Returns the shortest way to each node, and why it was cut, if it was.
    fn walk_back(
        &mut self,
        jvmti: Jvmti,
        classes: &[(Known, JClass<'_>)],
    ) -> (Vec<Option<usize>>, Option<&'static str>) {
        let started = process::monotonic_ns();
        let mut last = Vec::new();
        for level in 0..MAX_LEVELS {
            let before = self.nodes.len();
            let mut visit = |reference: Reference<'_>| {
                self.see(classes, level, reference);
                Visit::Deeper
            };
            if jvmti.follow(HeapFilter::None, None, &mut visit).is_err() {
                return (last, Some("the virtual machine does not walk its references"));
            }
            last = self.shortest();
            if last.iter().take(self.instances).all(Option::is_some) || self.nodes.len() == before {
                return (last, None);
            }
            if self.nodes.len() >= MAX_NODES || self.edges.len() >= MAX_EDGES {
                return (last, Some("too many objects lie on the way"));
            }
            if process::monotonic_ns().saturating_sub(started) > MAX_NS {
                return (last, Some("it took too long"));
            }
        }
        (last, Some("the way is too long"))
    }

    /// Looks at one reference: does it lead to an object of this level?
    fn see(&mut self, classes: &[(Known, JClass<'_>)], level: u32, reference: Reference<'_>) {
        let Some(to) = node_of(*reference.tag) else { return };
        let Some(node) = self.nodes.get_mut(to).filter(|node| node.level == level) else { return };
        // A root is always worth its place.
        let crowded = node.edges >= EDGES_PER_NODE;
        node.edges += 1;
        let from = match (reference.kind, reference.referrer_tag) {
            (ReferenceKind::Class | ReferenceKind::ConstantPool | ReferenceKind::ClassPart, _) => return,
            (ReferenceKind::StaticField(_) | ReferenceKind::ClassLoader, Some(class)) => From::Class(*class),
            (ReferenceKind::Field(_) | ReferenceKind::ArrayElement(_), _) if crowded => return,
            (ReferenceKind::Field(index), Some(tag)) => {
                let owner = known(classes, reference.referrer_class_tag);
                if owner.is_some_and(|owner| owner.referent == Some(index)) {
                    return;
                }
                let Some(from) = self.node(tag, reference.referrer_class_tag, level) else { return };
                from
            }
            (ReferenceKind::ArrayElement(_), Some(tag)) => {
                let Some(from) = self.node(tag, reference.referrer_class_tag, level) else { return };
                from
            }
            (_, None) => From::Root,
            _ => return,
        };
        if self.edges.len() < self.edges.capacity() {
            self.edges.push(Edge { to, from, kind: reference.kind, class: reference.referrer_class_tag });
        }
    }

    /// The node of an object that refers; a class stands for its static fields.
    fn node(&mut self, tag: &mut i64, class: i64, level: u32) -> Option<From> {
        if let Some(node) = node_of(*tag) {
            return Some(From::Node(node));
        }
        if self.nodes.len() >= self.nodes.capacity() {
            return None;
        }
        let new = self.nodes.len();
        *tag = tag_of(new);
        self.nodes.push(Node { class, level: level + 1, edges: 0 });
        Some(From::Node(new))
    }

    /// For each node the edge on its shortest way from a root: breadth first from the roots over what was walked.
    fn shortest(&self) -> Vec<Option<usize>> {
        let mut outgoing: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let mut last: Vec<Option<usize>> = vec![None; self.nodes.len()];
        let mut queue = std::collections::VecDeque::new();
        // A static field names its owner best, a class loader says least.
        for rank in 0..3 {
            for (i, edge) in self.edges.iter().enumerate() {
                match edge.from {
                    From::Node(from) if rank == 0 => {
                        if let Some(list) = outgoing.get_mut(from) {
                            list.push(i);
                        }
                    }
                    From::Node(_) => {}
                    _ if rank_of(edge.kind) == rank => {
                        if let Some(place) = last.get_mut(edge.to).filter(|place| place.is_none()) {
                            *place = Some(i);
                            queue.push_back(edge.to);
                        }
                    }
                    _ => {}
                }
            }
        }
        while let Some(node) = queue.pop_front() {
            for &i in outgoing.get(node).into_iter().flatten() {
                let Some(edge) = self.edges.get(i) else { continue };
                if let Some(place) = last.get_mut(edge.to).filter(|place| place.is_none()) {
                    *place = Some(i);
                    queue.push_back(edge.to);
                }
            }
        }
        last
    }

    /// The references from an instance outwards to its root; `None`: no root was met.
    fn way(&self, last: &[Option<usize>], instance: usize) -> Option<Vec<Edge>> {
        let mut way = Vec::new();
        let mut at = instance;
        loop {
            let edge = *self.edges.get((*last.get(at)?)?)?;
            way.push(edge);
            match edge.from {
                From::Node(next) => at = next,
                From::Root | From::Class(_) => return Some(way),
            }
        }
    }

    fn found(
        &self,
        env: &mut Env<'_>,
        names: &mut Names<'_, '_>,
        class: &str,
        instances: u64,
        (last, cut): (&[Option<usize>], Option<&str>),
    ) -> Found {
        let mut paths: Vec<HolderPath> = Vec::new();
        let mut open = 0;
        for (i, node) in self.nodes.iter().take(self.instances).enumerate() {
            if names.class(node.class) != class {
                continue;
            }
            let Some(way) = self.way(last, i) else {
                open += 1;
                continue;
            };
            let links = self.links(env, names, &way);
            match paths.iter_mut().find(|path| path.links == links) {
                Some(path) => path.instances += 1,
                None => paths.push(HolderPath { instances: 1, links }),
            }
        }
        paths.sort_by_key(|path| (core::cmp::Reverse(path.instances), path.links.len()));
        paths.truncate(MAX_PATHS);
        let unheld =
            (open > 0 && paths.is_empty()).then_some("no root holds them: they wait for a collection");
        Found { class: class.to_owned(), instances, paths, cut: cut.or(unheld).map(str::to_owned) }
    }

    /// From the root on. A step from an object to another of its class (the `next` of a list or of a hash bucket) is left out: how many
    /// there are depends on chance.
    fn links(&self, env: &mut Env<'_>, names: &mut Names<'_, '_>, way: &[Edge]) -> Vec<HolderLink> {
        let links = way.iter().rev().map(|edge| {
            let to = self.nodes.get(edge.to).map_or(0, |node| node.class);
            names.link(env, edge, to)
        });
        links.filter(|link| link.kind != "field" || link.owner != link.class).collect()
    }
}

const fn rank_of(kind: ReferenceKind) -> u32 {
    match kind {
        ReferenceKind::StaticField(_) => 0,
        ReferenceKind::ClassLoader | ReferenceKind::SystemClass | ReferenceKind::Other => 2,
        _ => 1,
    }
}

const fn tag_of(node: usize) -> i64 {
    FIRST + node.cast_signed() as i64
}

fn node_of(tag: i64) -> Option<usize> {
    usize::try_from(tag.checked_sub(FIRST)?).ok()
}

fn known<'a>(classes: &'a [(Known, JClass<'_>)], number: i64) -> Option<&'a Known> {
    classes.get(usize::try_from(number).ok()?.checked_sub(1)?).map(|(known, _)| known)
}

/// Names of classes and fields.
struct Names<'a, 'l> {
    jvmti: Jvmti,
    classes: &'a [(Known, JClass<'l>)],
    fields: BTreeMap<i64, Vec<(String, String)>>,
}

impl Names<'_, '_> {
    fn class(&self, number: i64) -> &str {
        known(self.classes, number).map_or("?", |known| &known.name)
    }

    fn link(&mut self, env: &mut Env<'_>, edge: &Edge, to: i64) -> HolderLink {
        let class = self.class(to).to_owned();
        let make = |kind: &str, owner: String, name: String| HolderLink {
            kind: kind.to_owned(),
            owner,
            name,
            class: class.clone(),
        };
        match (edge.kind, edge.from) {
            (ReferenceKind::StaticField(index), From::Class(owner)) => {
                let (declared_by, name) = self.field(env, owner, index);
                make("static", declared_by, name)
            }
            (ReferenceKind::ClassLoader, From::Class(owner)) => {
                make("class loader", self.class(owner).to_owned(), String::new())
            }
            (ReferenceKind::Field(index), _) => {
                let (_, name) = self.field(env, edge.class, index);
                make("field", self.class(edge.class).to_owned(), name)
            }
            (ReferenceKind::ArrayElement(_), _) => {
                make("array", self.class(edge.class).to_owned(), "[x]".to_owned())
            }
            (ReferenceKind::JniGlobal, _) => make("jni global", String::new(), String::new()),
            (ReferenceKind::Thread, _) => make("thread", String::new(), String::new()),
            (ReferenceKind::StackLocal(_, method), _) => {
                make("stack", self.declaring(env, method), self.method(method))
            }
            (ReferenceKind::JniLocal(_, method), _) => {
                make("jni local", self.declaring(env, method), self.method(method))
            }
            (ReferenceKind::Monitor, _) => make("monitor", String::new(), String::new()),
            (ReferenceKind::SystemClass, _) => make("system class", String::new(), String::new()),
            _ => make("virtual machine", String::new(), String::new()),
        }
    }

    fn method(&self, method: Method) -> String {
        self.jvmti.method_name(method).unwrap_or_default()
    }

    fn declaring(&self, env: &mut Env<'_>, method: Method) -> String {
        let jvmti = self.jvmti;
        env.with_local_frame(4, |env| -> Result<String, jni::errors::Error> {
            Ok(jvmti
                .declaring_class(env, method)
                .map_or_else(|_unknown| String::new(), |class| name_of(jvmti, &class)))
        })
        .unwrap_or_default()
    }

    /// The class that declares the field with this number, and its name.
    fn field(&mut self, env: &mut Env<'_>, class: i64, index: u32) -> (String, String) {
        if !self.fields.contains_key(&class) {
            let place = usize::try_from(class).ok().and_then(|n| n.checked_sub(1));
            let found = place.and_then(|place| self.classes.get(place));
            let fields = found.map(|(_, class)| fields_of(env, self.jvmti, class)).unwrap_or_default();
            self.fields.insert(class, fields);
        }
        let known = self.fields.get(&class).and_then(|fields| fields.get(index as usize)).cloned();
        known.unwrap_or_else(|| (self.class(class).to_owned(), format!("#{index}")))
    }
}

/// The fields of a class, `(class that declares it, name)`, in the order in which references number them (JVMTI,
/// `jvmtiHeapReferenceInfoField`): those of all interfaces, then of the superclasses from `Object` down, then its own.
fn fields_of(env: &mut Env<'_>, jvmti: Jvmti, class: &JClass<'_>) -> Vec<(String, String)> {
    let fields = env.with_local_frame(256, |env| -> Result<_, jni::errors::Error> {
        let mut chain = Vec::new();
        let mut at = Some(env.new_local_ref(class)?);
        while let Some(class) = at {
            at = env.get_superclass(&class)?;
            chain.push(class);
        }
        let mut interfaces: BTreeMap<i64, usize> = BTreeMap::new();
        for class in &chain {
            count_interface_fields(env, jvmti, class, &mut interfaces);
        }
        let mut fields: Vec<(String, String)> =
            vec![(String::new(), String::new()); interfaces.values().sum()];
        for class in chain.iter().rev() {
            let owner = name_of(jvmti, class);
            let own = jvmti.fields(class).unwrap_or_default();
            fields.extend(own.into_iter().map(|field| (owner.clone(), field.name)));
        }
        Ok(fields)
    });
    fields.unwrap_or_default()
}

/// Fields of the interfaces of a class, each interface (by its tag) once.
fn count_interface_fields(
    env: &mut Env<'_>,
    jvmti: Jvmti,
    class: &JObject<'_>,
    seen: &mut BTreeMap<i64, usize>,
) {
    for interface in jvmti.interfaces(env, class).unwrap_or_default() {
        let tag = jvmti.tag(&interface).unwrap_or(0);
        if let Entry::Vacant(place) = seen.entry(tag) {
            place.insert(jvmti.fields(&interface).map_or(0, |fields| fields.len()));
            count_interface_fields(env, jvmti, &interface, seen);
        }
    }
}
