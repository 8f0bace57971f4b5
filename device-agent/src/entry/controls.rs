//! The calls by which a guest gives something up for good: `prctl`, and `syscall`, with which the
//! same can be asked for. On Linux only.
//!
//! All others pass with their registers as they came and no frame of ours on the stack, so that
//! `clone` and `vfork` by `syscall` work as before.

use core::ffi::{c_int, c_long};

use memgate_session as session;
use memgate_tracker::sys::Errno;

use super::Pointer;
use super::function::{Function, exported, finding, functions, no_descriptor as no_call};

#[cfg_attr(target_arch = "x86_64", path = "x86_64/controls.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64/controls.rs")]
mod machine;

functions! { prctl no_call syscall no_call }

exported! { "memgate_controls": prctl }
exported! { "memgate_calls": syscall }

/// Finds both when the agent is loaded: they are called in signal handlers and between `vfork` and
/// `exec`, where nothing can be looked for.
pub(crate) fn bind_controls() {
    for function in ALL {
        function.bind();
    }
}

extern "C" fn controls(option: c_int, argument: usize) {
    const STRICT: usize = libc::SECCOMP_MODE_STRICT as usize;
    const FORBIDDEN: usize = libc::PR_TSC_SIGSEGV as usize;
    let errno = Errno::save();
    match (option, argument) {
        (libc::PR_SET_TSC, FORBIDDEN) => session::gives_up_counter(),
        (libc::PR_SET_SECCOMP, STRICT) => session::gives_up_system_calls(),
        _ => {}
    }
    errno.restore();
}

/// `syscall(SYS_prctl, option, argument)`, `syscall(SYS_seccomp, operation, …)`.
extern "C" fn calls(number: c_long, first: c_int, second: usize) {
    const STRICT: c_int = libc::SECCOMP_SET_MODE_STRICT.cast_signed();
    match (number, first) {
        (libc::SYS_prctl, option) => controls(option, second),
        (libc::SYS_seccomp, STRICT) => controls(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT as usize),
        _ => {}
    }
}
