//! The part of the heap between the roots and some instances, walked backwards.
//!
//! Data flow: [`Ways::take_new`] makes nodes of the unmarked instances; [`Ways::walk_back`] passes over all references once per level:
//! a reference to an object of the last level makes its referrer a node of the next one, until every instance has a way to a root;
//! [`Ways::way`] tells the shortest. Visitors run while the virtual machine stands still: they write into vectors that were made
//! large enough before, and look at the clocks now and then, so that time and memory are bounded.

use jni::objects::{JClass, JObject};
use memgate_jvmti::{HeapFilter, Jvmti, Method, Reference, ReferenceKind, StackFrame, Visit};

use super::chosen::Chosen;
use super::limit::Limit;
use super::names::{Known, known};

/// New instances of one class whose holders are looked for.
const MAX_INSTANCES: u64 = 256;
/// Objects on the ways.
const MAX_NODES: usize = 200_000;
/// References between them.
const MAX_EDGES: usize = 800_000;
/// References to one object that are followed; roots come beside.
const EDGES_PER_NODE: u32 = 64;
const MAX_LEVELS: u32 = 40;
/// Levels behind the first way of all instances, where some of them lead over nothing but a class loader.
const LEVELS_BEHIND_A_LOADER: u32 = 8;
/// Processor time of all passes together.
const MAX_CPU_NS: u64 = 10_000_000_000;

/// Tag of the first thread; below lie the numbers of classes.
const THREADS: i64 = 1 << 39;
/// Tag of an instance that was there before the window.
pub(super) const OLD: i64 = 1 << 40;
/// Tag of the first object on a way.
const FIRST: i64 = 1 << 41;

/// A reference to an object on a way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub(super) to: usize,
    pub(super) from: From,
    pub(super) kind: ReferenceKind,
    /// Number of the class of the object that refers.
    pub(super) class: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Root,
    /// A static field (or another part) of the class with this number.
    Class(i64),
    /// Another object on the way.
    Node(usize),
}

/// An object on a way.
pub(super) struct Node {
    pub(super) class: i64,
    /// It is this thread of [`Ways::threads`].
    pub(super) thread: Option<usize>,
    /// References between it and an instance.
    level: u32,
    /// References to it that were taken.
    edges: u32,
}

/// The part of the heap that lies between roots and instances, as far as it was walked.
pub(super) struct Ways {
    pub(super) nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// How many of the nodes are the instances themselves.
    pub(super) instances: usize,
    /// Nodes of classes by their number, one more than the place: a class stands for its loader, and its objects hold it.
    class_nodes: Vec<usize>,
    /// The native method that measures: what it refers to, it does not hold.
    own: Option<Method>,
    /// When to stop.
    limit: Limit,
}

/// How the search ended.
pub(super) struct Walked {
    /// Of each node the edge on its way from a root.
    pub(super) last: Vec<Option<usize>>,
    /// Why it was cut, if it was.
    pub(super) cut: Option<&'static str>,
}

impl Ways {
    pub(super) fn with_room(jvmti: Jvmti, classes: usize) -> Self {
        let mut innermost = [StackFrame::NONE];
        let own = jvmti.own_stack(&mut innermost).ok().and_then(<[_]>::first).map(|frame| frame.method);
        Self {
            own,
            class_nodes: vec![0; classes + 1],
            nodes: Vec::with_capacity(MAX_NODES),
            edges: Vec::with_capacity(MAX_EDGES),
            instances: 0,
            limit: Limit::of(MAX_CPU_NS),
        }
    }

    /// Takes the unmarked instances of these classes; returns how many there are of each.
    pub(super) fn take_new(&mut self, jvmti: Jvmti, chosen: &Chosen<'_, '_>) -> Vec<u64> {
        let mut counts = vec![0; self.class_nodes.len()];
        let nodes = &mut self.nodes;
        chosen.visit(jvmti, &mut |class, tag| {
            let Some(count) = usize::try_from(class).ok().and_then(|class| counts.get_mut(class)) else {
                return;
            };
            *count += 1;
            if *count <= MAX_INSTANCES && nodes.len() < MAX_NODES {
                *tag = tag_of(nodes.len());
                nodes.push(Node { class, thread: None, level: 0, edges: 0 });
            }
        });
        self.instances = self.nodes.len();
        counts
    }

    /// Numbers the threads, so that what their stacks hold tells whose it is.
    pub(super) fn mark_threads(&mut self, jvmti: Jvmti, threads: &[JObject<'_>]) {
        for (number, thread) in threads.iter().enumerate() {
            match node_of(jvmti.tag(thread).unwrap_or(0)).and_then(|node| self.nodes.get_mut(node)) {
                Some(node) => node.thread = Some(number),
                None => {
                    let _nameless = jvmti.set_tag(thread, THREADS + number.cast_signed() as i64);
                }
            }
        }
    }

    /// The thread that a tag belongs to.
    pub(super) fn thread(&self, tag: i64) -> Option<usize> {
        match node_of(tag) {
            Some(node) => self.nodes.get(node)?.thread,
            None => thread_of(tag),
        }
    }

    /// One pass per level, from the instances to the roots.
    pub(super) fn walk_back(&mut self, jvmti: Jvmti, classes: &[(Known, JClass<'_>)]) -> Walked {
        let mut walked = Walked { last: Vec::new(), cut: None };
        let mut reached_at: Option<u32> = None;
        for level in 0..MAX_LEVELS {
            let before = self.nodes.len();
            let mut visit = |reference: Reference<'_>| {
                self.see(classes, level, reference);
                if self.limit.is_late() { Visit::Abort } else { Visit::Deeper }
            };
            let done = jvmti.follow(HeapFilter::None, None, &mut visit);
            let (last, good) = self.shortest();
            walked.last = last;
            walked.cut = None;
            if done.is_err() {
                walked.cut = Some("the virtual machine does not walk its references");
                return walked;
            }
            let all = walked.last.iter().take(self.instances).all(Option::is_some);
            reached_at = if all { reached_at.or(Some(level)) } else { None };
            let enough = reached_at.is_some_and(|reached| level >= reached + LEVELS_BEHIND_A_LOADER);
            if good || enough || self.nodes.len() == before {
                return walked;
            }
            if self.limit.is_over() {
                // What was found so far stands; a class loader may be all that is named.
                walked.cut = Some("it took too long");
                return walked;
            }
            if self.nodes.len() >= MAX_NODES || self.edges.len() >= MAX_EDGES {
                walked.cut = Some("too many objects lie on the way");
                return walked;
            }
        }
        walked.cut = Some("the way is too long");
        walked
    }

    /// Looks at one reference: does it lead to an object of this level?
    fn see(&mut self, classes: &[(Known, JClass<'_>)], level: u32, reference: Reference<'_>) {
        let Some(to) = self.place(*reference.tag) else { return };
        let Some(node) = self.nodes.get_mut(to).filter(|node| node.level == level) else { return };
        // A root is always worth its place.
        let crowded = node.edges >= EDGES_PER_NODE;
        node.edges += 1;
        let from = match (reference.kind, reference.referrer_tag) {
            (ReferenceKind::ConstantPool | ReferenceKind::ClassPart, _) => return,
            (ReferenceKind::JniLocal(_, method), _) if self.own == Some(method) => return,
            (ReferenceKind::StaticField(_), Some(class)) => From::Class(*class),
            (ReferenceKind::ClassLoader, Some(class)) => {
                // The class, and what holds the class: its objects most of all.
                if let Some(from) = self.class_node(*class, level).filter(|_| !crowded) {
                    self.add(Edge { to, from, kind: reference.kind, class: *class });
                }
                let class = *class;
                return self.add(Edge { to, from: From::Class(class), kind: reference.kind, class });
            }
            (ReferenceKind::Class | ReferenceKind::Field(_) | ReferenceKind::ArrayElement(_), _)
                if crowded =>
            {
                return;
            }
            (ReferenceKind::Field(index), Some(tag)) => {
                let owner = known(classes, reference.referrer_class_tag);
                if owner.is_some_and(|owner| owner.referent == Some(index)) {
                    return;
                }
                let Some(from) = self.node(tag, reference.referrer_class_tag, level) else { return };
                from
            }
            (ReferenceKind::Class | ReferenceKind::ArrayElement(_), Some(tag)) => {
                let Some(from) = self.node(tag, reference.referrer_class_tag, level) else { return };
                from
            }
            // An object that refers to itself.
            (ReferenceKind::Class | ReferenceKind::Field(_) | ReferenceKind::ArrayElement(_), None) => return,
            (_, None) => From::Root,
            _ => return,
        };
        self.add(Edge { to, from, kind: reference.kind, class: reference.referrer_class_tag });
    }

    fn add(&mut self, edge: Edge) {
        if self.edges.len() < self.edges.capacity() {
            self.edges.push(edge);
        }
    }

    /// The node of a tagged object or class.
    fn place(&self, tag: i64) -> Option<usize> {
        node_of(tag).or_else(|| self.class_nodes.get(usize::try_from(tag).ok()?)?.checked_sub(1))
    }

    fn class_node(&mut self, class: i64, level: u32) -> Option<From> {
        let new = self.nodes.len();
        let place = self.class_nodes.get_mut(usize::try_from(class).ok()?)?;
        if *place == 0 {
            if new >= self.nodes.capacity() {
                return None;
            }
            *place = new + 1;
            self.nodes.push(Node { class, thread: None, level: level + 1, edges: 0 });
        }
        place.checked_sub(1).map(From::Node)
    }

    /// The node of an object that refers; a class stands for its static fields.
    fn node(&mut self, tag: &mut i64, class: i64, level: u32) -> Option<From> {
        if let Some(node) = self.place(*tag) {
            return Some(From::Node(node));
        }
        if (1..FIRST).contains(tag) && thread_of(*tag).is_none() && *tag != OLD {
            // A class object: its number must stay.
            return self.class_node(*tag, level);
        }
        if self.nodes.len() >= self.nodes.capacity() {
            return None;
        }
        let thread = thread_of(*tag);
        let new = self.nodes.len();
        *tag = tag_of(new);
        self.nodes.push(Node { class, thread, level: level + 1, edges: 0 });
        Some(From::Node(new))
    }

    /// For each node the edge on its shortest way from a root: breadth first from the roots over what was walked. Class loaders
    /// come last: only what nothing else holds is said to be held by one. True: no instance needs one.
    fn shortest(&self) -> (Vec<Option<usize>>, bool) {
        let mut outgoing: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (i, edge) in self.edges.iter().enumerate() {
            if let From::Node(from) = edge.from
                && let Some(list) = outgoing.get_mut(from)
            {
                list.push(i);
            }
        }
        let mut last: Vec<Option<usize>> = vec![None; self.nodes.len()];
        // A static field names its owner best.
        self.spread(&outgoing, &mut last, &[0, 1, 2]);
        let good = last.iter().take(self.instances).all(Option::is_some);
        self.spread(&outgoing, &mut last, &[3]);
        (last, good)
    }

    /// From the roots of these ranks to every node that has no way yet.
    fn spread(&self, outgoing: &[Vec<usize>], last: &mut [Option<usize>], ranks: &[u32]) {
        let mut queue = std::collections::VecDeque::new();
        let mut reach = |i: usize, queue: &mut std::collections::VecDeque<usize>| {
            let Some(to) = self.edges.get(i).map(|edge| edge.to) else { return };
            if let Some(place) = last.get_mut(to).filter(|place| place.is_none()) {
                *place = Some(i);
                queue.push_back(to);
            }
        };
        for rank in ranks {
            for (i, edge) in self.edges.iter().enumerate() {
                if !matches!(edge.from, From::Node(_)) && rank_of(edge.kind) == *rank {
                    reach(i, &mut queue);
                }
            }
        }
        while let Some(node) = queue.pop_front() {
            for &i in outgoing.get(node).into_iter().flatten() {
                reach(i, &mut queue);
            }
        }
    }

    /// The references from an instance outwards to its root; `None`: no root was met.
    pub(super) fn way(&self, last: &[Option<usize>], instance: usize) -> Option<Vec<Edge>> {
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
}

const fn rank_of(kind: ReferenceKind) -> u32 {
    match kind {
        ReferenceKind::StaticField(_) => 0,
        ReferenceKind::SystemClass | ReferenceKind::Other => 2,
        ReferenceKind::ClassLoader => 3,
        _ => 1,
    }
}

const fn tag_of(node: usize) -> i64 {
    FIRST + node.cast_signed() as i64
}

fn thread_of(tag: i64) -> Option<usize> {
    usize::try_from(tag.checked_sub(THREADS)?).ok().filter(|_| tag < OLD)
}

fn node_of(tag: i64) -> Option<usize> {
    usize::try_from(tag.checked_sub(FIRST)?).ok()
}
