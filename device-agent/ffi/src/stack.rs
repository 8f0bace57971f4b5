//! The agent's own stack, for work that needs more room than a guest's stack may have: threads with 16 KiB, coroutines
//! and alternate signal stacks can all call `fork` and `_exit`. It is mapped for the call and unmapped after it.

use core::arch::naked_asm;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::calm::SignalsHeld;

const BYTES: usize = 256 << 10;
/// This much free space on the main stack is enough.
const ENOUGH: usize = 64 << 10;

static MAIN_TOP: AtomicUsize = AtomicUsize::new(0);
static MAIN_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Sets the position of the main thread's stack, so that work on it stays there.
pub fn set_main(top: usize, bytes: usize) {
    MAIN_TOP.store(top, Ordering::Relaxed);
    MAIN_BYTES.store(bytes, Ordering::Relaxed);
}

/// Runs `work` where there is room: on the main stack, otherwise on our own stack. Signals are held meanwhile, because
/// a signal handler of the guest (a garbage collector that stops the world) expects this thread's stack pointer inside
/// the thread's own stack.
pub fn with_room(mut work: impl FnMut()) {
    let mut work: &mut dyn FnMut() = &mut work;
    let here = ptr::from_ref(&work) as usize;
    let used = MAIN_TOP.load(Ordering::Relaxed).wrapping_sub(here);
    if used.saturating_add(ENOUGH) < MAIN_BYTES.load(Ordering::Relaxed) {
        return work();
    }
    let _held = SignalsHeld::new();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    // SAFETY: an anonymous mapping at an address of the kernel's choice.
    let stack =
        unsafe { libc::mmap(ptr::null_mut(), BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if stack == libc::MAP_FAILED {
        return work();
    }
    // SAFETY: the top of fresh memory, 16-aligned; `run` gets what it expects, alive until the call
    // is over.
    unsafe { call_on((stack as usize).wrapping_add(BYTES), run, (&raw mut work).cast()) };
    // SAFETY: nothing lies on it any more.
    unsafe { libc::munmap(stack, BYTES) };
}

extern "C" fn run(work: *mut c_void) {
    // SAFETY: `with_room` passes the address of such a reference.
    let work = unsafe { &mut *work.cast::<&mut dyn FnMut()>() };
    work();
}

/// Calls `function(data)` with the stack pointer at `top`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn call_on(top: usize, function: extern "C" fn(*mut c_void), data: *mut c_void) {
    naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        "mov sp, x0",
        "mov x0, x2",
        "blr x1",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        "ret",
    )
}

/// Calls `function(data)` with the stack pointer at `top`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn call_on(top: usize, function: extern "C" fn(*mut c_void), data: *mut c_void) {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_on_an_unknown_stack_runs_elsewhere_and_what_it_changes_stays() {
        let here = 0_u8;
        let (mut there, mut calls) = (0, 0);
        with_room(|| {
            let local = 0_u8;
            there = ptr::from_ref(&local) as usize;
            calls += 1;
        });
        assert_eq!(calls, 1);
        assert!(there.abs_diff(ptr::from_ref(&here) as usize) > BYTES, "it is another stack");
    }
}
