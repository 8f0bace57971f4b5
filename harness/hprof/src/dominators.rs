//! Computes the retained size of each object: the bytes that would be freed with it.
//!
//! Data flow: [`Graph`] and roots → a depth-first search from one node above all roots, which numbers the objects →
//! predecessors by number; the graph's own references are dropped → dominators (Semi-NCA: L. Georgiadis, "Linear-Time
//! Algorithms for Dominators and Related Problems") → sizes, summed upwards. Every step is a loop: a chain of any
//! length needs no stack.
//!
//! As in ahat and Android Studio: only strong references (no `referent` of a `Reference`), from every root of the
//! dump. And as in MAT: an object keeps its class, and so its loader and all classes of that loader. Sizes are those
//! of the file: an instance has the size that its class gives, a class the size of its static fields plus an instance
//! of `java.lang.Class`.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};

use crate::graph::{Graph, Kind};
use crate::ids::{NONE, index, number};
use crate::index::Index;
use crate::read::{Progress, value_bytes};
use crate::text::array_name;

/// The dominator tree.
#[derive(Debug)]
pub struct Dominators {
    /// Objects by their number; number 0 is the node above all roots.
    vertex: Vec<u32>,
    /// Number of an object, [`NONE`] if it is not reachable.
    numbers: Vec<u32>,
    above: Vec<u32>,
    retained: Vec<u64>,
    children: OnceCell<(Vec<u32>, Vec<u32>)>,
    /// Kinds of objects, without references.
    pub graph: Graph,
}

/// Objects of one group, summed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Together {
    /// Name of the group.
    pub name: String,
    /// How many of them are reachable.
    pub count: u64,
    /// Their own bytes.
    pub bytes: u64,
    /// Bytes that would be freed with all of them: the sum over those that no other of them dominates.
    pub retained: u64,
    /// The largest retained size of one of them.
    pub largest: u64,
}

impl Dominators {
    /// Computes numbers, predecessors, dominators and sizes.
    #[must_use]
    pub fn of(dump: &Index, graph: Graph, progress: Progress<'_>) -> Self {
        let strong = Strong::new(dump, &graph);
        progress("dominators", 0, Some(4));
        let mut search = Search::new(dump, &graph, &strong);
        progress("dominators", 1, Some(4));
        let (offsets, predecessors) = search.predecessors(&graph, &strong);
        progress("dominators", 2, Some(4));
        let graph = graph.without_references();
        // Computed again below. Until then its memory is needed for other data.
        search.numbers = Vec::new();
        let above = semi_nca(std::mem::take(&mut search.parent), &offsets, &predecessors, &search.is_root);
        drop((offsets, predecessors));
        progress("dominators", 3, Some(4));
        let mut numbers = vec![NONE; graph.len()];
        for (at, object) in search.vertex.iter().enumerate().skip(1) {
            numbers[index(*object)] = number(at);
        }
        let own = |object: &u32| if *object == NONE { 0 } else { size(dump, &graph, *object) };
        let mut retained: Vec<u64> = search.vertex.iter().map(own).collect();
        for at in (1..retained.len()).rev() {
            let bytes = retained[at];
            let up = &mut retained[index(above[at])];
            *up = up.saturating_add(bytes);
        }
        Self { vertex: search.vertex, numbers, above, retained, children: OnceCell::new(), graph }
    }

    /// Reachable objects.
    #[must_use]
    pub fn reachable(&self) -> usize {
        self.vertex.len() - 1
    }

    /// Bytes of all reachable objects.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.retained[0]
    }

    /// Retained bytes of an object; `None` if it is not reachable.
    #[must_use]
    pub fn retained(&self, object: u32) -> Option<u64> {
        let number = *self.numbers.get(index(object)).filter(|number| **number != NONE)?;
        Some(self.retained[index(number)])
    }

    /// The own bytes of an object, as the sums count them.
    #[must_use]
    pub fn own(&self, dump: &Index, object: u32) -> u64 {
        size(dump, &self.graph, object)
    }

    /// The dominator of an object; `None` if it is not reachable, or only the roots dominate it.
    #[must_use]
    pub fn above(&self, object: u32) -> Option<u32> {
        let number = *self.numbers.get(index(object)).filter(|number| **number != NONE)?;
        let above = self.above[index(number)];
        (above != 0).then(|| self.vertex[index(above)])
    }

    /// The objects that `object` dominates directly, or (`None`) that nothing dominates: at most `most` of them,
    /// those that retain most first. Also returns how many there are.
    #[must_use]
    pub fn below(&self, object: Option<u32>, most: usize) -> (Vec<u32>, u64) {
        let wanted = match object {
            None => 0,
            Some(object) => match self.numbers.get(index(object)) {
                None | Some(&NONE) => return (Vec::new(), 0),
                Some(number) => *number,
            },
        };
        let mut found: Vec<u32> = Vec::new();
        let mut count = 0;
        let by = |number: &u32| (std::cmp::Reverse(self.retained[index(*number)]), *number);
        let (first, next) = self.children();
        let mut at = first[index(wanted)];
        while at != 0 {
            count += 1;
            found.push(at);
            // Keep slightly more than are wanted, so that sorting is rare.
            if found.len() >= most.saturating_mul(2).max(64) {
                found.sort_unstable_by_key(by);
                found.truncate(most);
            }
            at = next[index(at)];
        }
        found.sort_unstable_by_key(by);
        found.truncate(most);
        (found.into_iter().map(|number| self.vertex[index(number)]).collect(), count)
    }

    /// By number: the first object that it dominates, and the next one with the same dominator.
    fn children(&self) -> &(Vec<u32>, Vec<u32>) {
        self.children.get_or_init(|| {
            let mut first = vec![0_u32; self.vertex.len()];
            let mut next = first.clone();
            for at in (1..self.vertex.len()).rev() {
                next[at] = std::mem::replace(&mut first[index(self.above[at])], number(at));
            }
            (first, next)
        })
    }

    /// Reachable objects by class; classes that retain most come first.
    #[must_use]
    pub fn by_class(&self, dump: &Index) -> Vec<Together> {
        self.by(dump, Grouping::Class)
    }

    /// For each class, the object that dominates most of its objects. For each object, its nearest dominator counts
    /// whose class differs from the object's and passes `is_named`: a node of a map is not the owner of tiles.
    #[must_use]
    pub fn owners(&self, dump: &Index, is_named: impl Fn(&str) -> bool) -> BTreeMap<String, u32> {
        let groups = Groups::new(dump, &self.graph, Grouping::Class);
        let named: Vec<bool> = dump.classes.iter().map(|class| is_named(&class.name)).collect();
        let group = |at: u32| groups.of(&self.graph, self.vertex[index(at)]);
        let is_named = |at: u32| match self.graph.kind(self.vertex[index(at)]) {
            Kind::Of(class) | Kind::Class(class) => named[index(class)],
            Kind::Primitives(_) | Kind::Unknown => false,
        };
        // A dominator has a smaller number than the objects it dominates. 0 means no dominator.
        let mut nearest = vec![0_u32; self.vertex.len()];
        let mut votes = vec![(0_u32, 0_u64); groups.names.len()];
        for at in 1..self.vertex.len() {
            let (above, own) = (self.above[at], group(number(at)));
            let mut owner = if above != 0 && is_named(above) { above } else { nearest[index(above)] };
            // Nodes of a list dominate each other: their owner is the owner of the first node.
            if owner != 0 && group(owner) == own {
                owner = nearest[index(owner)];
            }
            nearest[at] = owner;
            let (most, lead) = &mut votes[own];
            match (*most == owner, *lead) {
                (true, _) => *lead += 1,
                (false, 0) => (*most, *lead) = (owner, 1),
                (false, _) => *lead -= 1,
            }
        }
        // A candidate with more than half of the votes is always in the lead, but the one in the lead may have fewer.
        // So count again.
        let mut counts = vec![(0_u64, 0_u64); groups.names.len()];
        for (at, owner) in nearest.iter().enumerate().skip(1) {
            let own = group(number(at));
            counts[own].0 += u64::from(*owner == votes[own].0);
            counts[own].1 += 1;
        }
        let elected = votes.iter().zip(&counts).map(|((owner, _), (with, all))| {
            (*owner != 0 && with * 2 > *all).then(|| self.vertex[index(*owner)])
        });
        groups.names.iter().zip(elected).filter_map(|(name, owner)| Some((name.clone(), owner?))).collect()
    }

    /// Reachable objects by a property of their classes; groups that retain most come first.
    #[must_use]
    pub fn by(&self, dump: &Index, grouping: Grouping) -> Vec<Together> {
        let groups = Groups::new(dump, &self.graph, grouping);
        let mut all: Vec<Together> = groups.empty();
        let (first, next) = self.children();
        // How many objects of each group are above the visited node.
        let mut open = vec![0_u32; all.len()];
        let mut at = first[0];
        while at != 0 {
            let group = groups.of(&self.graph, self.vertex[index(at)]);
            let (told, bytes) = (&mut all[group], self.retained[index(at)]);
            told.count += 1;
            told.bytes += size(dump, &self.graph, self.vertex[index(at)]);
            told.largest = told.largest.max(bytes);
            if open[group] == 0 {
                told.retained = told.retained.saturating_add(bytes);
            }
            if first[index(at)] != 0 {
                open[group] += 1;
                at = first[index(at)];
                continue;
            }
            while at != 0 && next[index(at)] == 0 {
                at = self.above[index(at)];
                if at != 0 {
                    open[groups.of(&self.graph, self.vertex[index(at)])] -= 1;
                }
            }
            at = next[index(at)];
        }
        all.retain(|together| together.count > 0);
        all.sort_by(|a, b| (b.retained, b.bytes, &a.name).cmp(&(a.retained, a.bytes, &b.name)));
        all
    }
}

/// How objects are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// The name of their class.
    Class,
    /// The package of their class, or of the class of their elements. A class is in its own package.
    Package,
    /// The loader of their class. A class, with its static fields, is in its own loader.
    Loader,
}

/// `com.acme` for `com.acme.Shop$Order[]`; names without a package have their own groups.
fn package(class: &str) -> &str {
    let element = class.split('[').next().unwrap_or(class);
    match element.rsplit_once('.') {
        Some((package, _)) => package,
        None if element != class => "(arrays of primitives)",
        None => "(no package)",
    }
}

/// Number of primitive type codes, unused ones included.
const PRIMITIVES: usize = 12;

/// Objects grouped by the name of their class: two loaders may have classes with the same name.
struct Groups {
    names: Vec<String>,
    /// By class, then by primitive type, then class objects and unknown objects.
    of: Vec<usize>,
    grouping: Grouping,
}

impl Groups {
    fn new(dump: &Index, graph: &Graph, grouping: Grouping) -> Self {
        let mut groups = Self { names: Vec::new(), of: Vec::new(), grouping };
        let mut places: HashMap<String, usize> = HashMap::new();
        let loader = |loader: u64| match dump.object(loader) {
            _ if loader == 0 => "(boot loader)".to_owned(),
            Some(object) => format!("{} 0x{loader:x}", graph.class_name(dump, object)),
            None => format!("? 0x{loader:x}"),
        };
        let classes = dump.classes.iter().map(|class| match grouping {
            Grouping::Class => class.name.clone(),
            Grouping::Package => package(&class.name).to_owned(),
            Grouping::Loader => loader(class.loader),
        });
        let primitives = (0..PRIMITIVES).map(|kind| array_name(kind.to_le_bytes()[0]));
        let others = primitives.chain(["java.lang.Class", "?"]).map(|name| match grouping {
            Grouping::Class => name.to_owned(),
            Grouping::Package => package(name).to_owned(),
            Grouping::Loader => loader(0),
        });
        for name in classes.chain(others) {
            let place = *places.entry(name).or_insert_with_key(|name| {
                groups.names.push(name.clone());
                groups.names.len() - 1
            });
            groups.of.push(place);
        }
        groups
    }

    fn of(&self, graph: &Graph, object: u32) -> usize {
        let classes = self.of.len() - PRIMITIVES - 2;
        self.of[match graph.kind(object) {
            Kind::Of(class) => index(class),
            Kind::Primitives(kind) => classes + usize::from(kind).min(PRIMITIVES - 1),
            Kind::Class(_) if self.grouping == Grouping::Class => classes + PRIMITIVES,
            Kind::Class(class) => index(class),
            Kind::Unknown => classes + PRIMITIVES + 1,
        }]
    }

    /// All groups, each without objects.
    fn empty(&self) -> Vec<Together> {
        let name =
            |name: &String| Together { name: name.clone(), count: 0, bytes: 0, retained: 0, largest: 0 };
        self.names.iter().map(name).collect()
    }
}

/// Bytes as ahat counts them.
fn size(dump: &Index, graph: &Graph, object: u32) -> u64 {
    match graph.kind(object) {
        Kind::Class(class) => {
            let class = &dump.classes[index(class)];
            let bytes = |kind| value_bytes(kind, dump.header.id_bytes).unwrap_or(0) as u64;
            let fields: u64 = class.statics.iter().map(|field| bytes(field.kind)).sum();
            fields + dump.class_bytes()
        }
        Kind::Of(class) if graph.is_array(class) => {
            graph.bytes(object) + u64::from(dump.classes[index(class)].instance_bytes)
        }
        _ => graph.bytes(object),
    }
}

/// References that keep an object alive.
struct Strong {
    /// By class: the slot of its weak reference.
    weak: Vec<u32>,
    /// By class: its class object, which instances keep; [`NONE`]: it stays anyway.
    classes: Vec<u32>,
}

impl Strong {
    fn new(dump: &Index, graph: &Graph) -> Self {
        let weak = (0..dump.classes.len()).map(|class| {
            let class = number(class);
            let mut slots = graph.layout(class).slots.iter();
            let referent = slots.position(|slot| {
                dump.string(slot.name) == Some("referent")
                    && dump.classes[index(slot.class)].name == "java.lang.ref.Reference"
            });
            referent.map_or(NONE, number)
        });
        // An object that a root of any kind keeps has no dominator, whatever else holds it.
        Self { weak: weak.collect(), classes: dump.kept_by_instances(|_| true) }
    }

    #[inline]
    fn each(&self, graph: &Graph, object: u32, mut told: impl FnMut(u32)) {
        // As in ahat, signers and protection domain of a class, its last two references, do not count.
        let (weak, class, left_out) = match graph.kind(object) {
            Kind::Of(class) => (self.weak[index(class)], self.classes[index(class)], 0),
            Kind::Class(_) => (NONE, NONE, 2),
            _ => return,
        };
        let held = graph.references(object);
        for (slot, held) in held[..held.len().saturating_sub(left_out)].iter().enumerate() {
            if *held != NONE && number(slot) != weak {
                told(*held);
            }
        }
        if class != NONE {
            told(class);
        }
    }
}

/// The depth-first search.
struct Search {
    numbers: Vec<u32>,
    vertex: Vec<u32>,
    parent: Vec<u32>,
    /// One bit per number.
    is_root: Vec<u64>,
}

impl Search {
    fn new(dump: &Index, graph: &Graph, strong: &Strong) -> Self {
        let mut roots: Vec<u32> = dump.roots.iter().map(|root| dump.ids.rank(root.id)).collect();
        roots.retain(|root| *root != NONE);
        roots.sort_unstable();
        roots.dedup();
        let mut numbers = vec![NONE; graph.len()];
        let (mut vertex, mut parent) = (vec![NONE], vec![NONE]);
        let mut waiting: Vec<u32> = Vec::new();
        // Numbers on the current path, and where their children begin in the waiting list.
        let mut way: Vec<(u32, usize)> = Vec::new();
        for root in &roots {
            if numbers[index(*root)] != NONE {
                continue;
            }
            waiting.push(*root);
            let mut from = 0;
            loop {
                // Leave nodes that have no more waiting children.
                while waiting.len() == way.last().map_or(0, |(_, begin)| *begin) {
                    if way.pop().is_none() {
                        break;
                    }
                    from = way.last().map_or(0, |(number, _)| *number);
                }
                let Some(object) = waiting.pop() else { break };
                if numbers[index(object)] != NONE {
                    continue;
                }
                let new = number(vertex.len());
                numbers[index(object)] = new;
                vertex.push(object);
                parent.push(from);
                way.push((new, waiting.len()));
                from = new;
                strong.each(graph, object, |held| {
                    if numbers[index(held)] == NONE {
                        waiting.push(held);
                    }
                });
            }
        }
        let mut is_root = vec![0; vertex.len() / 64 + 1];
        for root in &roots {
            let at = numbers[index(*root)];
            is_root[index(at >> 6)] |= 1_u64 << (at & 63);
        }
        Self { numbers, vertex, parent, is_root }
    }

    /// By number: where the holders of an object begin, and the numbers of the holders.
    fn predecessors(&self, graph: &Graph, strong: &Strong) -> (Vec<u32>, Vec<u32>) {
        let count = self.vertex.len();
        let mut offsets = vec![0_u32; count + 1];
        for object in &self.vertex[1..] {
            strong.each(graph, *object, |held| offsets[index(self.numbers[index(held)])] += 1);
        }
        // The end of each group; filling from there leaves its beginning.
        let mut sum = 0;
        for offset in &mut offsets {
            sum += *offset;
            *offset = sum;
        }
        let mut all = vec![0_u32; index(sum)];
        for at in 1..count {
            strong.each(graph, self.vertex[at], |held| {
                let offset = &mut offsets[index(self.numbers[index(held)])];
                *offset -= 1;
                all[index(*offset)] = number(at);
            });
        }
        (offsets, all)
    }
}

/// The dominator of each number. `parent` is consumed by compressing paths.
fn semi_nca(mut parent: Vec<u32>, offsets: &[u32], predecessors: &[u32], is_root: &[u64]) -> Vec<u32> {
    let count = parent.len();
    let mut dominator = parent.clone();
    let mut semi: Vec<u32> = (0..count).map(number).collect();
    let mut label = semi.clone();
    let mut path: Vec<u32> = Vec::new();
    for at in (1..number(count)).rev() {
        let root = is_root[index(at >> 6)] >> (at & 63) & 1 == 1;
        let mut best = if root { 0 } else { dominator[index(at)] };
        let linked = |parent: &[u32], node: u32| {
            let up = parent[index(node)];
            up != NONE && up > at
        };
        for from in &predecessors[index(offsets[index(at)])..index(offsets[index(at) + 1])] {
            let from = *from;
            let least = if linked(&parent, from) {
                let mut node = from;
                while linked(&parent, node) {
                    path.push(node);
                    node = parent[index(node)];
                }
                let mut least = label[index(node)];
                while let Some(below) = path.pop() {
                    parent[index(below)] = parent[index(node)];
                    let own = label[index(below)];
                    if semi[index(least)] < semi[index(own)] {
                        label[index(below)] = least;
                    } else {
                        least = own;
                    }
                    node = below;
                }
                label[index(from)]
            } else if from > at {
                label[index(from)]
            } else {
                from
            };
            best = best.min(semi[index(least)]);
        }
        semi[index(at)] = best;
    }
    drop((label, parent));
    for at in 1..count {
        let mut above = dominator[at];
        while above > semi[at] {
            above = dominator[index(above)];
        }
        dominator[at] = above;
    }
    dominator
}
