//! The model checker's side of [`super`]: atomics and mappings of one execution.
//!
//! Loom alone skips executions in which a thread reads a value before it writes it: it remembers one access of each
//! value, and the thread's own read hides the access of another thread (tokio-rs/loom#166, #392). It also lets a store
//! take effect before an earlier read-modify-write of another thread. So every operation here first takes a turn at a
//! counter next to its value, where no access hides another. Stores to one value take effect in the order in which the
//! model makes them.

use core::marker::PhantomData;
use core::ptr::NonNull;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::vec::Vec;

use loom::sync::atomic::AtomicU64 as Value;
pub use loom::sync::atomic::{Ordering, fence};

use super::{Use, Zeroed, bytes};

/// A type that fits into an atomic.
pub trait Word: Copy + Eq {
    /// Converts to a number.
    fn number(self) -> u64;
    /// Converts back from a number.
    fn of(number: u64) -> Self;
}

/// An atomic of the model, for every type.
#[derive(Debug)]
pub struct Atomic<T> {
    turn: Value,
    value: Value,
    word: PhantomData<fn() -> T>,
}

/// As core's.
pub type AtomicBool = Atomic<bool>;
/// As core's.
pub type AtomicU16 = Atomic<u16>;
/// As core's.
pub type AtomicU32 = Atomic<u32>;
/// As core's.
pub type AtomicU64 = Atomic<u64>;
/// As core's.
pub type AtomicPtr<T> = Atomic<*mut T>;

/// A value that no model stores.
const NOBODYS: u64 = 0x5a5a_0000_5a5a_0000;

impl<T: Word> Atomic<T> {
    /// A new atomic.
    pub fn new(value: T) -> Self {
        Self { turn: Value::new(0), value: Value::new(value.number()), word: PhantomData }
    }

    /// As core's.
    pub fn load(&self, order: Ordering) -> T {
        self.turn.swap(0, Ordering::Relaxed);
        T::of(self.value.load(order))
    }

    /// As core's.
    pub fn store(&self, value: T, order: Ordering) {
        self.at_once(|| {
            // This exchange always fails, so it changes nothing. Its only effect is to order this store after the
            // earlier ones.
            let seen = self.value.compare_exchange(NOBODYS, NOBODYS, Ordering::Relaxed, Ordering::Relaxed);
            assert!(seen.is_err());
            self.value.store(value.number(), order);
        });
    }

    /// As core's.
    pub fn swap(&self, value: T, order: Ordering) -> T {
        T::of(self.at_once(|| self.value.swap(value.number(), order)))
    }

    /// As core's.
    pub fn compare_exchange(&self, current: T, new: T, success: Ordering, failure: Ordering) -> Result<T, T> {
        let exchange = || self.value.compare_exchange(current.number(), new.number(), success, failure);
        self.at_once(exchange).map(T::of).map_err(T::of)
    }

    /// Like core's, but it fails only if the value differs.
    pub fn compare_exchange_weak(
        &self,
        current: T,
        new: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T> {
        self.compare_exchange(current, new, success, failure)
    }

    /// As core's.
    pub fn fetch_add(&self, by: T, order: Ordering) -> T {
        T::of(self.at_once(|| self.value.fetch_add(by.number(), order)))
    }

    /// As core's.
    pub fn fetch_sub(&self, by: T, order: Ordering) -> T {
        T::of(self.at_once(|| self.value.fetch_sub(by.number(), order)))
    }

    /// As core's.
    pub fn fetch_or(&self, bits: T, order: Ordering) -> T {
        T::of(self.at_once(|| self.value.fetch_or(bits.number(), order)))
    }

    /// As core's.
    pub fn fetch_and(&self, bits: T, order: Ordering) -> T {
        T::of(self.at_once(|| self.value.fetch_and(bits.number(), order)))
    }

    /// As core's.
    pub fn fetch_max(&self, value: T, order: Ordering) -> T {
        T::of(self.at_once(|| self.value.fetch_max(value.number(), order)))
    }

    /// Runs `operation` atomically: other threads run before or after it.
    fn at_once<R>(&self, operation: impl FnOnce() -> R) -> R {
        self.turn.swap(0, Ordering::Relaxed);
        loom::stop_exploring();
        let result = operation();
        loom::explore();
        result
    }
}

impl<T: Word + Default> Default for Atomic<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

macro_rules! words {
    ($($number:ty),*) => { $(
        impl Word for $number {
            fn number(self) -> u64 {
                u64::from(self)
            }
            fn of(number: u64) -> Self {
                number as Self
            }
        }
    )* };
}
words!(u16, u32, u64);

impl Word for bool {
    fn number(self) -> u64 {
        u64::from(self)
    }
    fn of(number: u64) -> Self {
        number != 0
    }
}

impl<T> Word for *mut T {
    fn number(self) -> u64 {
        self as u64
    }
    fn of(number: u64) -> Self {
        number as Self
    }
}

std::thread_local! {
    // All threads of a model run on one thread of the system.
    static MAPPED: RefCell<Vec<(*mut u8, Layout)>> = const { RefCell::new(Vec::new()) };
}

/// Frees the mappings of the previous execution. Called at the beginning of each execution.
pub fn new_execution() {
    for (at, layout) in MAPPED.take() {
        // SAFETY: allocated below with this layout; the execution that used it has ended.
        unsafe { dealloc(at, layout) };
    }
}

pub(crate) fn map<H: Zeroed, T: Zeroed>(count: usize, _used: Use) -> Option<NonNull<H>> {
    let layout = Layout::from_size_align(bytes::<H, T>(count)?, 64).ok()?;
    // SAFETY: no type that is mapped is empty.
    let Some(at) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
    MAPPED.with_borrow_mut(|mapped| mapped.push((at.as_ptr(), layout)));
    // SAFETY: the header lies at the beginning.
    unsafe { at.cast::<H>().write(H::zeroed()) };
    // SAFETY: the values lie after the header.
    let tail = unsafe { at.cast::<H>().add(1) }.cast::<T>();
    for i in 0..count {
        // SAFETY: `count` of them.
        let value = unsafe { tail.add(i) };
        // SAFETY: fresh memory.
        unsafe { value.write(T::zeroed()) };
    }
    Some(at.cast())
}

pub(crate) fn pause(_long: bool) {
    loom::thread::yield_now();
}

/// Does nothing: the memory stays until the execution ends. Later uses of the mapping show as values that are missing
/// elsewhere.
pub(crate) unsafe fn unmap<H, T>(_at: NonNull<H>, _count: usize) {}
