//! The agent's lock: it has one holder at a time, who sees everything the previous holder did. No thread sleeps while
//! the lock is free.

use std::sync::Arc;

use loom::thread;
use memgate_tracker::sync::{AtomicU32, Ordering};

use crate::check;
use crate::lock::RawLock;

fn holders(count: u32) {
    let shared = Arc::new((RawLock::new(), AtomicU32::new(0)));
    let hold = |shared: &(RawLock, AtomicU32)| {
        let (lock, value) = shared;
        lock.acquire();
        // In two relaxed steps: only the lock makes them atomic.
        value.store(value.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        lock.release();
    };
    let others: Vec<_> = (1..count)
        .map(|_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || hold(&shared))
        })
        .collect();
    hold(&shared);
    for other in others {
        other.join().unwrap();
    }
    assert_eq!(shared.1.load(Ordering::Relaxed), count);
}

#[test]
fn lock_of_two_threads() {
    check("lock_of_two_threads", (4, 8), || holders(2));
}

#[test]
fn lock_of_three_threads() {
    check("lock_of_three_threads", (2, 3), || holders(3));
}
