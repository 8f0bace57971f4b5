//! The calls by which a guest gives up a right permanently: `prctl`, and `syscall`, which can request the same. On
//! Linux only.
//!
//! All other calls pass with unchanged registers and without our frame on the stack, so that `clone` and `vfork` by
//! `syscall` work as before.

use core::ffi::{c_int, c_long};
use core::ptr;

use memgate_session::{self as session, Step};
use memgate_tracker::sys::{Errno, readable};

use super::Pointer;
use super::function::{Function, exported, finding, functions, no_descriptor as no_call};

#[cfg_attr(target_arch = "x86_64", path = "x86_64/controls.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64/controls.rs")]
mod machine;

functions! { prctl no_call syscall no_call }

exported! { "memgate_controls": prctl }
exported! { "memgate_calls": syscall }

pub(super) fn bind() {
    ALL.iter().for_each(|function| function.bind_early());
}

extern "C" fn controls(option: c_int, argument: usize, program: usize) {
    const STRICT: usize = libc::SECCOMP_MODE_STRICT as usize;
    const FILTER: usize = libc::SECCOMP_MODE_FILTER as usize;
    const FORBIDDEN: usize = libc::PR_TSC_SIGSEGV as usize;
    let errno = Errno::save();
    match (option, argument) {
        (libc::PR_SET_TSC, FORBIDDEN) => session::gives_up_counter(),
        (libc::PR_SET_SECCOMP, STRICT) => session::goes_strict(),
        (libc::PR_SET_SECCOMP, FILTER) => filters(program),
        _ => {}
    }
    errno.restore();
}

/// `syscall(SYS_prctl, option, argument, …)`, `syscall(SYS_seccomp, operation, flags, …)`.
extern "C" fn calls(number: c_long, first: c_int, second: usize, third: usize) {
    const STRICT: c_int = libc::SECCOMP_SET_MODE_STRICT.cast_signed();
    const FILTER: c_int = libc::SECCOMP_SET_MODE_FILTER.cast_signed();
    match (number, first) {
        (libc::SYS_prctl, option) => controls(option, second, third),
        (libc::SYS_seccomp, STRICT) => controls(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT as usize, 0),
        (libc::SYS_seccomp, FILTER) => {
            controls(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER as usize, third)
        }
        _ => {}
    }
}

/// A filter of system calls, in the kernel's form (`struct sock_fprog`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Program {
    length: u16,
    steps: *const Step,
}

fn filters(program: usize) {
    // The kernel refuses a program that cannot be read.
    if !all_readable(program, size_of::<Program>()) {
        return;
    }
    // SAFETY: readable, and any bits are such a value.
    let Program { length, steps } =
        unsafe { ptr::with_exposed_provenance::<Program>(program).read_unaligned() };
    let length = usize::from(length);
    if length <= session::LONGEST && all_readable(steps.addr(), length.saturating_mul(size_of::<Step>())) {
        // SAFETY: readable up to `length`, which is never requested, and any bits are such a value.
        session::filters(length, |at| unsafe { steps.wrapping_add(at).read_unaligned() });
    }
}

/// Are all of these bytes readable?
fn all_readable(start: usize, bytes: usize) -> bool {
    const PAGE: usize = 4096;
    let Some(end) = start.checked_add(bytes) else { return false };
    (start & !(PAGE - 1)..end).step_by(PAGE).all(readable)
}
