//! What the shared structures are built from: atomics, mapped memory, sizes.
//!
//! In the shipped agent these are core's atomics and zeroed pages of the kernel. Under `--cfg loom`
//! (`tests/proofs/models`) they are those of the model checker, which tries every order of the
//! threads' steps and every value that a relaxed load may return. Sizes shrink there, so that a
//! model meets the end of each table. Nothing else differs: the source that ships is the one that
//! is checked.
//!
//! The model's atomics are no zeroed bytes, so a mapping is built there from [`Zeroed::zeroed`], by
//! the thread that maps. That is stricter than the kernel: a pointer to a mapping that reaches
//! another thread without release and acquire is an error.

use core::ptr;
#[cfg(not(loom))]
use core::ptr::NonNull;

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering, fence,
};
#[cfg(loom)]
mod model;
#[cfg(loom)]
pub use model::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering, fence, new_execution};
#[cfg(loom)]
pub(crate) use model::{map, pause, unmap};

/// A size as it ships, and as a model can fill it.
pub(crate) const fn sized<T: Copy>(shipped: T, modelled: T) -> T {
    if cfg!(loom) { modelled } else { shipped }
}

/// Lets another thread get on for a moment; `long`: also one that shares this processor.
#[cfg(not(loom))]
pub(crate) fn pause(long: bool) {
    if long {
        crate::sys::pause();
    } else {
        core::hint::spin_loop();
    }
}

/// How much of a mapping is used soon.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Use {
    /// Some of it: a page is there once it is touched.
    Sparse,
    /// All of it: all pages at once are cheaper than a page fault for each.
    Whole,
}

/// A type whose all-zero bytes are a valid value: its empty one.
///
/// # Safety
/// They are, in the shipped agent. The value is never dropped.
pub(crate) unsafe trait Zeroed: Sized {
    /// The same value where bytes cannot make it.
    #[cfg(loom)]
    fn zeroed() -> Self;
}

/// `new` for a type that lives in a static: all zero, so that it takes no room in the library's
/// file.
macro_rules! zero_constructor {
    ($(#[$doc:meta])*) => {
        $(#[$doc])*
        #[must_use]
        #[cfg(not(loom))]
        pub const fn new() -> Self {
            const fn zero<T: $crate::sync::Zeroed>() -> T {
                // SAFETY: promised by `Zeroed`.
                unsafe { core::mem::MaybeUninit::zeroed().assume_init() }
            }
            zero()
        }

        $(#[$doc])*
        #[must_use]
        #[cfg(loom)]
        pub fn new() -> Self {
            $crate::sync::Zeroed::zeroed()
        }
    };
}
pub(crate) use zero_constructor;

/// Loads the pointer, or maps `count` zeroed values and publishes them. `None`: no memory.
///
/// Two threads may both map: one mapping is published, the other one was never seen by anybody and
/// is given back.
#[inline(always)]
pub(crate) fn get_or_map<T: Zeroed>(cell: &AtomicPtr<T>, count: usize, used: Use) -> Option<*mut T> {
    let at = cell.load(Ordering::Acquire);
    if !at.is_null() {
        return Some(at);
    }
    let new = map::<(), T>(count, used)?;
    match cell.compare_exchange(ptr::null_mut(), new.as_ptr().cast(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(new.as_ptr().cast()),
        Err(other) => {
            // SAFETY: this mapping was never published.
            unsafe { unmap::<(), T>(new, count) };
            Some(other)
        }
    }
}

/// Bytes of an `H` and `count` values of `T` after it.
const fn bytes<H, T>(count: usize) -> Option<usize> {
    const { assert!(size_of::<H>().is_multiple_of(align_of::<T>()), "the values follow the header without a gap") };
    match count.checked_mul(size_of::<T>()) {
        Some(tail) => tail.checked_add(size_of::<H>()),
        None => None,
    }
}

/// Maps a zeroed `H` with `count` zeroed values of `T` after it.
#[cfg(not(loom))]
pub(crate) fn map<H: Zeroed, T: Zeroed>(count: usize, used: Use) -> Option<NonNull<H>> {
    let bytes = bytes::<H, T>(count)?;
    let at = match used {
        Use::Sparse => crate::sys::map(bytes),
        Use::Whole => crate::sys::map_populated(bytes),
    };
    at.map(NonNull::cast)
}

/// Gives back what [`map`] gave.
///
/// # Safety
/// Nobody may use it any more.
#[cfg(not(loom))]
pub(crate) unsafe fn unmap<H, T>(at: NonNull<H>, count: usize) {
    if let Some(bytes) = bytes::<H, T>(count) {
        // SAFETY: promised by the caller.
        unsafe { crate::sys::unmap(at.cast(), bytes) };
    }
}

// SAFETY: no bytes at all.
unsafe impl Zeroed for () {
    #[cfg(loom)]
    fn zeroed() {}
}

macro_rules! zeroed_atomics {
    ($($atomic:ty),*) => { $(
        // SAFETY: all-zero is 0, or false.
        unsafe impl Zeroed for $atomic {
            #[cfg(loom)]
            fn zeroed() -> Self {
                Self::new(Default::default())
            }
        }
    )* };
}
zeroed_atomics!(AtomicBool, AtomicU16, AtomicU32, AtomicU64);

// SAFETY: all-zero is null.
unsafe impl<T> Zeroed for AtomicPtr<T> {
    #[cfg(loom)]
    fn zeroed() -> Self {
        Self::new(ptr::null_mut())
    }
}

// SAFETY: as its elements.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {
    #[cfg(loom)]
    fn zeroed() -> Self {
        core::array::from_fn(|_| T::zeroed())
    }
}
