//! The part of the heap between the roots and some instances.
//!
//! Data flow: [`ReferencePaths::take`] makes nodes of the instances → [`ReferencePaths::walk`] passes over all
//! references once per level: a reference to an object of the last level makes its referrer a node of the next one,
//! until every instance has a path to a root. If some instances are not reached soon (they lie deep, or nothing holds
//! them), one more pass makes nodes of all objects, unless the heap is too large for that → [`ReferencePaths::path`]
//! returns the shortest path. Visitors run while the virtual machine is stopped: they write into memory that was
//! reserved before, and look at the clocks now and then, so that time and memory are bounded. Objects that cannot
//! hold the instances (arrays of numbers, strings) are skipped.

use jni::Env;
use jni::objects::{JClass, JObject};
use jni::{jni_sig, jni_str};
use memgate_jvmti::{HeapFilter, Jvmti, Method, Reference, ReferenceKind, StackFrame, Visit};

use super::graph::{Edge, From, Graph, Lost, Shortest};
use super::limit::Limit;
use super::machine::Live;
use super::names::{Known, fields_of, known};

/// Number of levels before all objects are taken at once. Taking all costs memory, and as much time as two to six
/// levels.
const LEVELS_BEFORE_ALL: u8 = 4;
/// Maximum number of objects that are taken at once: each costs memory here ([`Graph`]) and 60 to 72 bytes in the
/// virtual machine's table of tags (JDK 17).
const MAX_AT_ONCE: u64 = 2_000_000;
/// Maximum number of objects on the paths, level by level.
const MAX_NODES: usize = 200_000;
/// Number of references per object for which there is room.
const EDGES: usize = 4;
const MAX_LEVELS: u8 = 40;
/// Number of levels after all instances have a path, if some paths lead only through a frame or a class loader.
const LEVELS_BEHIND_WEAK_ROOTS: u8 = 8;
/// Limit for the processor time of all passes together.
const MAX_CPU_NS: u64 = 10_000_000_000;

/// An entry in a thread's table of thread-local variables.
const THREAD_LOCAL: &str = "java.lang.ThreadLocal$ThreadLocalMap$Entry";
/// Maximum number of such entries whose `ThreadLocal` is named.
const MAX_LOCALS: usize = 1 << 12;

/// A class that this many class loaders have loaded is one whose loaders leak. A test with a leak usually runs as often
/// before its holders are searched; if it does not, a path begins at the static field. Fewer may be the sandboxes of a
/// test framework.
const LEAKED_LOADERS: u8 = 8;

/// Tag of the first thread; lower tags are the numbers of classes.
const THREADS: i64 = 1 << 39;
/// Tag of the first object on a path.
const FIRST: i64 = 1 << 40;

/// The part of the heap that lies between roots and instances, as far as it was walked.
pub(super) struct ReferencePaths {
    graph: Graph,
    /// The nodes of the wanted instances.
    pub(super) instances: Vec<usize>,
    /// Nodes of classes by class number, each plus one (0: none). A class also represents its loader, and its objects
    /// hold it.
    class_nodes: Vec<usize>,
    /// Nodes of threads by thread number, each plus one (0: none).
    thread_nodes: Vec<usize>,
    /// By class number: whether its instances are skipped.
    passed_by: Vec<bool>,
    /// By class number: whether its class loader leaks, as far as that can be seen.
    leaks_loader: Vec<bool>,
    /// Number of objects that are not skipped.
    objects: u64,
    /// The native method that makes the measurement. The objects that it refers to count as not held by it.
    own: Option<Method>,
    class_values: Option<ClassValues>,
    /// The class of the entries of thread-local variables, and its field that refers weakly to the `ThreadLocal`.
    thread_local: Option<(i64, u32)>,
    /// Nodes of such entries, each with that of its `ThreadLocal`.
    locals: Vec<(usize, usize)>,
    /// The time limit of the walk.
    limit: Limit,
}

/// The place where classes keep the values of `java.lang.ClassValue`: numbers of two classes, and of the field.
struct ClassValues {
    class: i64,
    field: u32,
    map: i64,
}

impl ClassValues {
    /// The virtual machine does not report the references of a class object's fields. Our local references make it walk
    /// these maps. They live until the caller's frame ends.
    fn of(env: &mut Env<'_>, jvmti: Jvmti<'_>, classes: &[(Known, JClass<'_>)]) -> Option<Self> {
        let place = |name: &str| classes.iter().position(|(known, _)| known.name == name);
        let number = |place: usize| i64::try_from(place.wrapping_add(1)).ok();
        let (class, map) = (place("java.lang.Class")?, place("java.lang.ClassValue$ClassValueMap")?);
        let fields = fields_of(env, jvmti, &classes.get(class)?.1).ok()?;
        let field = fields.iter().position(|(_, name)| name == "classValueMap")?;
        for (_, class) in classes {
            let signature = jni_sig!("Ljava/lang/ClassValue$ClassValueMap;");
            if env.get_field(class, jni_str!("classValueMap"), signature).is_err() {
                env.exception_clear();
                return None;
            }
        }
        Some(Self { class: number(class)?, field: u32::try_from(field).ok()?, map: number(map)? })
    }
}

/// How the search ended.
pub(super) struct Walked {
    pub(super) last: Shortest,
    /// Why it was cut, if it was.
    pub(super) cut: Option<&'static str>,
}

impl Walked {
    fn without_memory() -> Self {
        Self { last: Shortest::default(), cut: Some("there is no memory for it") }
    }
}

impl ReferencePaths {
    /// Prepares a search for instances of the classes with these names, in a heap with these `live` objects.
    pub(super) fn new(
        env: &mut Env<'_>,
        jvmti: Jvmti<'_>,
        classes: &[(Known, JClass<'_>)],
        wanted: &[String],
        live: &[Live],
    ) -> Self {
        let mut innermost = [StackFrame::NONE];
        let own = jvmti.own_stack(&mut innermost).ok().and_then(<[_]>::first).map(|frame| frame.method);
        let characters = wanted.iter().any(|name| matches!(name.as_str(), "byte[]" | "char[]"));
        let passed_by = |name: &str| is_array_of_numbers(name) || name == "java.lang.String" && !characters;
        let mut graph = Graph::default();
        let loaded = Loaded::of(classes.iter().map(|(known, _)| known.name.as_str()));
        let is_leaked = |name: &str| loaded.times(name) >= LEAKED_LOADERS;
        // Without memory, the graph is full from the beginning, and the answer says this.
        let _is_full = graph.make_room(MAX_NODES, EDGES * MAX_NODES);
        let mut locals = Vec::new();
        // Without memory, no `ThreadLocal` is named.
        let _no_room = locals.try_reserve_exact(MAX_LOCALS);
        Self {
            graph,
            objects: live.iter().filter(|of| !passed_by(&of.class)).map(|of| of.instances).sum(),
            instances: Vec::new(),
            class_nodes: vec![0; classes.len().wrapping_add(1)],
            thread_nodes: Vec::new(),
            passed_by: std::iter::once(false)
                .chain(classes.iter().map(|(known, _)| passed_by(&known.name)))
                .collect(),
            leaks_loader: std::iter::once(false)
                .chain(classes.iter().map(|(known, _)| is_leaked(&known.name)))
                .collect(),
            own,
            class_values: ClassValues::of(env, jvmti, classes),
            thread_local: (1..)
                .zip(classes)
                .find(|(_, (known, _))| known.name == THREAD_LOCAL)
                .and_then(|(number, (known, _))| Some((number, known.referent?))),
            locals,
            limit: Limit::of(MAX_CPU_NS),
        }
    }

    /// Makes nodes of the wanted instances.
    pub(super) fn take(&mut self, env: &mut Env<'_>, jvmti: Jvmti<'_>, instances: &[JObject<'_>]) {
        for instance in instances {
            let Ok(class) = env.get_object_class(instance) else { continue };
            let number = jvmti.tag(&class).unwrap_or(0);
            env.delete_local_ref(class);
            if let Some(node) = self.graph.add_node(number, 0)
                && jvmti.set_tag(instance, tag_of(node)).is_ok()
            {
                self.instances.push(node);
            }
        }
    }

    /// Numbers the threads, so that a reference from a stack names its thread.
    pub(super) fn mark_threads(&mut self, jvmti: Jvmti<'_>, threads: &[JObject<'_>]) {
        self.thread_nodes = vec![0; threads.len()];
        for (number, (thread, place)) in threads.iter().zip(&mut self.thread_nodes).enumerate() {
            match node_of(jvmti.tag(thread).unwrap_or(0)) {
                Some(node) => *place = node.wrapping_add(1),
                None => {
                    let _nameless = jvmti.set_tag(thread, THREADS.wrapping_add(number.cast_signed() as i64));
                }
            }
        }
    }

    /// The thread with this tag.
    pub(super) fn thread(&self, tag: i64) -> Option<usize> {
        thread_of(tag).or_else(|| self.thread_at(node_of(tag)?))
    }

    /// The number of the thread whose object is at this node.
    pub(super) fn thread_at(&self, node: usize) -> Option<usize> {
        self.thread_nodes.iter().position(|place| *place == node.wrapping_add(1))
    }

    /// The node of the virtual thread with this tag. (The virtual machine lists only the other threads.)
    fn virtual_thread(&self, tag: i64) -> Option<usize> {
        node_of(tag).filter(|node| self.thread_at(*node).is_none())
    }

    pub(super) fn class(&self, node: usize) -> i64 {
        self.graph.class(node)
    }

    /// Walks from the instances to the roots.
    pub(super) fn walk(&mut self, jvmti: Jvmti<'_>, classes: &[(Known, JClass<'_>)]) -> Walked {
        let full = self.why_cut(true);
        if full.is_some() {
            return Walked { last: Shortest::default(), cut: full };
        }
        let mut reached_at: Option<u8> = None;
        let mut level = 0;
        loop {
            let before = self.graph.len();
            let cut = self.pass(jvmti, classes, Some(level));
            let Some((last, good)) = self.graph.shortest(&self.instances) else {
                return Walked::without_memory();
            };
            let all = self.instances.iter().all(|instance| last.leads_to(*instance));
            reached_at = if all { reached_at.or(Some(level)) } else { None };
            let enough =
                reached_at.is_some_and(|reached| level >= reached.wrapping_add(LEVELS_BEHIND_WEAK_ROOTS));
            // Only a complete pass shows that there are no more references.
            let exhausted = cut.is_none() && self.graph.len() == before;
            if good || enough || exhausted {
                return Walked { last, cut: None };
            }
            level = level.wrapping_add(1);
            // The paths found so far are kept, even if they lead only to a frame or a class loader.
            let cut = cut.or((level == MAX_LEVELS).then_some("the way is too long"));
            if cut.is_some() {
                return Walked { last, cut };
            }
            if level == LEVELS_BEFORE_ALL && self.has_room_for_all() {
                let cut = self.pass(jvmti, classes, None);
                let Some((last, _)) = self.graph.shortest(&self.instances) else {
                    return Walked::without_memory();
                };
                return Walked { last, cut };
            }
        }
    }

    /// Makes room for all objects, for those that came since they were counted, and for classes. Returns false if there
    /// are too many.
    fn has_room_for_all(&mut self) -> bool {
        let Ok(room) = usize::try_from(self.objects) else { return false };
        let room = self.graph.len().saturating_add(room).saturating_add(MAX_NODES);
        self.objects <= MAX_AT_ONCE && self.graph.make_room(room, room.saturating_mul(EDGES))
    }

    fn why_cut(&self, done: bool) -> Option<&'static str> {
        if !done {
            return Some("the virtual machine does not walk its references");
        }
        if self.limit.is_over() {
            return Some("it took too long");
        }
        self.graph.is_full().then_some("too many objects lie on the way")
    }

    /// Visits all references, or only those that lead to a `level`. Returns why the pass was cut, if it was.
    fn pass(
        &mut self,
        jvmti: Jvmti<'_>,
        classes: &[(Known, JClass<'_>)],
        level: Option<u8>,
    ) -> Option<&'static str> {
        let mut visit = |reference: Reference<'_>| {
            let deeper = self.see(classes, level, reference);
            if self.limit.is_late() { Visit::Abort } else { deeper }
        };
        let done = jvmti.follow(HeapFilter::None, None, &mut visit).is_ok();
        self.why_cut(done)
    }

    /// Handles one reference, and decides whether to look beyond the object.
    fn see(
        &mut self,
        classes: &[(Known, JClass<'_>)],
        level: Option<u8>,
        mut reference: Reference<'_>,
    ) -> Visit {
        // Objects that only our own reference keeps are garbage, and so are the objects to which they refer.
        let is_own = matches!(reference.kind, ReferenceKind::JniLocal(_, method) if self.own == Some(method))
            && self.values_of_class(reference.class_tag).is_none();
        let is_kept = is_own && node_of(*reference.tag).is_some();
        let beside = is_kept || self.is_passed_by(reference.class_tag);
        let behind = if beside { Visit::Beside } else { Visit::Deeper };
        if let Some(edge) = self.edge(classes, level, &mut reference) {
            self.graph.add(edge);
        }
        behind
    }

    fn edge(
        &mut self,
        classes: &[(Known, JClass<'_>)],
        level: Option<u8>,
        reference: &mut Reference<'_>,
    ) -> Option<Edge> {
        use ReferenceKind as Kind;
        if matches!(reference.kind, Kind::ConstantPool | Kind::ClassPart) {
            return None;
        }
        if let (Kind::Field(field), Some((class, referent))) = (reference.kind, self.thread_local)
            && (reference.referrer_class_tag, field) == (class, referent)
        {
            self.takes_local(level, reference);
            return None;
        }
        let (to, next) = match level {
            None => (self.node(reference.tag, reference.class_tag, 0)?, 0),
            Some(level) => {
                let to = self.place(*reference.tag)?;
                (Some(to).filter(|to| self.graph.is_of_level(*to, level))?, level.wrapping_add(1))
            }
        };
        if let Kind::JniLocal(_, method) = reference.kind
            && self.own == Some(method)
        {
            let ClassValues { class, field, .. } = self.values_of_class(reference.class_tag)?;
            let (from, kind) = (From::Class(*class), Kind::StaticField(*field));
            return Some(Edge { to, from, kind, class: *class });
        }
        let (kind, class) = (reference.kind, reference.referrer_class_tag);
        let from = match (kind, reference.referrer_tag.as_deref_mut()) {
            (Kind::StaticField(_), Some(class)) => self.holder_of_static(*class, next),
            (Kind::ClassLoader, Some(class)) => {
                // The object is held by the class, and so by everything that holds the class, most of all its objects.
                let class = *class;
                if !self.graph.is_crowded(to)
                    && let Some(from) = self.class_node(class, next)
                {
                    self.graph.add(Edge { to, from: From::Node(from), kind, class });
                }
                return Some(Edge { to, from: From::Class(class), kind, class });
            }
            (Kind::Class | Kind::Field(_) | Kind::ArrayElement(_), Some(tag))
                if !self.graph.is_crowded(to) =>
            {
                // A soft, weak or phantom reference does not hold its referent.
                let referent = known(classes, class).and_then(|owner| owner.referent).map(Kind::Field);
                if referent == Some(kind) {
                    return None;
                }
                From::Node(self.node(tag, class, next)?)
            }
            // The object refers to itself, or to an object that has enough references.
            (Kind::Class | Kind::Field(_) | Kind::ArrayElement(_), _) => return None,
            // A virtual thread is an object like others: the holder of the object holds its stack.
            (Kind::StackLocal(thread, _), None) => self.virtual_thread(thread).map_or(From::Root, From::Node),
            (_, None) => From::Root,
            _ => return None,
        };
        Some(Edge { to, from, kind, class })
    }

    /// What holds the static fields of a class. If its loader leaks, whoever holds the class is to blame.
    fn holder_of_static(&mut self, class: i64, level: u8) -> From {
        let place = usize::try_from(class).unwrap_or(0);
        let leaks = self.leaks_loader.get(place).is_some_and(|leaks| *leaks);
        let node = if leaks { self.class_node(class, level) } else { None };
        node.map_or(From::Class(class), From::Node)
    }

    /// Makes a node of the `ThreadLocal` to which an entry on the paths refers: what holds it names the entry.
    fn takes_local(&mut self, level: Option<u8>, reference: &mut Reference<'_>) {
        let entry = reference.referrer_tag.as_deref().and_then(|tag| node_of(*tag));
        let is_due = |entry: &usize| level.is_none_or(|level| self.graph.is_of_level(*entry, level));
        let Some(entry) = entry.filter(is_due).filter(|_| self.locals.len() < self.locals.capacity()) else {
            return;
        };
        let next = level.map_or(0, |level| level.wrapping_add(1));
        if let Some(local) = self.node(reference.tag, reference.class_tag, next) {
            self.locals.push((entry, local));
        }
    }

    /// The `ThreadLocal` of the entry at this node.
    pub(super) fn local_of(&self, entry: usize) -> Option<usize> {
        // Most nodes are no entries.
        self.thread_local.filter(|(class, _)| *class == self.class(entry))?;
        self.locals.iter().find(|(known, _)| *known == entry).map(|(_, local)| *local)
    }

    /// The field of a class object that holds objects of this class, if any.
    fn values_of_class(&self, class: i64) -> Option<&ClassValues> {
        self.class_values.as_ref().filter(|values| values.map == class)
    }

    fn is_passed_by(&self, class: i64) -> bool {
        usize::try_from(class).ok().and_then(|class| self.passed_by.get(class)).copied().unwrap_or(false)
    }

    /// The node of a tagged object or class.
    fn place(&self, tag: i64) -> Option<usize> {
        node_of(tag).or_else(|| self.class_nodes.get(usize::try_from(tag).ok()?)?.checked_sub(1))
    }

    fn class_node(&mut self, class: i64, level: u8) -> Option<usize> {
        // A class that was loaded later has no number, like an untagged object.
        let number = usize::try_from(class).ok().filter(|number| *number > 0)?;
        let place = self.class_nodes.get_mut(number)?;
        if *place == 0 {
            *place = self.graph.add_node(class, level)?.wrapping_add(1);
        }
        place.checked_sub(1)
    }

    /// The node of an object. Makes one if it has none. The node of a class represents its static fields. `None` if the
    /// object is skipped, or there is no room.
    fn node(&mut self, tag: &mut i64, class: i64, level: u8) -> Option<usize> {
        if let Some(node) = self.place(*tag) {
            return Some(node);
        }
        let thread = thread_of(*tag);
        if (1..FIRST).contains(tag) && thread.is_none() {
            // This is a class object, whose number must stay.
            return self.class_node(*tag, level);
        }
        if self.is_passed_by(class) {
            return None;
        }
        let new = self.graph.add_node(class, level)?;
        *tag = tag_of(new);
        if let Some(place) = thread.and_then(|thread| self.thread_nodes.get_mut(thread)) {
            *place = new.wrapping_add(1);
        }
        Some(new)
    }

    /// The references from an instance outwards to its root.
    pub(super) fn path(&self, last: &Shortest, instance: usize) -> Result<Vec<Edge>, Lost> {
        self.graph.path(last, instance)
    }
}

/// How often each name is there: a table of hashes, each in the first free place after its own.
struct Loaded(Vec<(u64, u8)>);

impl Loaded {
    fn of<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> Self {
        let mut loaded = Self(vec![(0, 0); names.len().wrapping_mul(2).next_power_of_two()]);
        for name in names {
            let hash = hash_of(name);
            if let Some((known, times)) = loaded.place(hash).and_then(|place| loaded.0.get_mut(place)) {
                (*known, *times) = (hash, times.saturating_add(1));
            }
        }
        loaded
    }

    fn times(&self, name: &str) -> u8 {
        self.place(hash_of(name)).and_then(|place| self.0.get(place)).map_or(0, |(_, times)| *times)
    }

    /// The place of this hash, or a free one.
    fn place(&self, hash: u64) -> Option<usize> {
        let last = self.0.len().wrapping_sub(1);
        let own = usize::try_from(hash & last as u64).unwrap_or(0);
        let is_it =
            |place: &usize| self.0.get(*place).is_some_and(|(known, times)| *times == 0 || *known == hash);
        (own..self.0.len()).chain(0..own).find(is_it)
    }
}

/// FNV-1a: two names with the same 64 bits are not to be expected.
fn hash_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn is_array_of_numbers(class: &str) -> bool {
    const ELEMENTS: [&str; 8] = ["byte", "char", "short", "int", "long", "float", "double", "boolean"];
    class.strip_suffix("[]").is_some_and(|element| ELEMENTS.contains(&element))
}

const fn tag_of(node: usize) -> i64 {
    FIRST.wrapping_add(node.cast_signed() as i64)
}

fn thread_of(tag: i64) -> Option<usize> {
    usize::try_from(tag.checked_sub(THREADS)?).ok().filter(|_| tag < FIRST)
}

fn node_of(tag: i64) -> Option<usize> {
    usize::try_from(tag.checked_sub(FIRST)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_counted_by_their_whole_names() {
        let names: Vec<String> =
            (0..5000).map(|number| format!("com.example.Tile{}", number % 1000)).collect();
        let loaded = Loaded::of(names.iter().map(String::as_str));
        assert!(names.iter().all(|name| loaded.times(name) == 5));
        assert_eq!(loaded.times("com.example.Tile"), 0);
        assert_eq!(Loaded::of(std::iter::empty()).times("a"), 0);
    }
}
