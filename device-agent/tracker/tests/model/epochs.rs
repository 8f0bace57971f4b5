//! Epochs: if a boundary gets the answer «nothing is alive», this is correct for everything recorded before it.

use std::sync::Arc;

use loom::thread;
use memgate_tracker::Tracker;
use memgate_tracker::sync::{AtomicBool, Ordering};
use memgate_tracker::table::{FIRST_EPOCH, MAX_EPOCH};

use crate::check;
use crate::threads::{CALL, tracker};

const LEAK: usize = 0x00;
const BLOCK: usize = 0x10;
const OLD: usize = 0x20;

fn survivors(tracker: &Tracker, from: u32) -> Vec<u64> {
    let mut sizes = Vec::new();
    tracker.scan(from, &mut |entry| sizes.push(entry.size));
    sizes.sort_unstable();
    sizes
}

/// A leak, then a block that moves from its thread to another one. That thread frees the block while the boundary adds
/// up the counts. The free must not cancel the leak. The thread that frees has the older state, which a sum reaches
/// later.
#[test]
fn a_leak_beside_a_block_in_flight() {
    check("a_leak_beside_a_block_in_flight", (2, 3), || {
        let tracker = tracker();
        let window = tracker.begin_epoch();
        let leaked = Arc::new(AtomicBool::new(false));
        let allocates = {
            let (tracker, leaked) = (Arc::clone(&tracker), Arc::clone(&leaked));
            thread::spawn(move || {
                tracker.record_alloc(LEAK, 37, CALL);
                leaked.store(true, Ordering::Release);
                tracker.record_alloc(BLOCK, 41, CALL);
            })
        };
        let boundary = {
            let tracker = Arc::clone(&tracker);
            thread::spawn(move || {
                if leaked.load(Ordering::Acquire) {
                    assert_ne!(tracker.alive_since(window), Some(0), "the leak is missed");
                    assert!(survivors(&tracker, window).contains(&37));
                }
            })
        };
        allocates.join().unwrap();
        assert!(tracker.record_free(BLOCK).is_some());
        boundary.join().unwrap();
    });
}

/// A window begins while another thread allocates. Allocations after the thread has seen the window belong to it, and
/// all allocations of the window are counted and found.
#[test]
fn a_window_that_begins_during_an_allocation() {
    check("a_window_that_begins_during_an_allocation", (2, 3), || {
        let tracker = tracker();
        let open = Arc::new(AtomicBool::new(false));
        let allocates = {
            let (tracker, open) = (Arc::clone(&tracker), Arc::clone(&open));
            thread::spawn(move || {
                tracker.record_alloc(LEAK, 37, CALL);
                let inside = open.load(Ordering::Acquire);
                tracker.record_alloc(BLOCK, 41, CALL);
                inside
            })
        };
        let window = tracker.begin_epoch();
        open.store(true, Ordering::Release);
        let inside = allocates.join().unwrap();
        let found = survivors(&tracker, window);
        assert!(!inside || found.contains(&41), "{found:?}");
        assert_eq!(tracker.alive_since(window), Some(found.len() as u64));
        assert_eq!(survivors(&tracker, 0), [37, 41]);
    });
}

/// A thread frees with the count of an epoch that is long over. The free must not cancel a leak of a later epoch in the
/// same place of the ring.
#[test]
fn a_late_free_of_an_old_epoch() {
    check("a_late_free_of_an_old_epoch", (2, 3), || {
        let tracker = tracker();
        tracker.record_alloc(BLOCK, 41, CALL);
        let frees = {
            let tracker = Arc::clone(&tracker);
            thread::spawn(move || {
                tracker.record_free(BLOCK);
            })
        };
        // As many as the places in a model's ring.
        let window = (0..4).map(|_| tracker.begin_epoch()).last().unwrap();
        tracker.record_alloc(LEAK, 37, CALL);
        assert_ne!(tracker.alive_since(window), Some(0));
        frees.join().unwrap();
        assert_eq!((tracker.alive_since(window), survivors(&tracker, window)), (Some(1), vec![37]));
    });
}

/// The count restarts while another thread allocates and frees: nothing is lost, and the new window holds only its own
/// allocations.
#[test]
fn a_count_that_starts_again() {
    check("a_count_that_starts_again", (2, 3), || {
        let tracker = tracker();
        while tracker.begin_epoch() != MAX_EPOCH {}
        tracker.record_alloc(BLOCK, 41, CALL);
        tracker.record_alloc(OLD, 47, CALL);
        let other = {
            let tracker = Arc::clone(&tracker);
            thread::spawn(move || {
                assert_eq!(tracker.record_free(BLOCK).map(|entry| entry.size), Some(41));
                tracker.record_alloc(BLOCK, 43, CALL);
            })
        };
        assert_eq!(tracker.begin_epoch(), FIRST_EPOCH);
        other.join().unwrap();
        let window = tracker.begin_epoch();
        tracker.record_alloc(LEAK, 37, CALL);
        assert_eq!((tracker.alive_since(window), survivors(&tracker, window)), (Some(1), vec![37]));
        assert_eq!(survivors(&tracker, 0), [37, 43, 47]);
        while tracker.begin_epoch() != MAX_EPOCH {}
        assert!(!survivors(&tracker, MAX_EPOCH).contains(&47), "the epoch of the same number is another one");
    });
}
