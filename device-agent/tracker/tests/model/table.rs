//! The live table and its spill table: the holder of a pointer owns its slot. A scan sees whole entries and misses no
//! entry that was there.

use std::sync::Arc;

use loom::thread;
use memgate_tracker::stacks::{Node, StackStore};
use memgate_tracker::sync::{AtomicBool, Ordering};
use memgate_tracker::table::{ANCIENT, Entry, MAX_EPOCH, Table};

use crate::check;

/// In the table: slots 0 and 1 of one page. The other pointers of a model are multiples of 16 bytes. All below 0x100
/// fit.
const SLOT_0: usize = 0x00;
const SLOT_1: usize = 0x10;
/// 8-aligned pointers, so they are in the spill table. Their probes begin at the same cell.
const SPILL_0: usize = 0x08;
const SPILL_1: usize = 0x38;

const EPOCH: u32 = 3;

fn table() -> Arc<Table> {
    let table = Table::new();
    table.set_granule(false);
    Arc::new(table)
}

/// An entry each of whose parts identifies it.
fn entry(stack: u32, epoch: u32) -> Entry {
    Entry { size: u64::from(stack) * 100 + u64::from(epoch), stack, epoch }
}

fn whole(entry: Entry) -> bool {
    entry == self::entry(entry.stack, entry.epoch)
}

fn live(table: &Table, from: u32) -> Vec<Entry> {
    let mut all = Vec::new();
    table.scan(from, MAX_EPOCH, &mut |entry| all.push(entry));
    all.sort_by_key(|entry| entry.stack);
    all
}

/// Two threads map the same parts of an empty table. Each sees its own entry in a scan at once, and at the end both
/// entries are there.
fn two_threads_make_the_same_parts(addresses: [usize; 2]) {
    let table = table();
    let threads: Vec<_> = (1..3)
        .zip(addresses)
        .map(|(stack, address)| {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                assert_eq!(table.insert(address, entry(stack, EPOCH)), Ok(None));
                assert!(live(&table, EPOCH).contains(&entry(stack, EPOCH)), "a thread misses its own entry");
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(live(&table, 0), [entry(1, EPOCH), entry(2, EPOCH)]);
}

#[test]
fn leaf_made_by_two_threads() {
    check("leaf_made_by_two_threads", (1, 3), || two_threads_make_the_same_parts([SLOT_0, SLOT_1]));
}

#[test]
fn segment_made_by_two_threads() {
    check("segment_made_by_two_threads", (1, 3), || two_threads_make_the_same_parts([SPILL_0, SPILL_1]));
}

/// One entry stays, one is added and removed, one is added, while a scan runs. All are in one page or one probe chain.
/// The entry with stack `narrow` is one without a stack.
fn neighbours_during_a_scan([stays, goes, comes]: [usize; 3], narrow: Option<u32>) {
    let table = table();
    if let Some(stack) = narrow {
        table.set_no_stack(stack).unwrap();
    }
    table.insert(stays, entry(1, EPOCH)).unwrap();
    table.insert(goes, entry(2, EPOCH)).unwrap();
    let replaces = {
        let table = Arc::clone(&table);
        thread::spawn(move || {
            assert_eq!(table.remove(goes), Some(entry(2, EPOCH)));
            assert_eq!(table.insert(goes, entry(3, EPOCH)), Ok(None));
        })
    };
    let inserts = {
        let table = Arc::clone(&table);
        thread::spawn(move || {
            assert_eq!(table.insert(comes, entry(4, EPOCH)), Ok(None));
        })
    };
    let seen = live(&table, EPOCH);
    assert!(seen.iter().copied().all(whole), "torn: {seen:?}");
    assert!(seen.contains(&entry(1, EPOCH)), "missed: {seen:?}");
    replaces.join().unwrap();
    inserts.join().unwrap();
    assert_eq!(live(&table, EPOCH), [entry(1, EPOCH), entry(3, EPOCH), entry(4, EPOCH)]);
    for (address, stack) in [(stays, 1), (goes, 3), (comes, 4)] {
        assert_eq!(table.remove(address), Some(entry(stack, EPOCH)));
        assert_eq!(table.remove(address), None);
    }
}

#[test]
fn slots_during_a_scan() {
    check("slots_during_a_scan", (2, 3), || neighbours_during_a_scan([SLOT_0, SLOT_1, 0x20], None));
}

/// A block without a stack takes the address of a block with a stack.
#[test]
fn narrow_words_during_a_scan() {
    check("narrow_words_during_a_scan", (2, 3), || neighbours_during_a_scan([SLOT_0, SLOT_1, 0x20], Some(3)));
}

/// A block without a stack stays, and others are added next to it.
#[test]
fn words_beside_a_narrow_one_during_a_scan() {
    check("words_beside_a_narrow_one_during_a_scan", (2, 3), || {
        neighbours_during_a_scan([SLOT_0, SLOT_1, 0x20], Some(1));
    });
}

#[test]
fn spill_during_a_scan() {
    check("spill_during_a_scan", (1, 2), || neighbours_during_a_scan([SPILL_0, SPILL_1, 0x28], None));
}

/// The same cell gets the same key again: only its version shows a scan that it read two entries.
#[test]
fn a_cell_refilled_during_a_scan() {
    check("a_cell_refilled_during_a_scan", (3, 5), || {
        let table = table();
        table.insert(SPILL_0, entry(1, EPOCH)).unwrap();
        let refills = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                assert_eq!(table.remove(SPILL_0), Some(entry(1, EPOCH)));
                assert_eq!(table.insert(SPILL_0, entry(2, EPOCH)), Ok(None));
            })
        };
        let seen = live(&table, EPOCH);
        assert!(seen.iter().copied().all(whole), "torn: {seen:?}");
        refills.join().unwrap();
        assert_eq!(live(&table, EPOCH), [entry(2, EPOCH)]);
    });
}

/// A block is freed in one thread and at once allocated in another.
fn handover(address: usize, noted_in_time: bool, narrow: Option<u32>) {
    let table = table();
    if let Some(stack) = narrow {
        table.set_no_stack(stack).unwrap();
    }
    table.insert(address, entry(1, EPOCH)).unwrap();
    // The allocator's part between both threads: its own release and acquire.
    let freed = Arc::new(AtomicBool::new(false));
    let frees = {
        let (table, freed) = (Arc::clone(&table), Arc::clone(&freed));
        thread::spawn(move || {
            if !noted_in_time {
                freed.store(true, Ordering::Release);
            }
            assert_eq!(table.remove(address), Some(entry(1, EPOCH)));
            freed.store(true, Ordering::Release);
        })
    };
    let given_out = freed.load(Ordering::Acquire);
    if given_out {
        assert_eq!(table.insert(address, entry(2, EPOCH)), Ok(None));
    }
    frees.join().unwrap();
    let expected: &[Entry] = if given_out { &[entry(2, EPOCH)] } else { &[] };
    assert_eq!(live(&table, 0), expected);
}

#[test]
fn slot_handed_over() {
    check("slot_handed_over", (4, 8), || handover(SLOT_0, true, None));
}

/// A block moves from a thread that takes stacks to one that takes none, and back.
#[test]
fn slot_handed_over_between_both_kinds_of_words() {
    for narrow in [1, 2] {
        check("slot_handed_over_between_both_kinds_of_words", (4, 8), move || {
            handover(SLOT_0, true, Some(narrow));
        });
    }
}

#[test]
fn spill_cell_handed_over() {
    check("spill_cell_handed_over", (4, 8), || handover(SPILL_0, true, None));
}

/// The order in the hooks matters: recording a free after it happened loses the next owner of the block.
#[test]
#[should_panic]
fn slot_handed_over_before_it_was_noted() {
    check("slot_handed_over_before_it_was_noted", (4, 8), || handover(SLOT_0, false, None));
}

/// A thread that still uses the previous epoch does not hide a write of the present one, on a page's first use or
/// later.
fn stamps(used_before: bool) {
    let table = table();
    if used_before {
        table.insert(SLOT_0, entry(3, EPOCH - 2)).unwrap();
        table.remove(SLOT_0);
    }
    let threads: Vec<_> = [(SLOT_0, entry(1, EPOCH - 1)), (SLOT_1, entry(2, EPOCH))]
        .into_iter()
        .map(|(address, entry)| {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                assert_eq!(table.insert(address, entry), Ok(None));
                assert!(entry.epoch < EPOCH || live(&table, EPOCH) == [entry]);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(live(&table, EPOCH), [entry(2, EPOCH)]);
    assert_eq!(live(&table, 0).len(), 2);
}

#[test]
fn stamp_of_a_new_page() {
    check("stamp_of_a_new_page", (2, 4), || stamps(false));
}

#[test]
fn stamp_of_a_used_page() {
    check("stamp_of_a_used_page", (3, 5), || stamps(true));
}

/// Entries age while others are added and removed: each keeps its stack and size, and no new entry becomes ancient.
fn ageing(stays: usize, goes: usize) {
    const KEEP: u32 = 2;
    let table = table();
    table.insert(stays, entry(1, MAX_EPOCH)).unwrap();
    table.insert(goes, entry(2, MAX_EPOCH)).unwrap();
    let replaces = {
        let table = Arc::clone(&table);
        thread::spawn(move || {
            let removed = table.remove(goes).unwrap();
            assert_eq!((removed.stack, removed.size), (2, entry(2, MAX_EPOCH).size));
            assert_eq!(table.insert(goes, entry(3, KEEP)), Ok(None));
        })
    };
    table.age(KEEP);
    replaces.join().unwrap();
    let aged = Entry { epoch: ANCIENT, ..entry(1, MAX_EPOCH) };
    assert_eq!(live(&table, 0), [aged, entry(3, KEEP)]);
    assert_eq!(live(&table, KEEP), [entry(3, KEEP)]);
}

#[test]
fn slots_that_age() {
    check("slots_that_age", (3, 5), || ageing(SLOT_0, SLOT_1));
}

#[test]
fn spill_cells_that_age() {
    check("spill_cells_that_age", (3, 5), || ageing(SPILL_0, SPILL_1));
}

/// A scan that finds a stack id also finds the stack, although nothing else orders the two threads.
#[test]
fn a_scan_finds_the_stacks_of_what_it_sees() {
    check("a_scan_finds_the_stacks_of_what_it_sees", (3, 5), || {
        let (table, store) = (table(), Arc::new(StackStore::new()));
        let node = Node { parent: 0, generation: 1, pc: 0x1234 };
        // The leaf and the chunk exist already, so that their pointers do not order anything.
        let first = store.store(1, node).unwrap();
        table.insert(SLOT_1, Entry { size: 1, stack: first, epoch: EPOCH }).unwrap();
        let inserts = {
            let (table, store) = (Arc::clone(&table), Arc::clone(&store));
            thread::spawn(move || {
                let stack = store.store(u64::MAX, node).unwrap();
                table.insert(SLOT_0, Entry { size: 1, stack, epoch: EPOCH }).unwrap();
            })
        };
        for entry in live(&table, 0) {
            assert_eq!(store.node(entry.stack), Some(node));
        }
        inserts.join().unwrap();
    });
}
