//! Java call stacks, as nodes of one tree that every thread extends without a lock.
//!
//! Data flow: the frames of a stack (method, bytecode index) → a cache from frame to method number and line, filled by
//! calls to the virtual machine while the frame is on the stack, so that its class cannot be unloaded → the tree: one
//! word per node, found by hashing; the position of the word is the number of the node → [`Stacks::untold`]: the part
//! of the tree that the stream does not know yet.
//!
//! Everything has a fixed size. A stack that no longer fits is shortened and counted ([`Stacks::cut`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use jni::Env;
use memgate_ffi::lock::Lock;
use memgate_jvmti::{Jvmti, StackFrame};
use memgate_wire::java::{JavaMethod, JavaStackNode, JavaStacks};

use super::names::name_of;

/// Maximum number of frames of a stack, from the innermost on.
pub(crate) const DEPTH: usize = 32;

const NODES: usize = 1 << 17;
const CACHED: usize = 1 << 14;
/// Maximum number of places that are tried for a node. The limit makes a nearly full tree as fast as an empty one.
const PROBES: usize = 64;
const MAX_METHODS: usize = 1 << 17;
const MAX_TEXT_BYTES: usize = 16 << 20;

/// A node is `parent 20 | method 20 | line 16`, and this bit, so that none is 0.
const NODE: u64 = 1 << 63;
/// The bytecode index of a native method. No method is this long.
const NATIVE: u64 = 0xffff;

/// The tree.
pub(crate) struct Stacks {
    nodes: Box<[AtomicU64]>,
    cache: Box<[Cached]>,
    methods: Lock<Methods>,
    cut: AtomicU64,
}

/// A frame with its method and line. `place` is written before `frame`, under the lock of the methods.
#[derive(Default)]
struct Cached {
    /// `method 48 | bytecode index 16`; 0: free, or being written.
    frame: AtomicU64,
    /// `method number 20 | line 16`.
    place: AtomicU64,
}

#[derive(Default)]
struct Methods {
    numbers: BTreeMap<(String, String), u32>,
    all: Vec<JavaMethod>,
    text_bytes: usize,
    /// The parts of the tree that the stream already contains.
    told_methods: BTreeSet<u32>,
    told_nodes: BTreeSet<u32>,
}

impl Stacks {
    pub(crate) fn new() -> Self {
        Self {
            nodes: (0..NODES).map(|_| AtomicU64::new(0)).collect(),
            cache: (0..CACHED).map(|_| Cached::default()).collect(),
            methods: Lock::new(Methods::default()),
            cut: AtomicU64::new(0),
        }
    }

    /// Number of stacks that were shortened.
    pub(crate) fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    /// The node of a stack of the calling thread, innermost frame first; 0: the stack is empty.
    pub(crate) fn node(&self, env: &Env<'_>, jvmti: Jvmti<'_>, frames: &[StackFrame]) -> u32 {
        let mut parent = 0;
        for frame in frames.iter().rev() {
            let place = self.place(env, jvmti, *frame);
            match place.and_then(|place| self.child(parent, place)) {
                Some(node) => parent = node,
                None => {
                    self.cut.fetch_add(1, Ordering::Relaxed);
                    return parent;
                }
            }
        }
        parent
    }

    fn child(&self, parent: u32, place: u64) -> Option<u32> {
        let word = NODE | u64::from(parent) << 36 | place;
        let mut at = spread(word, NODES);
        for _ in 0..PROBES {
            let slot = self.nodes.get(at)?;
            let mut known = slot.load(Ordering::Acquire);
            if known == 0 {
                known = match slot.compare_exchange(0, word, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => word,
                    Err(theirs) => theirs,
                };
            }
            if known == word {
                return u32::try_from(at.wrapping_add(1)).ok();
            }
            at = at.wrapping_add(1) % NODES;
        }
        None
    }

    /// Method number and line of a frame; `None`: there is no room for another method.
    fn place(&self, env: &Env<'_>, jvmti: Jvmti<'_>, frame: StackFrame) -> Option<u64> {
        let index = u64::try_from(frame.location).map_or(NATIVE, |index| index & 0xffff);
        let word = frame.method.number() << 16 | index;
        let cached = self.cache.get(spread(word, CACHED))?;
        if cached.frame.load(Ordering::Acquire) == word {
            let place = cached.place.load(Ordering::Acquire);
            if cached.frame.load(Ordering::Acquire) == word {
                return Some(place);
            }
        }
        let method = described(env, jvmti, frame);
        let line = if index == NATIVE { 0 } else { jvmti.line(frame.method, frame.location).unwrap_or(0) };
        let mut methods = self.methods.lock();
        let number = methods.number(method)?;
        let place = u64::from(number) << 16 | u64::from(line & 0xffff);
        cached.frame.store(0, Ordering::Release);
        cached.place.store(place, Ordering::Release);
        cached.frame.store(word, Ordering::Release);
        Some(place)
    }

    /// The stacks that end at these nodes, without the parts that were reported before. Parents come before their
    /// children.
    pub(crate) fn untold(&self, ends: impl Iterator<Item = u32>) -> JavaStacks {
        let mut told = JavaStacks { methods: Vec::new(), nodes: Vec::new() };
        let mut methods = self.methods.lock();
        for end in ends {
            let (mut path, mut id) = (Vec::new(), end);
            while id != 0 && methods.told_nodes.insert(id) {
                let Some(node) = self.wire_node(id) else { break };
                path.push(node);
                id = node.parent;
            }
            for node in path.iter().rev() {
                if methods.told_methods.insert(node.method) {
                    let place = usize::try_from(node.method).unwrap_or(0).checked_sub(1);
                    told.methods.extend(place.and_then(|place| methods.all.get(place)).cloned());
                }
            }
            told.nodes.extend(path.into_iter().rev());
        }
        told
    }

    fn wire_node(&self, id: u32) -> Option<JavaStackNode> {
        let word = self.nodes.get(usize::try_from(id).ok()?.checked_sub(1)?)?.load(Ordering::Acquire);
        let bits = |from: u32, count: u32| u32::try_from(word >> from & !(u64::MAX << count)).unwrap_or(0);
        Some(JavaStackNode { id, parent: bits(36, 20), method: bits(16, 20), line: bits(0, 16) })
    }
}

impl Methods {
    fn number(&mut self, method: JavaMethod) -> Option<u32> {
        let key = (method.class.clone(), method.name.clone());
        if let Some(&number) = self.numbers.get(&key) {
            return Some(number);
        }
        let twice = method.class.len().saturating_add(method.name.len()).saturating_mul(2);
        let bytes = twice.saturating_add(method.file.len());
        if self.all.len() >= MAX_METHODS || self.text_bytes.wrapping_add(bytes) > MAX_TEXT_BYTES {
            return None;
        }
        let number = u32::try_from(self.all.len()).ok()?.wrapping_add(1);
        self.text_bytes = self.text_bytes.wrapping_add(bytes);
        self.numbers.insert(key, number);
        self.all.push(JavaMethod { id: number, ..method });
        Some(number)
    }
}

/// Called in the thread that has the frame on its stack, so that the class cannot be unloaded meanwhile.
fn described(env: &Env<'_>, jvmti: Jvmti<'_>, frame: StackFrame) -> JavaMethod {
    let mut method = JavaMethod {
        id: 0,
        class: String::new(),
        name: jvmti.method_name(frame.method).unwrap_or_default(),
        file: String::new(),
    };
    if let Ok(class) = jvmti.declaring_class(env, frame.method) {
        method.class = name_of(jvmti, &class);
        method.file = jvmti.source_file(&class).unwrap_or_default();
        env.delete_local_ref(class);
    }
    method
}

/// A place for `word` among `places`, a power of two.
fn spread(word: u64, places: usize) -> usize {
    // Fibonacci hashing: the upper bits of the product depend on all bits.
    let mixed = (word ^ word >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(mixed).unwrap_or(0) & places.wrapping_sub(1)
}
