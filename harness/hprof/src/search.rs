//! Finds the shortest path from a root to each wanted object, and what the object retains.
//!
//! Data flow: roots in LeakCanary's order → breadth-first over [`Follow`]'s references, in two queues (usual
//! references, and those followed only when no usual ones are left), and finally over references that keep classes; a
//! wanted object ends its branch → second search, below the wanted objects, over objects that the first did not see.
//! Each object's bytes go to the first wanted object that reaches it, so that they add up.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::bits::Bits;
use crate::follow::{Follow, Held, Via, is_wrapper};
use crate::graph::{Graph, Kind};
use crate::ids::{NONE, index, number};
use crate::index::Index;
use crate::looked::{Found, Looked, MOST_LABELS};
use crate::read::Progress;
use crate::rules::{Device, Pattern, Rules};

pub(crate) struct Searched {
    /// The reached objects whose paths are computed.
    pub(crate) found: Vec<Found>,
    /// How many more objects were reached that belong to no crowd of these.
    pub(crate) more: u64,
    /// Bytes and objects that all of them retain.
    pub(crate) attributed: (u64, u64),
    /// Wanted objects that no root reaches.
    pub(crate) unreachable: Vec<u32>,
    parents: Vec<u32>,
    /// Tag of the root that an object is, and the known leak, if any.
    roots: HashMap<u32, (u8, Option<usize>)>,
    /// Number of objects that were reached.
    pub(crate) met: u64,
}

/// A step of a path: an object, and the reference by which it holds the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) object: u32,
    pub(crate) held: Held,
}

impl Step {
    /// The array whose element the next object is.
    pub(crate) const fn array(self) -> u32 {
        match self.held.via {
            Via::ElementOf(array) => array,
            _ => self.object,
        }
    }
}

/// A path: the root's tag and known leak, then the steps; the object itself comes after them.
pub(crate) struct Path {
    pub(crate) root: u8,
    pub(crate) library: Option<usize>,
    pub(crate) steps: Vec<Step>,
}

impl Searched {
    /// Paths to the found objects: for the first ones, until `most_steps` are used up.
    pub(crate) fn paths(&self, follow: &Follow<'_>, most: usize, most_steps: usize) -> Vec<Path> {
        // For each path, its objects from the end to the root.
        let mut ways: Vec<Vec<u32>> = Vec::new();
        let mut left = most_steps;
        // The reference that holds each object on a path: an object has one parent, so one entry.
        let mut by: HashMap<u32, Option<Held>> = HashMap::new();
        let mut parents: Vec<u32> = Vec::new();
        for found in self.found.iter().take(most) {
            let mut way = vec![found.object];
            let mut at = found.object;
            // A root may also have a parent, if it was reached again: the root counts.
            while !self.roots.contains_key(&at) && self.parents[index(at)] != NONE {
                by.entry(at).or_insert(None);
                at = self.parents[index(at)];
                parents.push(at);
                way.push(at);
            }
            let used = way.len();
            ways.push(way);
            left = left.saturating_sub(used);
            if left == 0 {
                break;
            }
        }
        parents.sort_unstable();
        parents.dedup();
        // Each parent is read once, however many objects it holds.
        for parent in parents {
            follow.each(parent, |held| {
                if self.parents[index(held.object)] == parent
                    && let Some(known) = by.get_mut(&held.object)
                    && known.is_none_or(|known| known.via == Via::Inner && held.via != Via::Inner)
                {
                    *known = Some(held);
                }
            });
        }
        let path = |way: Vec<u32>| {
            let pairs = way.windows(2).rev();
            let steps = pairs.map(|pair| {
                let lost = Held { object: pair[0], via: Via::Inner, low: false, library: None };
                Step { object: pair[1], held: by.get(&pair[0]).copied().flatten().unwrap_or(lost) }
            });
            let root = way.last().and_then(|root| self.roots.get(root));
            let (root, library) = root.copied().unwrap_or((0xff, None));
            Path { root, library, steps: steps.collect() }
        };
        ways.into_iter().map(path).collect()
    }
}

/// Roots that a search begins with, in order: object, tag, whether it comes late, known leak.
pub(crate) struct Begin {
    pub(crate) object: u32,
    pub(crate) tag: u8,
    low: bool,
    library: Option<usize>,
}

/// Local variables by the thread object they belong to.
pub(crate) type Locals = HashMap<u32, (Vec<u32>, Option<usize>)>;

/// Local variables of threads that have an object, and the rule about the thread, if any; variables of an ignored
/// thread are left out.
pub(crate) fn locals(
    dump: &Index,
    rules: &Rules,
    device: &Device,
    mut thread_name: impl FnMut(u32) -> Option<String>,
) -> Locals {
    let mut threads: HashMap<u32, u32> = HashMap::new();
    for root in dump.roots.iter().filter(|root| root.tag == 0x08) {
        if let Some(object) = dump.object(root.id) {
            threads.entry(root.thread).or_insert(object);
        }
    }
    let known = by_name(rules, device, |pattern| match pattern {
        Pattern::Thread(name) => Some(name),
        _ => None,
    });
    let mut locals: Locals = HashMap::new();
    let mut judged: HashMap<u32, Option<usize>> = HashMap::new();
    for root in dump.roots.iter().filter(|root| root.tag == 0x03) {
        let (Some(thread), Some(object)) = (threads.get(&root.thread), dump.object(root.id)) else {
            continue;
        };
        let rule = *judged.entry(*thread).or_insert_with(|| {
            if known.is_empty() { None } else { known.get(thread_name(*thread)?.as_str()).copied() }
        });
        match rule {
            Some(at) if !rules.references[at].library => {}
            rule => locals.entry(*thread).or_insert_with(|| (Vec::new(), rule)).0.push(object),
        }
    }
    locals
}

/// Indexes of the rules for this device, by the name that `name` returns.
fn by_name<'r>(
    rules: &'r Rules,
    device: &Device,
    name: impl Fn(&'r Pattern) -> Option<&'r String>,
) -> HashMap<&'r str, usize> {
    let applying = rules.references.iter().enumerate().filter(|(_, rule)| rule.applies(device));
    applying.filter_map(|(at, rule)| Some((name(&rule.pattern)?.as_str(), at))).collect()
}

pub(crate) fn begin(dump: &Index, graph: &Graph, rules: &Rules, device: &Device) -> Vec<Begin> {
    let known = by_name(rules, device, |pattern| match pattern {
        Pattern::NativeGlobal(class) => Some(class),
        _ => None,
    });
    let threads: std::collections::HashSet<u32> = dump
        .roots
        .iter()
        .filter(|root| root.tag == 0x08 && dump.object(root.id).is_some())
        .map(|root| root.thread)
        .collect();
    let mut all: Vec<(u8, &str, Begin)> = Vec::new();
    for root in &dump.roots {
        let (Some(place), Some(object)) = (root.place(), dump.object(root.id)) else { continue };
        // This local is reached as a reference of its thread.
        if root.tag == 0x03 && threads.contains(&root.thread) {
            continue;
        }
        let class = graph.class_name(dump, object);
        let library = if root.tag == 0x01 { known.get(class).copied() } else { None };
        if library.is_some_and(|rule| !rules.references[rule].library) {
            continue;
        }
        let low = root.tag == 0x03 || library.is_some();
        all.push((place, class, Begin { object, tag: root.tag, low, library }));
    }
    all.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    all.into_iter().map(|(_, _, begin)| begin).collect()
}

/// Queues of the first search.
struct Queues {
    seen: Bits,
    /// Is the object in the queue of objects that come last?
    late: Bits,
    parents: Vec<u32>,
    usual: VecDeque<u32>,
    last: VecDeque<u32>,
    /// Classes and loaders, each once with its holder: followed when all other references are done.
    classes: VecDeque<(u32, u32)>,
    waiting: Bits,
    /// No usual reference is left: from now on everything goes into the last queue.
    only_last: bool,
}

impl Queues {
    fn of(objects: usize) -> Self {
        Self {
            seen: Bits::new(objects),
            late: Bits::new(objects),
            parents: vec![NONE; objects],
            usual: VecDeque::new(),
            last: VecDeque::new(),
            classes: VecDeque::new(),
            waiting: Bits::new(objects),
            only_last: false,
        }
    }

    /// Returns whether the object counts: it is new, or was only in the last queue.
    #[inline]
    fn put(&mut self, object: u32, parent: u32, low: bool, leaf: bool) -> bool {
        if !self.seen.set(object) {
            if low || self.only_last || !self.late.has(object) {
                return false;
            }
            self.late.clear(object);
            self.parents[index(object)] = parent;
            self.usual.push_back(object);
            return true;
        }
        self.parents[index(object)] = parent;
        if leaf {
            return true;
        }
        if low || self.only_last {
            self.late.set(object);
            self.last.push_back(object);
        } else {
            self.usual.push_back(object);
        }
        true
    }

    /// Queues a class or loader, which is followed after all fields.
    #[inline]
    fn put_class(&mut self, object: u32, parent: u32) {
        if !self.seen.has(object) && self.waiting.set(object) {
            self.classes.push_back((object, parent));
        }
    }

    fn take(&mut self) -> Option<u32> {
        if let Some(object) = self.usual.pop_front() {
            return Some(object);
        }
        self.only_last = true;
        loop {
            while let Some(object) = self.last.pop_front() {
                if self.late.has(object) {
                    self.late.clear(object);
                    return Some(object);
                }
            }
            let (object, parent) = self.classes.pop_front()?;
            self.put(object, parent, true, false);
        }
    }
}

/// References that a search does not follow: the holder, and the object that it holds.
pub(crate) type Cut = HashSet<(u32, u32)>;

/// Paths to an object, the shortest first. For each further path, one reference of the previous path is removed: the
/// nearest to the object without which another path exists. Removed references stay removed. `first` was found with all
/// references; `search` searches for the object without some of them.
pub(crate) fn ways(
    follow: &Follow<'_>,
    most: usize,
    most_steps: usize,
    first: &Searched,
    search: impl Fn(&Cut) -> Searched,
) -> Vec<(Found, Path)> {
    let (mut cut, mut ways, mut searches) = (Cut::new(), Vec::new(), most.saturating_mul(SEARCHES_A_WAY));
    let mut other = None;
    loop {
        let searched = other.as_ref().unwrap_or(first);
        let Some(found) = searched.found.first().cloned() else { break };
        let Some(path) = searched.paths(follow, 1, most_steps).pop() else { break };
        let objects: Vec<u32> = path.steps.iter().map(|step| step.object).chain([found.object]).collect();
        ways.push((found, path));
        if ways.len() >= most {
            break;
        }
        other = objects.windows(2).rev().find_map(|pair| {
            searches = searches.checked_sub(1)?;
            cut.insert((pair[0], pair[1]));
            let found = Some(search(&cut)).filter(|other| !other.found.is_empty());
            if found.is_none() {
                cut.remove(&(pair[0], pair[1]));
            }
            found
        });
        if other.is_none() {
            break;
        }
    }
    ways
}

/// Maximum number of searches per wanted path. Without another path the search stops after them.
const SEARCHES_A_WAY: usize = 4;

/// Searches for some objects.
pub(crate) struct Search<'a> {
    pub(crate) follow: &'a Follow<'a>,
    pub(crate) rules: &'a Rules,
    pub(crate) device: &'a Device,
    pub(crate) wanted: &'a [u32],
    /// Native bytes by the object that owns them.
    pub(crate) native: &'a HashMap<u32, u64>,
}

impl Search<'_> {
    /// Searches without the references in `cut`.
    pub(crate) fn without(&self, cut: &Cut, progress: Progress<'_>) -> Searched {
        let Self { follow, wanted, .. } = *self;
        let objects = follow.graph.len();
        let mut asked = Bits::new(objects);
        for object in wanted {
            asked.set(*object);
        }
        let mut queues = Queues::of(objects);
        let mut roots = HashMap::new();
        for begin in begin(follow.dump, follow.graph, self.rules, self.device) {
            if queues.put(begin.object, NONE, begin.low, false) {
                roots.insert(begin.object, (begin.tag, begin.library));
            }
        }
        let (mut leaking, mut done) = (Vec::new(), 0_u64);
        while let Some(object) = queues.take() {
            done += 1;
            if done.is_multiple_of(1 << 18) {
                progress("paths", done, Some(objects as u64));
            }
            if asked.has(object) {
                leaking.push(object);
                continue;
            }
            follow.each(object, |held| {
                if !cut.is_empty() && cut.contains(&(object, held.object)) {
                    return;
                }
                if held.via.keeps_class() {
                    return queues.put_class(held.object, object);
                }
                let leaf = held.via == Via::Inner || follow.is_leaf(held.object) && !asked.has(held.object);
                queues.put(held.object, object, held.low, leaf);
            });
        }
        let Queues { mut seen, parents, .. } = queues;
        let met = seen.count();
        // A root may also have a parent: the root counts.
        let holder = |object: u32| {
            Some(parents[index(object)]).filter(|holder| *holder != NONE && !roots.contains_key(&object))
        };
        let mut looked = Looked::at(follow, &leaking, holder);
        let mut found = std::mem::take(&mut looked.found);
        let beside = |object: u32| looked.first_beside(object, holder(object));
        let attributed = self.attribute(&asked, &mut seen, &leaking, &mut found, beside);
        let more = looked.more;
        let mut unreachable: Vec<u32> = wanted.iter().copied().filter(|object| !seen.has(*object)).collect();
        unreachable.sort_unstable();
        unreachable.dedup();
        Searched { found, more, attributed, unreachable, parents, roots, met }
    }

    /// The second search. Returns bytes and objects of all leaks.
    fn attribute(
        &self,
        asked: &Bits,
        seen: &mut Bits,
        leaking: &[u32],
        found: &mut [Found],
        beside: impl Fn(u32) -> Option<usize>,
    ) -> (u64, u64) {
        let Self { follow, native, .. } = *self;
        let sizes =
            if follow.opened { Sizes::of_each(follow.dump) } else { Sizes::new(follow.dump, follow.graph) };
        let bytes =
            |object| sizes.of(follow.graph, object).saturating_add(native.get(&object).copied().unwrap_or(0));
        let place: HashMap<u32, usize> =
            found.iter().enumerate().map(|(at, found)| (found.object, at)).collect();
        let mut queue = VecDeque::new();
        let mut all = (0_u64, 0);
        for leak in leaking.iter().copied() {
            let mut told = Found { object: leak, bytes: bytes(leak), objects: 1, ..Found::default() };
            queue.push_back(leak);
            let mut met: Vec<usize> = Vec::new();
            while let Some(object) = queue.pop_front() {
                follow.each(object, |held| {
                    if !seen.set(held.object) {
                        if asked.has(held.object)
                            && held.object != leak
                            && let Some(other) = place.get(&held.object)
                            && !met.contains(other)
                            && met.len() < MOST_LABELS
                        {
                            met.push(*other);
                        }
                        return;
                    }
                    told.bytes = told.bytes.saturating_add(bytes(held.object));
                    told.objects += 1;
                    if asked.has(held.object) {
                        told.also_retains.push(held.object);
                    }
                    if held.via != Via::Inner && !follow.is_leaf(held.object) {
                        queue.push_back(held.object);
                    }
                });
            }
            for other in met {
                found[other].retained_by.push(leak);
            }
            all = (all.0.saturating_add(told.bytes), all.1 + told.objects);
            if let Some(at) = place.get(&leak) {
                let found = &mut found[*at];
                (found.bytes, found.objects, found.also_retains) =
                    (told.bytes, told.objects, told.also_retains);
            } else if let Some(at) = beside(leak) {
                let beside = &mut found[at].beside;
                beside.instances += 1;
                *beside.classes.entry(follow.graph.class_name(follow.dump, leak).to_owned()).or_default() +=
                    1;
                beside.bytes = beside.bytes.saturating_add(told.bytes);
                beside.objects += told.objects;
            }
        }
        all
    }
}

/// Bytes as LeakCanary counts them.
pub(crate) struct Sizes {
    /// By class: the slot of a text's characters.
    text: HashMap<u32, usize>,
    wrappers: Vec<bool>,
}

impl Sizes {
    pub(crate) fn new(dump: &Index, graph: &Graph) -> Self {
        let mut sizes = Self { text: HashMap::new(), wrappers: vec![false; dump.classes.len()] };
        for (at, class) in dump.classes.iter().enumerate() {
            if class.name == "java.lang.String"
                && let Some(slot) = graph.slot(dump, number(at), "value")
            {
                sizes.text.insert(number(at), slot);
            }
            sizes.wrappers[at] = class.name.strip_suffix("[]").is_some_and(is_wrapper);
        }
        sizes
    }

    /// Counts every object on its own.
    fn of_each(dump: &Index) -> Self {
        Self { text: HashMap::new(), wrappers: vec![false; dump.classes.len()] }
    }

    /// The size of an object: a text includes its characters, and an array of wrappers includes the wrappers.
    pub(crate) fn of(&self, graph: &Graph, object: u32) -> u64 {
        let own = graph.bytes(object);
        let Kind::Of(class) = graph.kind(object) else { return own };
        if self.wrappers[index(class)] {
            let held = graph.references(object);
            let each = held.first().map_or(0, |first| graph.bytes(*first));
            return own.saturating_add(each.saturating_mul(held.len() as u64));
        }
        match self.text.get(&class).and_then(|slot| graph.references(object).get(*slot)) {
            Some(characters) if *characters != NONE => own.saturating_add(graph.bytes(*characters)),
            _ => own,
        }
    }
}
