//! Streams of Java virtual machines for tests. A test describes live objects by class; this file writes the frames.

use std::collections::BTreeMap;

use memgate_wire::java::{
    ClassCount, ClassName, Classes, HeapHistogram, HistogramScope, HolderLink, HolderPath, Holders,
    JavaMethod, JavaSite, JavaSites, JavaStackNode, JavaStacks, JavaState, UNHELD,
};
use memgate_wire::{
    AgentCost, Boundary, BoundaryKind, Counters, Frame, Goodbye, GoodbyeReason, Hello, Outcome, Runtime,
};

use crate::dsl::{MS, hello};
use crate::observer::Observer;
use crate::record::ProcessRecord;

/// A Java virtual machine under construction.
pub(crate) struct Jvm {
    pub(crate) frames: Vec<(Frame, u64)>,
    t_ns: u64,
    sequence: u32,
    ids: BTreeMap<String, u32>,
    live: BTreeMap<u32, (u64, u64)>,
    told: Option<BTreeMap<u32, (u64, u64)>>,
    pub(crate) threads: Vec<String>,
    pub(crate) direct_bytes: u64,
    pub(crate) jni_globals: u64,
    pub(crate) outcome: Outcome,
}

impl Jvm {
    pub(crate) fn new() -> Self {
        let mut jvm = Self {
            frames: Vec::new(),
            t_ns: 1000 * MS,
            sequence: 0,
            ids: BTreeMap::new(),
            live: BTreeMap::new(),
            told: None,
            threads: vec!["main".to_owned()],
            direct_bytes: 0,
            jni_globals: 7,
            outcome: Outcome::Passed,
        };
        jvm.frame(Frame::Hello(Hello { runtime: Runtime::HotSpot, ..hello() }));
        jvm.add("java.lang.Class", 500, 104);
        jvm
    }

    pub(crate) fn frame(&mut self, frame: Frame) {
        self.frames.push((frame, self.t_ns));
        self.t_ns += MS;
    }

    /// Advances the clock.
    pub(crate) const fn wait(&mut self, ms: u64) {
        self.t_ns += ms * MS;
    }

    fn id(&mut self, class: &str) -> u32 {
        if let Some(id) = self.ids.get(class) {
            return *id;
        }
        let id = u32::try_from(self.ids.len()).expect("few classes") + 1;
        self.ids.insert(class.to_owned(), id);
        self.frame(Frame::Classes(Classes { classes: vec![ClassName { id, name: class.to_owned() }] }));
        id
    }

    /// Adds instances of this size.
    pub(crate) fn add(&mut self, class: &str, instances: u64, size: u64) {
        let id = self.id(class);
        let live = self.live.entry(id).or_default();
        live.0 += instances;
        live.1 += instances * size;
    }

    pub(crate) fn remove(&mut self, class: &str, instances: u64, size: u64) {
        let id = self.id(class);
        let live = self.live.get_mut(&id).expect("was added");
        live.0 -= instances;
        live.1 -= instances * size;
    }

    /// Sets the figures of one class.
    pub(crate) fn set(&mut self, class: &str, instances: u64, bytes: u64) {
        let id = self.id(class);
        self.live.insert(id, (instances, bytes));
    }

    /// Adds the objects of `count` entries of a `HashMap<Object, Tile>` with a `byte[]` in each tile, including the
    /// table.
    pub(crate) fn tiles(&mut self, count: u64) {
        self.add("com.example.Tile", count, 24);
        self.add("byte[]", count, 4000);
        self.add("java.lang.Object", count, 16);
        self.add("java.util.HashMap$Node", count, 32);
        let entries = self.live[&self.ids["java.util.HashMap$Node"]].0;
        let mut table = 16;
        while table * 3 / 4 < entries {
            table *= 2;
        }
        self.set("java.util.HashMap$Node[]", 3, 4 * table + 16);
    }

    /// One execution of `Class#method` (or of a whole class) with a measured end.
    pub(crate) fn window(&mut self, class: &str, method: &str, iteration: u32, body: impl FnOnce(&mut Self)) {
        self.boundary(BoundaryKind::TestStart, class, method, iteration);
        body(self);
        self.measured_end(class, method, iteration);
    }

    /// The same without a measured end.
    pub(crate) fn unmeasured(
        &mut self,
        class: &str,
        method: &str,
        iteration: u32,
        body: impl FnOnce(&mut Self),
    ) {
        self.boundary(BoundaryKind::TestStart, class, method, iteration);
        body(self);
        self.boundary(BoundaryKind::TestEnd, class, method, iteration);
    }

    /// One execution in the build's own run: nothing is measured.
    pub(crate) fn test(&mut self, class: &str, method: &str) {
        self.boundary(BoundaryKind::TestStart, class, method, 0);
        self.boundary(BoundaryKind::TestEnd, class, method, 0);
    }

    fn measured_end(&mut self, class: &str, method: &str, iteration: u32) {
        let boundary = self.sequence + 1;
        let (scope, before) = match self.told.take() {
            Some(before) => (HistogramScope::Changes, before),
            None => (HistogramScope::All, BTreeMap::new()),
        };
        let changed = self.live.iter().filter(|(class, now)| before.get(class) != Some(now));
        let records: Vec<_> = changed
            .map(|(class, (instances, bytes))| ClassCount {
                class: *class,
                instances: *instances,
                bytes: *bytes,
            })
            .collect();
        self.told = Some(self.live.clone());
        let (first, second) = records.split_at(records.len() / 2);
        for (part, records) in (0..).zip([first.to_vec(), second.to_vec()]) {
            self.frame(Frame::HeapHistogram(HeapHistogram { boundary, part, scope, records }));
        }
        self.frame(Frame::JavaState(JavaState {
            boundary,
            heap_used: Some(self.live.values().map(|(_, bytes)| bytes).sum()),
            allocated_bytes: Some(1_000_000 * u64::from(boundary)),
            threads: Some(u32::try_from(self.threads.len()).expect("few threads")),
            thread_names: self.threads.clone(),
            classes_loaded: Some(900),
            metaspace_bytes: Some(5_000_000),
            direct_bytes: Some(self.direct_bytes),
            jni_globals: Some(self.jni_globals),
            ..JavaState::default()
        }));
        self.boundary(BoundaryKind::TestEnd, class, method, iteration);
    }

    pub(crate) fn boundary(&mut self, kind: BoundaryKind, class: &str, method: &str, iteration: u32) {
        self.sequence += 1;
        self.frame(Frame::Boundary(Boundary {
            sequence: self.sequence,
            kind,
            suite: class.to_owned(),
            test: method.to_owned(),
            iteration,
            outcome: (kind == BoundaryKind::TestEnd).then_some(self.outcome),
            thread_id: 1,
            open_tests: 1,
            ..Boundary::default()
        }));
    }

    /// Reports the holders of a class: each path as `kind owner.name -> class` from the root, with its instances in one
    /// window. No path: nobody holds it.
    pub(crate) fn held(&mut self, class: &str, ways: &[(u64, &[&str])]) {
        let instances = ways.iter().map(|(instances, _)| instances).sum::<u64>().max(1);
        self.held_some(instances, class, ways);
    }

    /// The same, if this many instances were searched.
    pub(crate) fn held_some(&mut self, instances: u64, class: &str, ways: &[(u64, &[&str])]) {
        let (boundary, class) = (self.sequence + 1, self.id(class));
        let paths: Vec<HolderPath> = ways
            .iter()
            .map(|(instances, links)| HolderPath {
                instances: *instances,
                links: links.iter().map(|text| link(text)).collect(),
            })
            .collect();
        let cut = paths.is_empty().then(|| UNHELD.to_owned());
        self.frame(Frame::Holders(Holders { boundary, class, instances, paths, cut }));
    }

    /// Surviving samples of a class, allocated by `method` of `owner` in `file`.
    pub(crate) fn site(&mut self, class: &str, owner: &str, method: &str, file: &str, line: u32) {
        let (boundary, class) = (self.sequence + 1, self.id(class));
        let method =
            JavaMethod { id: 1, class: owner.to_owned(), name: method.to_owned(), file: file.to_owned() };
        let node = JavaStackNode { id: 1, parent: 0, method: 1, line };
        self.frame(Frame::JavaStacks(JavaStacks { methods: vec![method], nodes: vec![node] }));
        let records = vec![JavaSite { stack: 1, class, samples: 3, bytes: 1 << 20 }];
        self.frame(Frame::JavaSites(JavaSites { boundary, records }));
    }

    /// Surviving samples of a class from several stacks: class and method of the innermost frame,
    /// bytes.
    pub(crate) fn sites(&mut self, class: &str, stacks: &[(&str, &str, u64)]) {
        let (boundary, class) = (self.sequence + 1, self.id(class));
        let mut records = Vec::new();
        // Own numbers, so that another class can be reported, too.
        for (id, (owner, name, bytes)) in (1000 * class..).zip(stacks) {
            let (class_name, name) = ((*owner).to_owned(), (*name).to_owned());
            let methods = vec![JavaMethod { id, class: class_name, name, file: String::new() }];
            let nodes = vec![JavaStackNode { id, parent: 0, method: id, line: 0 }];
            self.frame(Frame::JavaStacks(JavaStacks { methods, nodes }));
            records.push(JavaSite { stack: id, class, samples: 1, bytes: *bytes });
        }
        self.frame(Frame::JavaSites(JavaSites { boundary, records }));
    }

    /// The second end of the same execution, which brings the holders.
    pub(crate) fn explained(&mut self, class: &str, method: &str, iteration: u32) {
        self.boundary(BoundaryKind::TestEnd, class, method, iteration);
    }

    /// Reports the paths to what [`Self::tiles`] adds, below a static field of `com.example.Registry`.
    pub(crate) fn tiles_held(&mut self, field: &str, count: u64) {
        let root = format!("static com.example.Registry.{field} -> java.util.HashMap");
        let table = "field java.util.HashMap.table -> java.util.HashMap$Node[]";
        let entry = "array java.util.HashMap$Node[].[x] -> java.util.HashMap$Node";
        let next = "field java.util.HashMap$Node.next -> java.util.HashMap$Node";
        let value = "field java.util.HashMap$Node.value -> com.example.Tile";
        let key = "field java.util.HashMap$Node.key -> java.lang.Object";
        let data = "field com.example.Tile.data -> byte[]";
        self.held("java.util.HashMap$Node[]", &[(1, &[&root, table])]);
        self.held(
            "java.util.HashMap$Node",
            &[(count / 2, &[&root, table, entry]), (count / 2, &[&root, table, entry, next])],
        );
        self.held("com.example.Tile", &[(count, &[&root, table, entry, value])]);
        self.held("java.lang.Object", &[(count, &[&root, table, entry, next, key])]);
        let old = [
            "static jdk.internal.Old.cache -> java.util.ArrayList",
            "field java.util.ArrayList.data -> byte[]",
        ];
        self.held("byte[]", &[(9 * count, &old), (count, &[&root, table, entry, value, data])]);
    }

    pub(crate) fn end(mut self) -> ProcessRecord {
        let goodbye = Goodbye {
            reason: GoodbyeReason::Exit,
            status: Some(0),
            counters: Counters::default(),
            cost: AgentCost::default(),
        };
        self.frame(Frame::Goodbye(goodbye));
        self.cut()
    }

    pub(crate) fn cut(mut self) -> ProcessRecord {
        let mut observer = Observer::new();
        self.pass_to(&mut observer);
        observer.into_record()
    }

    /// Passes on the frames that came since the last call, like a reader of a stream that grows.
    pub(crate) fn pass_to(&mut self, observer: &mut Observer) {
        self.frames.drain(..).for_each(|(frame, t_ns)| observer.push(frame, t_ns));
    }
}

/// `kind owner.name -> class`, or `kind owner#declared.name -> class` for a field of a superclass; kinds may have a
/// space before the owner's last dot.
fn link(text: &str) -> HolderLink {
    let (reference, class) = text.split_once(" -> ").expect("an arrow");
    let (kind, place) = reference.rsplit_once(' ').expect("a kind");
    let (owner, name) = match place.strip_suffix(".[x]") {
        Some(owner) => (owner, "[x]"),
        None => place.split_once('#').or_else(|| place.rsplit_once('.')).unwrap_or((place, "")),
    };
    HolderLink {
        kind: kind.to_owned().into(),
        owner: owner.to_owned(),
        name: name.to_owned(),
        class: class.to_owned(),
    }
}
