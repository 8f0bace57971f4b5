//! The agent's own heap. It uses anonymous mappings and never the guest's `malloc`, so that the agent's memory is not
//! counted and does not disturb the guest.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use dlmalloc::Dlmalloc;

use crate::lock::RawLock;

static MAPPED: AtomicU64 = AtomicU64::new(0);

/// Number of bytes that the heap has mapped.
#[must_use]
pub fn mapped_bytes() -> u64 {
    MAPPED.load(Ordering::Relaxed)
}

/// Pages directly from the kernel. dlmalloc's own global variant has an empty back end on Android, hence this one.
struct Pages;

// SAFETY: `alloc` returns fresh private mappings; unsupported requests are declined.
unsafe impl dlmalloc::Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let at =
            unsafe { libc::mmap(ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return (ptr::null_mut(), 0, 0);
        }
        MAPPED.fetch_add(size as u64, Ordering::Relaxed);
        (at.cast(), size, 0)
    }
    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        ptr::null_mut()
    }
    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }
    fn free(&self, at: *mut u8, size: usize) -> bool {
        // SAFETY: dlmalloc gives back whole mappings it got from `alloc`.
        let freed = unsafe { libc::munmap(at.cast(), size) } == 0;
        if freed {
            MAPPED.fetch_sub(size as u64, Ordering::Relaxed);
        }
        freed
    }
    fn can_release_part(&self, _: u32) -> bool {
        false
    }
    fn allocates_zeros(&self) -> bool {
        true
    }
    fn page_size(&self) -> usize {
        4096
    }
}

/// From this size on, a block has its own mapping, which is unmapped with the block. For smaller blocks the heap keeps
/// what it has mapped.
const LARGE: usize = 8 << 20;

fn is_large(layout: Layout) -> bool {
    layout.size() >= LARGE && layout.align() <= dlmalloc::Allocator::page_size(&Pages)
}

/// The agent's heap.
pub static HEAP: Heap = Heap::new();

/// [`HEAP`] as the agent's `#[global_allocator]`.
pub struct Global;

// SAFETY: the heap's own implementation.
unsafe impl GlobalAlloc for Global {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { HEAP.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { HEAP.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { HEAP.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { HEAP.realloc(at, layout, new_size) }
    }
}

/// A heap.
pub struct Heap {
    lock: RawLock,
    inner: UnsafeCell<Dlmalloc<Pages>>,
}

// SAFETY: `inner` is only used under `lock`.
unsafe impl Sync for Heap {}

impl Heap {
    /// An empty heap.
    #[must_use]
    pub const fn new() -> Self {
        Self { lock: RawLock::new(), inner: UnsafeCell::new(Dlmalloc::new_with_allocator(Pages)) }
    }

    /// The heap's lock, held across `fork` so that the child finds the heap whole.
    #[must_use]
    pub const fn lock(&self) -> &RawLock {
        &self.lock
    }

    /// Makes sure that `bytes` more are available, in smaller pieces. Returns false if the system gives no more memory;
    /// an allocation would then end the process.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.locked(|heap| {
            // SAFETY: a plain request.
            let at = unsafe { heap.malloc(bytes, 16) };
            if at.is_null() {
                return false;
            }
            // SAFETY: just allocated with this size and alignment. The heap keeps what it has
            // mapped.
            unsafe { heap.free(at, bytes, 16) };
            true
        })
    }

    fn locked<R>(&self, work: impl FnOnce(&mut Dlmalloc<Pages>) -> R) -> R {
        self.lock.acquire();
        // SAFETY: the lock is held.
        let result = work(unsafe { &mut *self.inner.get() });
        self.lock.release();
        result
    }
}

impl Default for Heap {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: dlmalloc keeps the contract; calls are serialised.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return dlmalloc::Allocator::alloc(&Pages, layout.size()).0;
        }
        // SAFETY: layouts of Rust are valid.
        self.locked(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return dlmalloc::Allocator::alloc(&Pages, layout.size()).0;
        }
        // SAFETY: as above.
        self.locked(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if is_large(layout) {
            // If unmapping fails, the memory stays mapped and counted.
            let _stays = dlmalloc::Allocator::free(&Pages, at, layout.size());
            return;
        }
        // SAFETY: `at` came from this heap with this layout.
        self.locked(|heap| unsafe { heap.free(at, layout.size(), layout.align()) });
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller has checked the size.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if is_large(layout) || is_large(new_layout) {
            // SAFETY: a valid layout.
            let new = unsafe { self.alloc(new_layout) };
            if !new.is_null() {
                // SAFETY: both blocks have this size, and a new block overlaps no other.
                unsafe { ptr::copy_nonoverlapping(at, new, layout.size().min(new_size)) };
                // SAFETY: `at` came from this heap with this layout.
                unsafe { self.dealloc(at, layout) };
            }
            return new;
        }
        // SAFETY: `at` came from this heap with this layout.
        self.locked(|heap| unsafe { heap.realloc(at, layout.size(), layout.align(), new_size) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_large_block_keeps_its_content_as_it_grows_and_shrinks_and_the_system_gets_it_back() {
        let heap = Heap::new();
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        let (small, large, larger) = (1000, LARGE, 3 * LARGE + 1);
        let content: Vec<u8> = (0..=250).cycle().take(small).collect();
        // SAFETY: a size above 0.
        let mut at = unsafe { heap.alloc_zeroed(layout(small)) };
        // SAFETY: both have this size.
        unsafe { ptr::copy_nonoverlapping(content.as_ptr(), at, small) };
        let before = mapped_bytes();
        for (from, to, mapped) in
            [(small, large, large), (large, larger, larger), (larger, large, large), (large, small, 0)]
        {
            // SAFETY: `at` has this layout.
            at = unsafe { heap.realloc(at, layout(from), to) };
            assert_eq!(mapped_bytes() - before, mapped as u64, "{from} to {to}");
            // SAFETY: the block is no smaller.
            assert_eq!(unsafe { core::slice::from_raw_parts(at, small) }, content);
        }
        // SAFETY: `at` has this layout.
        unsafe { heap.dealloc(at, layout(small)) };
        // SAFETY: a size above 0.
        assert!(unsafe { heap.alloc(layout(1 << 50)) }.is_null(), "no system has so much");
    }
}
