//! Everything that is known about a Java virtual machine after reading its frames.

use std::collections::HashMap;
use std::sync::Arc;

use memgate_model::Frame;
use memgate_wire::java::{ClassCount, Holders, JavaMethod, JavaSite, JavaStackNode, JvmInfo};

use super::tracked_objects::Followed;

/// Most frames to show of one stack.
const MAX_FRAMES: usize = 200;

/// The part of a record that only Java virtual machines have.
#[derive(Debug, Clone, Default)]
pub struct JavaRecord {
    /// The virtual machine and its start options.
    pub jvm: Option<JvmInfo>,
    /// Normalised names by number. Classes with the same normalised name share it.
    pub(crate) classes: HashMap<u32, Arc<str>>,
    pub(crate) methods: HashMap<u32, JavaMethod>,
    pub(crate) nodes: HashMap<u32, JavaStackNode>,
    /// Every time it ran out of memory.
    pub exhausted: Vec<Exhaustion>,
    /// Objects of tracked classes.
    pub followed: Followed,
}

/// One `OutOfMemoryError`, or the heap above its limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exhaustion {
    /// Time.
    pub t_ns: u64,
    /// Message of the virtual machine (`Java heap space`), or the limit that was exceeded.
    pub what: String,
    /// No error: the heap is above its limit.
    pub limit: bool,
    /// Used heap, bytes.
    pub heap_used: Option<u64>,
    /// Maximum heap size, bytes.
    pub heap_max: Option<u64>,
    /// Classes with most bytes: name, instances, bytes.
    pub classes: Vec<(String, u64, u64)>,
    /// Where most of the sampled bytes were allocated, innermost first.
    pub frames: Vec<Frame>,
    /// Holders of the heap, as text from the inspection of the heap dump. Empty: not inspected.
    pub held: String,
    /// The heap dump.
    pub dump: Option<String>,
}

impl JavaRecord {
    /// The normalised name of a class. `None`: the stream has no name for it.
    #[must_use]
    pub fn class(&self, id: u32) -> Option<&str> {
        self.classes.get(&id).map(|name| &**name)
    }

    /// Does the stream name a class with this prefix?
    pub(crate) fn has_class(&self, prefix: &str) -> bool {
        self.classes.values().any(|name| name.starts_with(prefix))
    }

    /// The stack whose innermost node is `stack`, innermost first.
    pub(crate) fn stack(&self, stack: u32) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut id = stack;
        while let Some(node) = self.nodes.get(&id).filter(|_| id != 0 && frames.len() < MAX_FRAMES) {
            if let Some(method) = self.methods.get(&node.method) {
                frames.push(Frame {
                    function: Some(format!("{}.{}", super::names::normalised(&method.class), method.name)),
                    file: (!method.file.is_empty()).then(|| method.file.clone()),
                    line: (node.line != 0).then_some(node.line),
                    ..Frame::default()
                });
            }
            id = node.parent;
        }
        frames
    }
}

/// Java part of a window: what the virtual machine reported at its end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JavaWindow {
    /// A class histogram belongs to it.
    pub histogram: bool,
    /// The histogram lists every class with a live instance. Classes missing in it have none.
    pub full: bool,
    /// Classes whose figures differ from the previous histogram, with the new figures. A later entry of a class wins.
    pub changes: Vec<ClassCount>,
    /// Counters.
    pub state: Option<JavaSnapshot>,
    /// Holders of growing classes, if they were requested.
    pub holders: Vec<Holders>,
    /// Where surviving samples were allocated.
    pub sites: Vec<JavaSite>,
    /// Parts of its histogram.
    pub(crate) parts: u32,
}

impl JavaWindow {
    /// Merges a later end of the same window, whose histogram is relative to this one.
    pub(crate) fn settle(&mut self, later: Self) {
        if later.full {
            self.changes.clear();
        }
        self.histogram |= later.histogram;
        self.full |= later.full;
        self.changes.extend(later.changes);
        self.state = later.state.or(self.state.take());
        self.holders.extend(later.holders);
        if !later.sites.is_empty() {
            self.sites = later.sites;
        }
    }
}

/// Counters of the virtual machine at one moment. `None`: not read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JavaSnapshot {
    /// Used heap, bytes.
    pub heap_used: Option<u64>,
    /// Bytes allocated since the start.
    pub allocated_bytes: Option<u64>,
    /// Live threads.
    pub threads: Option<u64>,
    /// Live threads by normalised name.
    pub thread_names: JavaNames,
    /// Loaded classes.
    pub classes_loaded: Option<u64>,
    /// Bytes of metaspace.
    pub metaspace_bytes: Option<u64>,
    /// Bytes of direct buffers.
    pub direct_bytes: Option<u64>,
    /// JNI global references.
    pub jni_globals: Option<u64>,
}

/// Sorted names of Java threads, each with its count. Their origin is not recorded.
pub type JavaNames = Arc<Vec<(String, u32)>>;
