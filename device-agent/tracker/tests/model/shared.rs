//! Futexes for the agent's lock (`memgate_ffi::lock`), which imports them under this name.

use std::time::Duration;

use loom::sync::{Condvar, Mutex};
use memgate_tracker::sync::{AtomicU32, Ordering};

loom::lazy_static! {
    static ref KERNEL: Mutex<()> = Mutex::new(());
    static ref WOKEN: Condvar = Condvar::new();
}

pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    assert_eq!(timeout, None);
    let kernel = KERNEL.lock().unwrap();
    if word.load(Ordering::Relaxed) == expected {
        drop(WOKEN.wait(kernel).unwrap());
    }
}

pub(crate) fn futex_wake(_word: &AtomicU32) {
    let _kernel = KERNEL.lock().unwrap();
    WOKEN.notify_all();
}
