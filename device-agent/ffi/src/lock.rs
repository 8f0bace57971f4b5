//! A futex lock without thread-local storage, poisoning or allocation. It can be held across `fork`.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, Ordering};

// A model (device-agent/tracker/tests/model) compiles this file with its own atomics and futexes.
#[cfg(loom)]
use memgate_tracker::sync::{AtomicU32, Ordering};

use crate::shared::{futex_wait, futex_wake};

/// The bare lock. 0: free, 1: held, 2: held with waiters.
pub struct RawLock(AtomicU32);

impl RawLock {
    /// A free lock.
    #[must_use]
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// A free lock.
    #[must_use]
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Waits for the lock and takes it.
    pub fn acquire(&self) {
        if self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        while self.0.swap(2, Ordering::Acquire) != 0 {
            futex_wait(&self.0, 2, None);
        }
    }

    /// Takes the lock if it is free.
    pub fn try_acquire(&self) -> bool {
        self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits until the lock is free, at most for `limit`, without taking it. May return earlier.
    #[cfg(not(loom))]
    pub fn await_release(&self, limit: core::time::Duration) {
        let awaited = self.0.compare_exchange(1, 2, Ordering::Acquire, Ordering::Acquire);
        if awaited != Err(0) {
            futex_wait(&self.0, 2, Some(limit));
        }
    }

    /// Is a thread waiting for the lock?
    pub fn is_awaited(&self) -> bool {
        self.0.load(Ordering::Acquire) == 2
    }

    /// Is the lock held?
    pub fn is_held(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Releases the lock.
    pub fn release(&self) {
        if self.0.swap(0, Ordering::Release) == 2 {
            futex_wake(&self.0);
        }
    }
}

impl Default for RawLock {
    fn default() -> Self {
        Self::new()
    }
}

/// A value protected by a [`RawLock`].
pub struct Lock<T> {
    raw: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through the lock.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A lock around `value`.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self { raw: RawLock::new(), value: UnsafeCell::new(value) }
    }

    /// Waits for the value.
    pub fn lock(&self) -> Guard<'_, T> {
        self.raw.acquire();
        Guard(self)
    }

    /// The value, if the lock is free.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.raw.try_acquire().then(|| Guard(self))
    }

    /// The bare lock, for `fork`.
    pub const fn raw(&self) -> &RawLock {
        &self.raw
    }
}

/// The locked value.
pub struct Guard<'a, T>(&'a Lock<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.raw.release();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_is_not_waited_for_by_who_only_tries() {
        static VALUE: Lock<u32> = Lock::new(7);
        let held = VALUE.try_lock();
        assert_eq!(held.as_deref(), Some(&7));
        assert!(VALUE.try_lock().is_none());
        drop(held);
        assert!(VALUE.try_lock().is_some());
    }

    #[test]
    fn increments_under_the_lock_are_not_lost() {
        static COUNT: Lock<u64> = Lock::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..50_000 {
                        *COUNT.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*COUNT.lock(), 200_000);
    }
}
