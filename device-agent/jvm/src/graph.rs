//! Objects, the references between them, and the shortest paths that lead to them from a root.
//!
//! Data flow: a heap walk adds objects and references while the virtual machine is stopped, into memory that was
//! reserved before ([`Graph::make_room`]) → [`Graph::shortest`] searches breadth first from the roots →
//! [`Graph::path`] returns a path. There may be millions of objects and references: 8 bytes per object, 16 per
//! reference.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use memgate_jvmti::ReferenceKind;

/// Maximum number of references to one object that are kept. References from roots are kept in addition.
const EDGES_PER_NODE: u8 = 64;
/// Maximum number of references from roots, static fields and classes.
const ROOTS: usize = 1 << 18;
/// Maximum number of references in one path.
const STEPS: usize = 10_000;

/// Values of [`Packed::from`] from this number on are indexes into [`Graph::roots`].
const ROOT: u32 = 1 << 31;
/// Layout of [`Packed::kind`]: the kind, then the index of the field.
const INDEX_BITS: u32 = 30;
const INDEX: u32 = (1 << INDEX_BITS) - 1;
/// No reference leads here.
const NONE: u32 = u32::MAX;

/// A reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Another object; or the stack of a virtual thread, which is this object; or a static field of this class, whose
    /// loader leaks.
    Node(usize),
}

struct Node {
    class: u32,
    /// Number of references between this object and an instance, if the heap is walked level by level.
    level: u8,
    /// Number of references from other objects.
    edges: u8,
}

struct Packed {
    to: u32,
    from: u32,
    kind: u32,
    class: u32,
}

/// A part of the heap.
#[derive(Default)]
pub(super) struct Graph {
    nodes: Vec<Node>,
    edges: Vec<Packed>,
    roots: Vec<Edge>,
}

#[derive(Default)]
pub(super) struct Shortest {
    /// For each object, the last reference on its shortest path from a root.
    last: Vec<u32>,
    /// References of virtual threads, and static fields of classes, to which no path leads. A path begins there.
    unheld: BTreeSet<u32>,
}

impl Shortest {
    pub(super) fn leads_to(&self, node: usize) -> bool {
        self.last.get(node).is_some_and(|edge| *edge != NONE)
    }

    /// Records `i` if it is the first reference that leads there. Returns whether it was the first.
    fn takes(&mut self, i: u32, node: u32) -> bool {
        let place = self.last.get_mut(node as usize).filter(|place| **place == NONE);
        place.map(|place| *place = i).is_some()
    }
}

impl Graph {
    /// Reserves room for this many objects and references in total. Returns false if there is no memory.
    pub(super) fn make_room(&mut self, nodes: usize, edges: usize) -> bool {
        let more = |wanted: usize, most: u32, there: usize| wanted.min(most as usize).saturating_sub(there);
        self.nodes.try_reserve_exact(more(nodes, ROOT, self.nodes.len())).is_ok()
            && self.edges.try_reserve_exact(more(edges, NONE, self.edges.len())).is_ok()
            && self.roots.try_reserve_exact(more(ROOTS, ROOT, self.roots.len())).is_ok()
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Is one of the lists full?
    pub(super) fn is_full(&self) -> bool {
        self.nodes.len() == self.nodes.capacity()
            || self.edges.len() == self.edges.capacity()
            || self.roots.len() == self.roots.capacity()
    }

    /// Adds an object of this class. `None`: there is no room.
    pub(super) fn add_node(&mut self, class: i64, level: u8) -> Option<usize> {
        let new = self.nodes.len();
        if new == self.nodes.capacity() {
            return None;
        }
        self.nodes.push(Node { class: u32::try_from(class).unwrap_or(0), level, edges: 0 });
        Some(new)
    }

    /// Number of the class of an object.
    pub(super) fn class(&self, node: usize) -> i64 {
        self.nodes.get(node).map_or(0, |node| i64::from(node.class))
    }

    pub(super) fn is_of_level(&self, node: usize, level: u8) -> bool {
        self.nodes.get(node).is_some_and(|node| node.level == level)
    }

    /// Has this object so many references that no more are kept? References from roots are always kept.
    pub(super) fn is_crowded(&self, node: usize) -> bool {
        self.nodes.get(node).is_none_or(|node| node.edges >= EDGES_PER_NODE)
    }

    /// Adds a reference, if there is room.
    pub(super) fn add(&mut self, edge: Edge) {
        if self.edges.len() == self.edges.capacity() {
            return;
        }
        let (from, kind) = match (edge.from, packed(edge.kind)) {
            (From::Node(from), Some(kind)) => {
                if let Some(node) = self.nodes.get_mut(edge.to) {
                    node.edges = node.edges.saturating_add(1);
                }
                (number(from), kind)
            }
            _ if self.roots.len() == self.roots.capacity() => return,
            _ => {
                let place = number(self.roots.len());
                self.roots.push(edge);
                (ROOT.wrapping_add(place), 0)
            }
        };
        let class = u32::try_from(edge.class).unwrap_or(0);
        self.edges.push(Packed { to: number(edge.to), from, kind, class });
    }

    fn edge(&self, edge: &Packed) -> Option<Edge> {
        if let Some(root) = edge.from.checked_sub(ROOT) {
            return self.roots.get(root as usize).copied();
        }
        let from = From::Node(edge.from as usize);
        Some(Edge { to: edge.to as usize, from, kind: unpacked(edge.kind), class: i64::from(edge.class) })
    }

    /// The reference, if it is stored in [`Graph::roots`].
    fn root(&self, edge: &Packed) -> Option<&Edge> {
        self.roots.get(edge.from.checked_sub(ROOT)? as usize)
    }

    /// The object that refers.
    fn referrer(&self, edge: &Packed) -> Option<usize> {
        match self.root(edge) {
            Some(Edge { from: From::Node(thread), .. }) => Some(*thread),
            Some(_) => None,
            None => Some(edge.from as usize),
        }
    }

    /// Searches breadth first from the roots. Frames of threads come last, because what they hold changes while a
    /// thread runs: a thread that has just begun, or that waits, would be the same leak with another holder. Then come
    /// class loaders, then the stacks of virtual threads that nothing holds, and the static fields of classes whose
    /// loader leaks. They are used only for objects that nothing else holds. Also returns whether none of these
    /// `instances` needs one of them. `None`: out of memory.
    pub(super) fn shortest(&self, instances: &[usize]) -> Option<(Shortest, bool)> {
        let outgoing = Outgoing::of(self)?;
        let mut last = Shortest { last: filled(NONE, self.nodes.len())?, unheld: BTreeSet::new() };
        let mut queue = VecDeque::new();
        queue.try_reserve_exact(self.nodes.len()).ok()?;
        // Static fields come first: they name the owner best.
        self.spread(&outgoing, &mut last, &mut queue, 0..3);
        let good = instances.iter().all(|instance| last.leads_to(*instance));
        for ranks in [3..4, 4..5] {
            self.spread(&outgoing, &mut last, &mut queue, ranks);
        }
        for (i, edge) in (0..).zip(&self.edges) {
            let thread = self.root(edge).and_then(|_| self.referrer(edge));
            if thread.is_some_and(|thread| !last.leads_to(thread)) && last.takes(i, edge.to) {
                last.unheld.insert(i);
                queue.push_back(edge.to);
            }
        }
        self.spread(&outgoing, &mut last, &mut queue, 0..0);
        Some((last, good))
    }

    /// Extends paths from the roots of these ranks to every object that has none yet.
    fn spread(&self, outgoing: &Outgoing, last: &mut Shortest, queue: &mut VecDeque<u32>, ranks: Range<u32>) {
        let mut reach = |i: u32, queue: &mut VecDeque<u32>| {
            let Some(to) = self.edges.get(i as usize).map(|edge| edge.to) else { return };
            if last.takes(i, to) {
                queue.push_back(to);
            }
        };
        for rank in ranks {
            for (i, edge) in (0..).zip(&self.edges) {
                let root = self.root(edge).filter(|root| !matches!(root.from, From::Node(_)));
                if root.is_some_and(|root| rank_of(root.kind) == rank) {
                    reach(i, queue);
                }
            }
        }
        while let Some(node) = queue.pop_front() {
            for i in outgoing.from(node) {
                reach(*i, queue);
            }
        }
    }

    /// The references from an object outwards to its root.
    pub(super) fn path(&self, last: &Shortest, node: usize) -> Result<Vec<Edge>, Lost> {
        let mut path = Vec::new();
        let mut at = node;
        while path.len() < STEPS {
            let i = *last.last.get(at).ok_or(Lost::NoRoot)?;
            let edge = self.edges.get(i as usize).and_then(|edge| self.edge(edge)).ok_or(Lost::NoRoot)?;
            path.push(edge);
            match edge.from {
                From::Node(next) if !last.unheld.contains(&i) => at = next,
                _ => return Ok(path),
            }
        }
        Err(Lost::TooLong)
    }
}

/// Why there is no path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lost {
    NoRoot,
    TooLong,
}

/// Numbers of the references from each object, grouped by object.
struct Outgoing {
    /// The start of each object's references; one more entry at the end.
    begins: Vec<u32>,
    edges: Vec<u32>,
}

impl Outgoing {
    fn of(graph: &Graph) -> Option<Self> {
        let mut begins = filled(0_u32, graph.nodes.len().wrapping_add(1))?;
        for edge in &graph.edges {
            if let Some(count) = graph.referrer(edge).and_then(|from| begins.get_mut(from)) {
                *count = (*count).wrapping_add(1);
            }
        }
        // The sums are the ends of the groups. Filling each group from its end turns them into the starts.
        let mut sum = 0_u32;
        for begin in &mut begins {
            sum = sum.wrapping_add(*begin);
            *begin = sum;
        }
        let mut edges = filled(0, sum as usize)?;
        for (i, edge) in graph.edges.iter().enumerate().rev() {
            let begin = graph.referrer(edge).and_then(|from| begins.get_mut(from));
            if let Some(begin) = begin.filter(|begin| **begin > 0) {
                *begin = (*begin).wrapping_sub(1);
                if let Some(place) = edges.get_mut(*begin as usize) {
                    *place = number(i);
                }
            }
        }
        Some(Self { begins, edges })
    }

    fn from(&self, node: u32) -> &[u32] {
        let at = |node: u32| self.begins.get(node as usize).map(|begin| *begin as usize);
        match (at(node), at(node.wrapping_add(1))) {
            (Some(begin), Some(end)) => self.edges.get(begin..end).unwrap_or_default(),
            _ => &[],
        }
    }
}

/// A vector of `length` copies of `value`. `None`: out of memory.
fn filled(value: u32, length: usize) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    all.try_reserve_exact(length).ok()?;
    all.resize(length, value);
    Some(all)
}

const fn packed(kind: ReferenceKind) -> Option<u32> {
    // The indexes of arrays are not reported.
    let (kind, index) = match kind {
        ReferenceKind::Class => (0, 0),
        ReferenceKind::Field(index) => (1, index),
        ReferenceKind::ArrayElement(_) => (2, 0),
        ReferenceKind::ClassLoader => (3, 0),
        _ => return None,
    };
    if index > INDEX { None } else { Some((kind << INDEX_BITS) | index) }
}

const fn unpacked(kind: u32) -> ReferenceKind {
    match kind >> INDEX_BITS {
        0 => ReferenceKind::Class,
        1 => ReferenceKind::Field(kind & INDEX),
        2 => ReferenceKind::ArrayElement(0),
        _ => ReferenceKind::ClassLoader,
    }
}

const fn rank_of(kind: ReferenceKind) -> u32 {
    match kind {
        ReferenceKind::StaticField(_) => 0,
        ReferenceKind::SystemClass | ReferenceKind::Other => 2,
        ReferenceKind::StackLocal(..) | ReferenceKind::JniLocal(..) => 3,
        ReferenceKind::ClassLoader => 4,
        _ => 1,
    }
}

fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATIC: ReferenceKind = ReferenceKind::StaticField(7);

    fn graph(nodes: usize) -> Graph {
        let mut graph = Graph::default();
        assert!(graph.make_room(nodes, 3 * nodes));
        for _ in 0..nodes {
            graph.add_node(5, 0).unwrap();
        }
        graph
    }

    fn edge(from: From, to: usize, kind: ReferenceKind) -> Edge {
        Edge { to, from, kind, class: 5 }
    }

    /// The kinds of the references on the path, from the object on.
    fn path(graph: &Graph, node: usize) -> Result<Vec<ReferenceKind>, Lost> {
        let (last, _) = graph.shortest(&[0]).unwrap();
        graph.path(&last, node).map(|path| path.iter().map(|edge| edge.kind).collect())
    }

    #[test]
    fn the_shortest_way_is_told_as_it_was_added() {
        let mut graph = graph(3);
        let field = ReferenceKind::Field(INDEX);
        for edge in [
            edge(From::Node(2), 0, field),
            edge(From::Node(1), 2, ReferenceKind::ArrayElement(0)),
            edge(From::Node(1), 0, ReferenceKind::Class),
            edge(From::Class(9), 2, STATIC),
            edge(From::Root, 1, ReferenceKind::JniGlobal),
        ] {
            graph.add(edge);
        }
        // Both paths have two references; the one from a static field comes first.
        let (last, good) = graph.shortest(&[0, 1, 2]).unwrap();
        assert!(good);
        let expected = [edge(From::Node(2), 0, field), edge(From::Class(9), 2, STATIC)];
        assert_eq!(graph.path(&last, 0), Ok(expected.to_vec()));
    }

    #[test]
    fn a_class_loader_holds_only_what_nothing_else_holds() {
        let mut graph = graph(3);
        graph.add(edge(From::Class(9), 0, ReferenceKind::ClassLoader));
        assert_eq!(path(&graph, 0), Ok(vec![ReferenceKind::ClassLoader]));
        assert!(!graph.shortest(&[0]).unwrap().1, "it needs a loader");
        graph.add(edge(From::Node(1), 0, ReferenceKind::Field(0)));
        graph.add(edge(From::Node(2), 1, ReferenceKind::Field(1)));
        graph.add(edge(From::Root, 2, ReferenceKind::Thread));
        let expected = vec![ReferenceKind::Field(0), ReferenceKind::Field(1), ReferenceKind::Thread];
        assert_eq!(path(&graph, 0), Ok(expected));
        assert!(graph.shortest(&[0]).unwrap().1);
    }

    /// The frames of a thread that has not begun, or that waits, hold other objects than those of one that works.
    #[test]
    fn a_thread_holds_an_object_by_its_fields_whatever_its_frames_hold() {
        let mut graph = graph(3);
        let (worker, queue, task) = (0, 1, 2);
        let (field, element) = (ReferenceKind::Field(0), ReferenceKind::ArrayElement(0));
        graph.add(edge(From::Root, worker, ReferenceKind::Thread));
        graph.add(edge(From::Node(worker), queue, field));
        graph.add(edge(From::Node(queue), task, element));
        let before = path(&graph, task);
        assert_eq!(before, Ok(vec![element, field, ReferenceKind::Thread]));
        let frame = memgate_jvmti::StackFrame::NONE;
        for kind in [ReferenceKind::StackLocal(9, frame), ReferenceKind::JniLocal(9, frame.method)] {
            graph.add(edge(From::Root, queue, kind));
            graph.add(edge(From::Root, task, kind));
            assert_eq!(path(&graph, task), before);
        }
        assert!(graph.shortest(&[task]).unwrap().1, "more levels are of no use");
    }

    #[test]
    fn a_local_variable_holds_what_nothing_else_but_a_class_loader_holds() {
        let mut graph = graph(2);
        let local = ReferenceKind::StackLocal(9, memgate_jvmti::StackFrame::NONE);
        graph.add(edge(From::Class(9), 0, ReferenceKind::ClassLoader));
        graph.add(edge(From::Root, 1, local));
        graph.add(edge(From::Node(1), 0, ReferenceKind::Field(0)));
        assert_eq!(path(&graph, 0), Ok(vec![ReferenceKind::Field(0), local]));
        assert!(!graph.shortest(&[0]).unwrap().1, "a better one may be further away");
    }

    #[test]
    fn the_stack_of_a_virtual_thread_is_held_by_what_holds_the_thread() {
        let mut graph = graph(3);
        let frame = memgate_jvmti::StackFrame::NONE;
        let (thread, other, tile) = (0, 1, 2);
        let stack = |from, to| edge(From::Node(from), to, ReferenceKind::StackLocal(9, frame));
        for edge in [stack(thread, tile), stack(thread, thread), stack(other, thread), stack(thread, other)] {
            graph.add(edge);
        }
        let (last, good) = graph.shortest(&[tile]).unwrap();
        assert_eq!(
            (graph.path(&last, tile), good),
            (Ok(vec![stack(thread, tile)]), false),
            "nothing holds it"
        );
        graph.add(edge(From::Class(9), thread, STATIC));
        let (last, good) = graph.shortest(&[tile]).unwrap();
        let expected = vec![stack(thread, tile), edge(From::Class(9), thread, STATIC)];
        assert_eq!((graph.path(&last, tile), good), (Ok(expected), true));
    }

    /// A listener in a list keeps its class loader, and with it the static fields of all classes of that loader.
    #[test]
    fn a_static_field_of_a_leaked_loader_is_held_by_what_holds_its_class() {
        let mut graph = graph(4);
        let (class, instance, loader, listener) = (0, 1, 2, 3);
        let own = edge(From::Node(class), instance, STATIC);
        graph.add(own);
        graph.add(edge(From::Node(loader), class, ReferenceKind::Field(0)));
        let (last, good) = graph.shortest(&[instance]).unwrap();
        assert_eq!(
            (graph.path(&last, instance), good),
            (Ok(vec![own]), false),
            "nothing is known to hold it"
        );
        let by_loader = edge(From::Node(listener), loader, ReferenceKind::ClassLoader);
        graph.add(by_loader);
        graph.add(edge(From::Class(9), listener, STATIC));
        let (last, good) = graph.shortest(&[instance]).unwrap();
        let path =
            graph.path(&last, instance).map(|path| path.iter().map(|edge| edge.from).collect::<Vec<_>>());
        let expected = vec![From::Node(class), From::Node(loader), From::Node(listener), From::Class(9)];
        assert_eq!((path, good), (Ok(expected), true));
    }

    #[test]
    fn references_of_many_objects_to_one_leave_room_for_those_of_roots() {
        let mut graph = graph(100);
        for from in 1..=EDGES_PER_NODE {
            graph.add(edge(From::Root, 0, ReferenceKind::JniGlobal));
            assert!(!graph.is_crowded(0), "{from}");
            graph.add(edge(From::Node(from.into()), 0, ReferenceKind::Field(0)));
        }
        assert!(graph.is_crowded(0));
    }

    #[test]
    fn what_no_root_holds_has_no_way_though_it_refers_to_itself_in_a_circle() {
        let mut graph = graph(2);
        graph.add(edge(From::Node(0), 1, ReferenceKind::Field(0)));
        graph.add(edge(From::Node(1), 0, ReferenceKind::Field(0)));
        assert_eq!(path(&graph, 0), Err(Lost::NoRoot));
    }

    #[test]
    fn a_list_is_walked_to_its_end_unless_that_is_very_far() {
        for (length, expected) in [(STEPS, Ok(STEPS)), (STEPS + 1, Err(Lost::TooLong))] {
            let mut graph = graph(length);
            graph.add(edge(From::Class(9), length - 1, STATIC));
            for node in 1..length {
                graph.add(edge(From::Node(node), node - 1, ReferenceKind::Field(0)));
            }
            assert_eq!(path(&graph, 0).map(|path| path.len()), expected);
        }
    }

    #[test]
    fn there_is_room_for_what_was_asked_for_and_no_more() {
        let mut graph = Graph::default();
        assert!(graph.make_room(1, 2));
        let node = graph.add_node(5, 0).unwrap();
        assert!(graph.add_node(5, 0).is_none() && graph.is_full());
        for _ in 0..3 {
            graph.add(edge(From::Class(9), node, STATIC));
        }
        assert_eq!((graph.edges.len(), graph.roots.len()), (2, 2));
        assert!(graph.make_room(2, 3) && !graph.is_full());
        assert!(graph.add_node(5, 0).is_some());
        graph.add(edge(From::Class(9), node, STATIC));
        assert_eq!((graph.edges.len(), graph.nodes.len()), (3, 2));
    }
}
