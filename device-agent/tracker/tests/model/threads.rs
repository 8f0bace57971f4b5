//! Thread states: each has one user at a time, no count is lost, and no block is counted as freed before it is counted
//! as allocated.

use std::sync::Arc;

use loom::thread;
use memgate_tracker::StackLayout;
use memgate_tracker::Tracker;
use memgate_tracker::capture::Registers;
use memgate_tracker::sync::{AtomicPtr, AtomicU64, Ordering};
use memgate_tracker::thread::{ThreadState, ThreadStates, bump};

use crate::check;

/// A call from code without unwind rules: a stack of one frame, cut.
pub(crate) const CALL: Registers = Registers { pc: 0x1000, sp: 0x10_0000, fp: 0 };

/// A tracker with the model's only stack in its store, and with two free states.
pub(crate) fn tracker() -> Arc<Tracker> {
    let tracker = Tracker::new();
    tracker.prepare(StackLayout::default(), None, false, || {});
    assert_ne!(tracker.stack_of(CALL), 0);
    Arc::new(tracker)
}

/// Checks that no other thread uses the state meanwhile.
fn alone(state: &ThreadState) {
    // Relaxed: only the list passes a state from thread to thread.
    assert_eq!(state.counters.unknown_frees.swap(1, Ordering::Relaxed), 0, "one state, two users");
    bump(&state.counters.allocations, 1);
    state.counters.unknown_frees.store(0, Ordering::Relaxed);
}

/// Takes a state and then further ones, like a signal handler in a hook.
fn descend(states: &ThreadStates, depth: u32) {
    let done = states.with(
        || {},
        |state, _| {
            alone(state);
            if depth > 1 {
                descend(states, depth - 1);
            }
        },
    );
    assert!(done.is_some());
}

/// Two states are in the free list, so that one can leave it and come back while a thread that takes one looks at the
/// other.
fn two_states() -> Arc<ThreadStates> {
    let states = Arc::new(ThreadStates::new());
    descend(&states, 2);
    states.thread_ends();
    states
}

/// Users take their states and end.
fn users(depths: &'static [u32]) {
    let states = two_states();
    let threads: Vec<_> = depths
        .iter()
        .map(|&depth| {
            let states = Arc::clone(&states);
            thread::spawn(move || {
                descend(&states, depth);
                states.thread_ends();
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let mut sum = 0;
    states.each(|state| sum += state.counters.allocations.load(Ordering::Relaxed));
    assert_eq!(sum, 2 + u64::from(depths.iter().sum::<u32>()));
}

#[test]
fn states_taken_and_given() {
    check("states_taken_and_given", (3, 4), || users(&[1, 2]));
}

#[test]
fn states_of_three_threads() {
    check("states_of_three_threads", (1, 2), || users(&[1, 1, 1]));
}

/// A state leaves the list and comes back while another thread is about to take it, and the state after it has left
/// permanently.
#[test]
fn state_that_comes_back() {
    check("state_that_comes_back", (2, 4), || {
        let states = two_states();
        let takers = [2, 1].map(|depth| {
            let states = Arc::clone(&states);
            thread::spawn(move || {
                descend(&states, depth);
                states.thread_ends();
            })
        });
        // Holds the next state until both others are gone.
        let holder = {
            let states = Arc::clone(&states);
            thread::spawn(move || {
                let done = states.with(
                    || {},
                    |state, _| {
                        assert_eq!(state.counters.unknown_frees.swap(1, Ordering::Relaxed), 0);
                        for taker in takers {
                            taker.join().unwrap();
                        }
                        state.counters.unknown_frees.store(0, Ordering::Relaxed);
                    },
                );
                assert!(done.is_some());
            })
        };
        holder.join().unwrap();
    });
}

/// The published counts of all threads add up to the totals.
#[test]
fn counters_published() {
    check("counters_published", (1, 2), || {
        let tracker = tracker();
        let words: Arc<[AtomicU64; 4]> = Arc::new(core::array::from_fn(|_| AtomicU64::new(0)));
        let place = Arc::new(AtomicPtr::new(words.as_ptr().cast_mut()));
        // SAFETY: place and words outlive every thread of the model.
        unsafe { tracker.publish_to(Arc::as_ptr(&place).cast_mut()) };
        let threads: Vec<_> = (1..3)
            .map(|i| {
                let tracker = Arc::clone(&tracker);
                thread::spawn(move || {
                    tracker.record_alloc(16 * i, i as u64, CALL);
                    tracker.record_free(16 * i);
                    tracker.thread_ends();
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let totals = tracker.totals();
        let published: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        assert_eq!(published, [2, 2, 3, 3]);
        assert_eq!(
            [totals.allocations, totals.frees, totals.allocated_bytes, totals.freed_bytes],
            [2, 2, 3, 3]
        );
    });
}

/// One thread allocates, another frees. A concurrent sum never sees the free alone. The thread that frees has the older
/// state, which a sum reaches later.
#[test]
fn totals_of_a_moment() {
    check("totals_of_a_moment", (2, 4), || {
        let tracker = tracker();
        let allocates = {
            let tracker = Arc::clone(&tracker);
            thread::spawn(move || tracker.record_alloc(0x10, 37, CALL))
        };
        let sums_up = {
            let tracker = Arc::clone(&tracker);
            thread::spawn(move || {
                let totals = tracker.totals();
                assert!(totals.frees <= totals.allocations, "{totals:?}");
                assert!(totals.freed_bytes <= totals.allocated_bytes, "{totals:?}");
            })
        };
        allocates.join().unwrap();
        assert!(tracker.record_free(0x10).is_some());
        sums_up.join().unwrap();
    });
}
