//! The hooks of the exported allocation functions, in a tracked process.
//!
//! Order: record after a real allocation, forget before a real free. `realloc` forgets, calls, then records, and undoes
//! the forgetting if the call failed. No function here allocates, locks or can panic.
#![expect(unsafe_code, reason = "the C allocation interface is made of raw pointers")]

use core::ffi::{c_int, c_void};

use memgate_session::recording::TRACKER;
use memgate_tracker::Removed;
use memgate_tracker::capture::Registers;

use super::next;

type Pointer = *mut c_void;

/// Records a block, see [`note`]: without a call while stacks are off.
#[inline(always)]
unsafe fn note_here(block: Pointer, bytes: usize, place: usize, fp: usize) {
    if !TRACKER.record_alloc_quickly(block as usize, bytes as u64) {
        // SAFETY: registers of the trampoline.
        unsafe { note(block, bytes, place, fp) };
    }
}

/// Records a block. `place`: the stack pointer, from which [`registers`] finds the return address: on x86-64 its value
/// at the call's first instruction, on arm64 its value with the trampoline's frame. `fp`: the frame pointer. All hooks
/// share one copy, so their own frames on the guest's stack stay small.
#[inline(never)]
unsafe fn note(block: Pointer, bytes: usize, place: usize, fp: usize) {
    // SAFETY: registers of the trampoline.
    let at = unsafe { registers(place, fp) };
    if !TRACKER.record_alloc_with_stack_quickly(block as usize, bytes as u64, at) {
        // A tail call with the same arguments in the same registers: this frame is removed first.
        // SAFETY: as above.
        unsafe { note_timed(block, bytes, place, fp) };
    }
}

#[cold]
#[inline(never)]
unsafe fn note_timed(block: Pointer, bytes: usize, place: usize, fp: usize) {
    // SAFETY: registers of the trampoline.
    let at = unsafe { registers(place, fp) };
    if let Some(timing) = TRACKER.begin_timing() {
        let (address, size) = (block as usize, bytes as u64);
        if TRACKER.record_alloc_with_stack_quickly(address, size, at)
            || TRACKER.record_alloc_quickly(address, size)
        {
            return timing.end();
        }
        timing.goes_the_long_way();
    }
    // A tail call: this frame is removed first.
    // SAFETY: as above.
    unsafe { note_slowly(block, bytes, place, fp) };
}

#[cold]
#[inline(never)]
unsafe fn note_slowly(block: Pointer, bytes: usize, place: usize, fp: usize) {
    // SAFETY: registers of the trampoline.
    TRACKER.record_unusual_alloc(block as usize, bytes as u64, unsafe { registers(place, fp) });
}

#[inline(always)]
unsafe fn registers(place: usize, fp: usize) -> Registers {
    const RETURN_AT: usize = if cfg!(target_arch = "aarch64") { 8 } else { 0 };
    let at = place.wrapping_add(RETURN_AT);
    // SAFETY: the return address lies there.
    let pc = unsafe { (at as *const usize).read() };
    Registers { pc, sp: at.wrapping_add(8), fp }
}

pub(crate) unsafe extern "C" fn malloc(bytes: usize, sp: usize, fp: usize) -> Pointer {
    // SAFETY: the caller's request.
    let block = unsafe { next::malloc(bytes) };
    if !block.is_null() {
        // SAFETY: registers of the trampoline.
        unsafe { note_here(block, bytes, sp, fp) };
    }
    block
}

pub(crate) unsafe extern "C" fn calloc(count: usize, bytes: usize, sp: usize, fp: usize) -> Pointer {
    // SAFETY: the caller's request.
    let block = unsafe { next::calloc(count, bytes) };
    if !block.is_null() {
        // The allocator has checked that the product fits.
        // SAFETY: registers of the trampoline.
        unsafe { note_here(block, count.wrapping_mul(bytes), sp, fp) };
    }
    block
}

/// Forgets a block. Its frame is removed before the allocator is called.
#[inline(never)]
fn forget(block: Pointer) -> Removed {
    TRACKER.record_free_quickly(block as usize).or_else(|| forget_slowly(block))
}

#[cold]
#[inline(never)]
fn forget_slowly(block: Pointer) -> Removed {
    TRACKER.record_free(block as usize)
}

/// Like [`note_here`], but its frame is removed before a stack is taken, because the frame of `realloc` is already on
/// the stack.
#[inline(never)]
unsafe fn note_moved(block: Pointer, bytes: usize, place: usize, fp: usize) {
    // SAFETY: registers of the trampoline.
    unsafe { note_here(block, bytes, place, fp) };
}

pub(crate) unsafe extern "C" fn realloc(block: Pointer, bytes: usize, sp: usize, fp: usize) -> Pointer {
    let removed = if block.is_null() { None } else { forget(block) };
    // SAFETY: the caller's request.
    let new = unsafe { next::realloc(block, bytes) };
    if !new.is_null() {
        // SAFETY: registers of the trampoline.
        unsafe { note_moved(new, bytes, sp, fp) };
    } else if bytes != 0 {
        TRACKER.restore(block as usize, removed);
    }
    new
}

pub(crate) unsafe extern "C" fn reallocarray(
    block: Pointer,
    count: usize,
    bytes: usize,
    sp: usize,
    fp: usize,
) -> Pointer {
    match count.checked_mul(bytes) {
        // SAFETY: as for realloc.
        Some(total) => refusing(unsafe { realloc(block, total, sp, fp) }, total),
        None => out_of_memory(),
    }
}

/// `reallocarray` in a process that is not tracked.
pub(crate) unsafe extern "C" fn plain_reallocarray(block: Pointer, count: usize, bytes: usize) -> Pointer {
    match count.checked_mul(bytes) {
        // SAFETY: the caller's request.
        Some(total) => refusing(unsafe { next::outer_realloc(block, total) }, total),
        None => out_of_memory(),
    }
}

/// Sets errno on failure: not every allocator's `realloc` does this where its `reallocarray` does.
fn refusing(block: Pointer, bytes: usize) -> Pointer {
    if block.is_null() && bytes != 0 { out_of_memory() } else { block }
}

fn out_of_memory() -> Pointer {
    memgate_tracker::sys::Errno::of(libc::ENOMEM).restore();
    core::ptr::null_mut()
}

pub(crate) unsafe extern "C" fn free(block: Pointer) {
    if TRACKER.record_free_quickly(block as usize).is_some() {
        // SAFETY: the caller's block.
        unsafe { next::free(block) };
    } else {
        // SAFETY: as above.
        unsafe { free_slowly(block) };
    }
}

/// A separate function, so that the quick path needs no stack.
#[cold]
#[inline(never)]
unsafe extern "C" fn free_slowly(block: Pointer) {
    let timing = TRACKER.begin_timing();
    if timing.is_none() || TRACKER.record_free_quickly(block as usize).is_none() {
        TRACKER.record_unusual_free(block as usize);
    }
    if let Some(timing) = timing {
        timing.end();
    }
    // SAFETY: the caller's block.
    unsafe { next::free(block) };
}

pub(crate) unsafe extern "C" fn memalign(align: usize, bytes: usize, sp: usize, fp: usize) -> Pointer {
    // SAFETY: the caller's request.
    let block = unsafe { next::memalign(align, bytes) };
    if !block.is_null() {
        // SAFETY: registers of the trampoline.
        unsafe { note_here(block, bytes, sp, fp) };
    }
    block
}

pub(crate) unsafe extern "C" fn aligned_alloc(align: usize, bytes: usize, sp: usize, fp: usize) -> Pointer {
    // SAFETY: the caller's request.
    let block = unsafe { next::aligned_alloc(align, bytes) };
    if !block.is_null() {
        // SAFETY: registers of the trampoline.
        unsafe { note_here(block, bytes, sp, fp) };
    }
    block
}

pub(crate) unsafe extern "C" fn posix_memalign(
    out: *mut Pointer,
    align: usize,
    bytes: usize,
    sp: usize,
    fp: usize,
) -> c_int {
    // SAFETY: the caller's request.
    let status = unsafe { next::posix_memalign(out, align, bytes) };
    if status == 0 {
        // SAFETY: after success the pointer is written.
        let block = unsafe { *out };
        if !block.is_null() {
            // SAFETY: registers of the trampoline.
            unsafe { note_here(block, bytes, sp, fp) };
        }
    }
    status
}

pub(crate) unsafe extern "C" fn valloc(bytes: usize, sp: usize, fp: usize) -> Pointer {
    // SAFETY: the caller's request.
    let block = unsafe { next::valloc(bytes) };
    if !block.is_null() {
        // SAFETY: registers of the trampoline.
        unsafe { note_here(block, bytes, sp, fp) };
    }
    block
}

pub(crate) unsafe extern "C" fn pvalloc(bytes: usize, sp: usize, fp: usize) -> Pointer {
    // SAFETY: the caller's request.
    let block = unsafe { next::pvalloc(bytes) };
    if !block.is_null() {
        // SAFETY: registers of the trampoline.
        unsafe { note_here(block, bytes, sp, fp) };
    }
    block
}
