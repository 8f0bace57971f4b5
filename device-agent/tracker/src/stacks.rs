//! The stack store: every distinct stack is a node in a tree of (caller's node, return address).
//!
//! Nodes are append-only, 16 bytes each, in chunks that are mapped on demand. Ids have 26 bits. A lock-free hash map
//! leads from the rolling hash of a stack to its node. Two threads that insert the same new stack at the same moment
//! may get different ids. The reader merges stacks by content, so this costs a node but no exactness.
#![cfg_attr(
    not(test),
    expect(clippy::arithmetic_side_effects, reason = "places in a table whose size is a power of two")
)]

use core::ptr;

use crate::entry::MAX_STACK;
use crate::sync::{
    self, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, Use, Zeroed, sized, zero_constructor,
};

/// `pc` of the pseudo-frame at the root of a stack that could not be followed to its end.
pub const TRUNCATED_PC: usize = 1;

const CHUNK_NODES: usize = sized(1 << 16, 4);
const CHUNKS: usize = (MAX_STACK as usize + 1) / CHUNK_NODES;
const FIRST_CELLS: usize = sized(1 << 12, 4);
const ID_MASK: u64 = MAX_STACK as u64;

#[repr(C)]
struct NodeCell {
    /// pc 48 | generation 16
    pc: AtomicU64,
    /// parent 32 | low bits of the hash 32, which a map cell does not store
    parent: AtomicU64,
}

const PC_BITS: u32 = 48;

#[repr(C)]
struct Map {
    mask: u64,
    used: AtomicU64,
    // `mask + 1` cells follow: hash bits above the id 38 | id 26, 0: empty.
}

/// One frame of a stored stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Node of the caller, 0 at the root.
    pub parent: u32,
    /// Module generation in which it was stored; 16 bits.
    pub generation: u32,
    /// Return address.
    pub pc: u64,
}

/// The store. One lives in a static of the agent; all-zero is empty.
pub struct StackStore {
    chunks: [AtomicPtr<NodeCell>; CHUNKS],
    nodes: AtomicU32,
    map: AtomicPtr<Map>,
    growing: AtomicBool,
}

impl StackStore {
    zero_constructor! {
        /// An empty store.
    }

    /// Id of the stack with this rolling hash, if it was stored.
    #[inline(always)]
    pub fn find(&self, hash: u64) -> Option<u32> {
        // SAFETY: maps are mapped once and never unmapped.
        let map = unsafe { self.map.load(Ordering::Acquire).as_ref() }?;
        let mut at = hash & map.mask;
        // A map always keeps empty cells, so the probe ends.
        loop {
            let bits = map.cell(at).load(Ordering::Acquire);
            if bits == 0 {
                return None;
            }
            if (bits ^ hash) & !ID_MASK == 0 {
                return Some((bits & ID_MASK) as u32);
            }
            at = (at + 1) & map.mask;
        }
    }

    /// Stores one more frame below `parent` and makes it findable by `hash`. `None`: no memory, or
    /// no more ids.
    #[cold]
    #[inline(never)]
    pub fn store(&self, hash: u64, node: Node) -> Option<u32> {
        if self.len() >= MAX_STACK {
            return None;
        }
        let id = self.nodes.fetch_add(1, Ordering::Relaxed) + 1;
        let cell = self.make_node_cell(id)?;
        cell.pc.store(
            (node.pc & ((1 << PC_BITS) - 1)) | (u64::from(node.generation) << PC_BITS),
            Ordering::Relaxed,
        );
        cell.parent.store((u64::from(node.parent) << 32) | (hash & u64::from(u32::MAX)), Ordering::Release);
        self.publish(hash, id);
        Some(id)
    }

    /// The id of the unknown stack. `None`: no memory.
    pub fn unknown(&self, generation: u32) -> Option<u32> {
        let pc = TRUNCATED_PC as u64;
        let hash = extend_hash(root_hash(generation), pc);
        self.find(hash).or_else(|| self.store(hash, Node { parent: 0, generation, pc }))
    }

    /// Leaves this many ids, as if all others were used.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn leave(&self, ids: u32) {
        self.nodes.store(MAX_STACK - ids, Ordering::Relaxed);
    }

    /// The node with this id.
    #[must_use]
    pub fn node(&self, id: u32) -> Option<Node> {
        if id == 0 || id > self.nodes.load(Ordering::Acquire) {
            return None;
        }
        let cell = self.node_cell(id)?;
        let parent = (cell.parent.load(Ordering::Acquire) >> 32) as u32;
        let pc = cell.pc.load(Ordering::Relaxed);
        Some(Node { parent, generation: (pc >> PC_BITS) as u32, pc: pc & ((1 << PC_BITS) - 1) })
    }

    /// Number of stored nodes.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.nodes.load(Ordering::Relaxed)
    }

    /// Is nothing stored?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In a forked child: the thread that was growing the map does not exist here.
    pub fn after_fork(&self) {
        self.growing.store(false, Ordering::Relaxed);
    }

    /// The cell of a stored node.
    fn node_cell(&self, id: u32) -> Option<&NodeCell> {
        let chunk = self.chunks.get(id as usize / CHUNK_NODES)?.load(Ordering::Acquire);
        // SAFETY: a published chunk has CHUNK_NODES cells and is never unmapped.
        (!chunk.is_null()).then(|| unsafe { &*chunk.wrapping_add(id as usize % CHUNK_NODES) })
    }

    /// The cell for a new node. `None`: no memory.
    fn make_node_cell(&self, id: u32) -> Option<&NodeCell> {
        sync::get_or_map(self.chunks.get(id as usize / CHUNK_NODES)?, CHUNK_NODES, Use::Sparse)?;
        self.node_cell(id)
    }

    /// Adds a node to the map. If another thread is making the first map, or the map is full because a thread is
    /// copying it, the stack is not added and is stored again the next time.
    fn publish(&self, hash: u64, id: u32) {
        let mut at = self.map.load(Ordering::Acquire);
        // SAFETY: maps are mapped once and never unmapped.
        let crowded = unsafe { at.as_ref() }.is_none_or(Map::is_crowded);
        if crowded {
            self.grow();
            at = self.map.load(Ordering::Acquire);
        }
        // SAFETY: as above.
        if let Some(map) = unsafe { at.as_ref() } {
            map.put(hash, id);
        }
    }

    /// Replaces the map by one twice as large, not larger: the denser a map is, the more of its lookups stay in the
    /// caches. Only one thread grows the map, and no thread waits for it. A stack that is stored during the copy may be
    /// missing in the new map and is then stored twice.
    fn grow(&self) {
        if self.growing.swap(true, Ordering::Acquire) {
            return;
        }
        let old = self.map.load(Ordering::Acquire);
        // SAFETY: maps are mapped once and never unmapped.
        let old = unsafe { old.as_ref() };
        if old.is_none_or(Map::is_crowded) {
            let cells = old.map_or(FIRST_CELLS, |m| (m.mask as usize + 1) * 2);
            if let Some(new) = Map::with_cells(cells) {
                if let Some(old) = old {
                    for i in 0..=old.mask {
                        let bits = old.cell(i).load(Ordering::Acquire);
                        let id = (bits & ID_MASK) as u32;
                        if let Some(node) = self.node_cell(id).filter(|_| bits != 0) {
                            new.put((bits & !ID_MASK) | (node.parent.load(Ordering::Acquire) & ID_MASK), id);
                        }
                    }
                }
                self.map.store(ptr::from_ref(new).cast_mut(), Ordering::Release);
            }
        }
        self.growing.store(false, Ordering::Release);
    }
}

impl Default for StackStore {
    fn default() -> Self {
        Self::new()
    }
}

/// Hash of the empty stack in a module generation.
#[inline(always)]
#[must_use]
pub const fn root_hash(generation: u32) -> u64 {
    0x51_7C_C1_B7_27_22_0A_95 ^ ((generation as u64) << 7)
}

/// Hash of a stack with one more frame.
#[inline(always)]
#[must_use]
pub const fn extend_hash(hash: u64, pc: u64) -> u64 {
    let mixed = (hash ^ pc).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ (mixed >> 29)
}

impl Map {
    fn with_cells(cells: usize) -> Option<&'static Self> {
        let at = sync::map::<Self, AtomicU64>(cells, Use::Whole)?;
        // SAFETY: fresh zeroed memory of this thread alone.
        unsafe { (*at.as_ptr()).mask = cells as u64 - 1 };
        // SAFETY: never unmapped.
        Some(unsafe { at.as_ref() })
    }

    fn is_crowded(&self) -> bool {
        self.used.load(Ordering::Relaxed) * 3 > self.mask * 2
    }

    #[inline(always)]
    fn cell(&self, at: u64) -> &AtomicU64 {
        // SAFETY: `mask + 1` cells lie after the header, and `at` is masked by every caller.
        unsafe { &*ptr::from_ref(self).wrapping_add(1).cast::<AtomicU64>().wrapping_add(at as usize) }
    }

    /// Adds an id, unless the map is full: an eighth of the cells stays empty, so that every probe ends.
    fn put(&self, hash: u64, id: u32) {
        // Counted before it is added, so that many threads together cannot fill the map.
        if self.used.fetch_add(1, Ordering::Relaxed) * 8 >= self.mask * 7 {
            self.used.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let bits = (hash & !ID_MASK) | u64::from(id);
        let mut at = hash & self.mask;
        while self.cell(at).compare_exchange(0, bits, Ordering::Release, Ordering::Relaxed).is_err() {
            at = (at + 1) & self.mask;
        }
    }
}

// SAFETY: atomics; all-zero is an empty cell.
unsafe impl Zeroed for NodeCell {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self { pc: Zeroed::zeroed(), parent: Zeroed::zeroed() }
    }
}

// SAFETY: numbers; the mask is set before the map is published.
unsafe impl Zeroed for Map {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self { mask: 0, used: Zeroed::zeroed() }
    }
}

// SAFETY: all-zero is empty.
unsafe impl Zeroed for StackStore {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self {
            chunks: Zeroed::zeroed(),
            nodes: Zeroed::zeroed(),
            map: Zeroed::zeroed(),
            growing: Zeroed::zeroed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::boxed::Box;
    use std::vec::Vec;

    use super::*;

    fn intern(store: &StackStore, pcs: &[u64]) -> u32 {
        let (mut hash, mut parent) = (root_hash(0), 0);
        for &pc in pcs {
            hash = extend_hash(hash, pc);
            parent = match store.find(hash) {
                Some(id) => id,
                None => store.store(hash, Node { parent, generation: 0, pc }).unwrap(),
            };
        }
        parent
    }

    fn pcs(store: &StackStore, mut id: u32) -> Vec<u64> {
        let mut out = Vec::new();
        while let Some(n) = store.node(id) {
            out.insert(0, n.pc);
            id = n.parent;
        }
        out
    }

    #[test]
    fn equal_stacks_share_an_id_also_after_the_map_has_grown() {
        let store: &StackStore = Box::leak(Box::new(StackStore::new()));
        let stacks: Vec<Vec<u64>> =
            (0..30_000_u64).map(|i| std::vec![0x40_0000, 0x40_1000 + i % 7, 0x50_0000 + i]).collect();
        let first: Vec<u32> = stacks.iter().map(|s| intern(store, s)).collect();
        let again: Vec<u32> = stacks.iter().map(|s| intern(store, s)).collect();
        assert_eq!(first, again);
        assert_eq!(store.len(), 30_000 + 7 + 1);
        for (stack, id) in stacks.iter().zip(first) {
            assert_eq!(&pcs(store, id), stack);
        }
    }

    #[test]
    fn a_node_comes_back_as_it_was_stored() {
        let store: &StackStore = Box::leak(Box::new(StackStore::new()));
        for (i, generation) in [0, 1, 0xffff].into_iter().enumerate() {
            let node = Node { parent: i as u32, generation, pc: 0x7fff_ffff_f000 + i as u64 };
            let id = store.store(u64::MAX - i as u64, node).unwrap();
            assert_eq!(store.node(id), Some(node));
        }
    }

    #[test]
    fn ids_that_have_run_out_are_refused_and_the_last_one_is_whole() {
        let store: &StackStore = Box::leak(Box::new(StackStore::new()));
        store.leave(2);
        let node = |pc| Node { parent: 7, generation: 3, pc };
        let [first, last] = [1, 2].map(|n| store.store(n << 40, node(n)).unwrap());
        assert_eq!((first, last), (MAX_STACK - 1, MAX_STACK));
        for n in 3..10 {
            assert_eq!(store.store(n << 40, node(n)), None);
        }
        assert_eq!((store.node(last), store.find(2 << 40)), (Some(node(2)), Some(last)));
        assert_eq!((store.len(), store.node(MAX_STACK + 1)), (MAX_STACK, None));
    }

    /// Regression: while one thread made the first map, a store in another thread reported that there is no memory.
    #[test]
    fn threads_that_begin_together_all_get_ids() {
        for _ in 0..200 {
            let store: &StackStore = Box::leak(Box::new(StackStore::new()));
            let start = std::sync::Barrier::new(4);
            std::thread::scope(|s| {
                for t in 0..4_u64 {
                    let start = &start;
                    s.spawn(move || {
                        start.wait();
                        assert_ne!(intern(store, &[1000 + t, 2000]), 0);
                    });
                }
            });
        }
    }

    #[test]
    fn threads_agree_on_the_content_of_their_ids() {
        let store: &StackStore = Box::leak(Box::new(StackStore::new()));
        std::thread::scope(|s| {
            for t in 0..4_u64 {
                s.spawn(move || {
                    for i in 0..20_000_u64 {
                        let stack = [1000 + i % 13, 2000 + (i + t) % 997, 3000 + i];
                        assert_eq!(pcs(store, intern(store, &stack)), stack);
                    }
                });
            }
        });
    }
}
