//! The stack store: every id leads to the frames it was made from, and every search ends.

use std::sync::Arc;

use loom::thread;
use memgate_tracker::stacks::{Node, StackStore, extend_hash, root_hash};

use crate::check;

fn hash(pcs: &[u64]) -> u64 {
    pcs.iter().fold(root_hash(0), |hash, &pc| extend_hash(hash, pc))
}

fn intern(store: &StackStore, pcs: &[u64]) -> u32 {
    let (mut hash, mut parent) = (root_hash(0), 0);
    for &pc in pcs {
        hash = extend_hash(hash, pc);
        let found = store.find(hash);
        parent = found.unwrap_or_else(|| store.store(hash, Node { parent, generation: 0, pc }).unwrap());
    }
    parent
}

fn pcs(store: &StackStore, mut id: u32) -> Vec<u64> {
    let mut out = Vec::new();
    while id != 0 {
        let node = store.node(id).expect("an id without a node");
        out.insert(0, node.pc);
        id = node.parent;
    }
    out
}

/// Threads store their stacks; `before` is already in the store. Ids match their content at once, and so does
/// everything found at the end.
fn threads_store(before: &'static [&'static [u64]], stacks: &'static [&'static [u64]]) {
    let store = Arc::new(StackStore::new());
    for stack in before {
        intern(&store, stack);
    }
    let threads: Vec<_> = stacks
        .iter()
        .map(|&stack| {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let id = intern(&store, stack);
                assert_eq!(pcs(&store, id), stack);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    for &stack in before.iter().chain(stacks) {
        if let Some(id) = store.find(hash(stack)) {
            assert_eq!(pcs(&store, id), stack);
        }
    }
    assert_eq!(store.find(hash(&[9, 9, 9])), None);
}

#[test]
fn same_stack_stored_by_two_threads() {
    check("same_stack_stored_by_two_threads", (1, 3), || threads_store(&[], &[&[1, 2], &[1, 2]]));
}

#[test]
fn different_stacks_stored_by_two_threads() {
    check("different_stacks_stored_by_two_threads", (2, 3), || threads_store(&[], &[&[1, 2], &[3]]));
}

/// A model's map has 4 cells and grows when the third is used.
#[test]
fn map_that_grows() {
    check("map_that_grows", (2, 3), || threads_store(&[&[1, 2]], &[&[1, 3], &[1, 4]]));
}

/// Three threads arrive at once when there is room for one: a probe for a missing stack must still find an empty cell.
#[test]
fn map_that_is_nearly_full() {
    check("map_that_is_nearly_full", (1, 2), || threads_store(&[&[1]], &[&[2], &[3], &[4]]));
}
