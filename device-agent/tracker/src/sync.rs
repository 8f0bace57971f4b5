//! Building blocks of the shared structures: atomics, mapped memory, sizes.
//!
//! In the shipped agent these are core's atomics and zeroed pages from the kernel. Under `--cfg loom`
//! (`tests/proofs/models`) they are the model checker's types. The model checker tries every order of the threads'
//! steps and every value that a relaxed load may return. Sizes are smaller there, so that a model reaches the end of
//! each table. Nothing else differs: the shipped source is the checked source.
//!
//! The model's atomics cannot be made from zeroed bytes. So the thread that maps builds a mapping from
//! [`Zeroed::zeroed`]. That is stricter than the kernel: if a pointer to a mapping reaches another thread without
//! release and acquire, the model reports an error.

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

/// The shipped size, or the size that a model can fill.
pub(crate) const fn sized<T: Copy>(shipped: T, modelled: T) -> T {
    if cfg!(loom) { modelled } else { shipped }
}

/// Lets another thread run for a moment. `long`: also a thread that shares this processor.
#[cfg(not(loom))]
pub(crate) fn pause(long: bool) {
    if long {
        crate::sys::pause();
    } else {
        core::hint::spin_loop();
    }
}

/// How much of a mapping will be used soon.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Use {
    /// Parts of it: a page is allocated when it is touched.
    Sparse,
    /// All of it: allocating all pages at once is cheaper than one page fault for each.
    Whole,
}

/// A type whose all-zero bytes are a valid, empty value.
///
/// # Safety
/// All-zero bytes are a valid value in the shipped agent. The value is never dropped.
pub(crate) unsafe trait Zeroed: Sized {
    /// The same value for a type that cannot be made from zeroed bytes.
    #[cfg(loom)]
    fn zeroed() -> Self;
}

/// `new` for a type that lives in a static. The value is all zero, so that the static takes no room in the library's
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
/// Two threads may both map: one mapping is published. The other was never visible to any thread and is unmapped.
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

/// Size in bytes of an `H` followed by `count` values of `T`.
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

/// Unmaps a mapping of [`map`].
///
/// # Safety
/// The mapping must not be used any more.
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

// SAFETY: all-zero is valid for each element.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {
    #[cfg(loom)]
    fn zeroed() -> Self {
        core::array::from_fn(|_| T::zeroed())
    }
}
