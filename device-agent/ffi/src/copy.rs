//! Makes a copy of the process that does not run, so that its memory can be read from outside.
//!
//! Data flow: `clone` without flags, like `fork`, but without the C library, so that no fork handler of the guest runs
//! → the child closes its descriptors, sleeps, and ends. The reader ends it earlier.
//!
//! Effects on the guest:
//! - no SIGCHLD, and no result of `wait`: a child whose end sends no signal is visible only to a wait for clones
//!   (`__WCLONE`, `__WALL`);
//! - no signal handler in the child, because all signals are blocked in it; no exit handler, because it ends by the
//!   system call; no lock and no allocation, because it makes only four system calls;
//! - no pipe that the child keeps open: it closes its own descriptors first.

use core::arch::asm;
use core::ptr;
use core::time::Duration;

use crate::calm::SignalsHeld;
use crate::process::monotonic_ns;

/// Number of callee-saved registers.
const KEPT: usize = 12;
/// `close_range`, since Linux 5.9: the same number on every machine.
const CLOSE_RANGE: libc::c_long = 436;

/// The result of making a copy, in the original process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Copied {
    /// Its process id; 0: there is none.
    pub pid: u32,
    /// Error code if there is none.
    pub error: i32,
    /// Time it took to make the copy.
    pub took_ns: u64,
    /// Stack pointer of the thread that made the copy. The thread's callee-saved registers are stored above it.
    pub stack_pointer: u64,
}

impl Copied {
    /// No copy was made, because it would be useless.
    #[must_use]
    pub fn refused() -> Self {
        Self { error: libc::EOPNOTSUPP, ..Self::default() }
    }
}

/// Copies the process. The copy ends by itself after `limit`.
#[inline(never)]
#[must_use]
pub fn make(limit: Duration) -> Copied {
    let kept = kept_registers();
    let kept = core::hint::black_box(&kept);
    let _held = SignalsHeld::new();
    let began = monotonic_ns();
    let nothing = ptr::null::<u8>();
    // SAFETY: no flags: the child has its own memory and continues after this call, as after a fork. Below it makes
    // only system calls.
    let pid = unsafe { libc::syscall(libc::SYS_clone, 0, nothing, nothing, nothing, nothing) };
    if pid == 0 {
        stand_still(limit);
    }
    let took_ns = monotonic_ns().saturating_sub(began);
    let error = if pid < 0 { std::io::Error::last_os_error().raw_os_error().unwrap_or(0) } else { 0 };
    let stack_pointer = stack_pointer().min(ptr::from_ref(kept) as u64);
    Copied { pid: u32::try_from(pid).unwrap_or(0), error, took_ns, stack_pointer }
}

/// Body of the copy.
fn stand_still(limit: Duration) -> ! {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(0),
        tv_nsec: limit.subsec_nanos().into(),
    };
    let nothing = ptr::null::<u8>();
    // SAFETY: the name is a terminated string of at most 16 bytes; it is this process's alone.
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, c"memgate copy".as_ptr(), 0, 0, 0) };
    // SAFETY: its own table of descriptors. An older kernel refuses the call; the descriptors are then closed when the
    // copy ends.
    unsafe { libc::syscall(CLOSE_RANGE, 0, u32::MAX, 0) };
    // SAFETY: no descriptors; reads the time.
    unsafe { libc::syscall(libc::SYS_ppoll, nothing, 0, &raw const time, nothing, 0) };
    loop {
        // SAFETY: does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, 0) };
    }
}

/// The values of the callee-saved registers.
#[inline(always)]
fn kept_registers() -> [u64; KEPT] {
    let mut kept = [0_u64; KEPT];
    let to = kept.as_mut_ptr();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: stores six words into the array.
    unsafe {
        asm!(
            "mov [{to}], rbx", "mov [{to} + 8], rbp", "mov [{to} + 16], r12", "mov [{to} + 24], r13",
            "mov [{to} + 32], r14", "mov [{to} + 40], r15",
            to = in(reg) to, options(nostack, preserves_flags)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: stores twelve words into the array.
    unsafe {
        asm!(
            "stp x19, x20, [{to}]", "stp x21, x22, [{to}, 16]", "stp x23, x24, [{to}, 32]",
            "stp x25, x26, [{to}, 48]", "stp x27, x28, [{to}, 64]", "stp x29, x30, [{to}, 80]",
            to = in(reg) to, options(nostack, preserves_flags)
        );
    }
    kept
}

#[inline(always)]
fn stack_pointer() -> u64 {
    let at: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the register.
    unsafe {
        asm!("mov {}, rsp", out(reg) at, options(nomem, nostack, preserves_flags))
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads the register.
    unsafe {
        asm!("mov {}, sp", out(reg) at, options(nomem, nostack, preserves_flags))
    };
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_no_child_to_wait_for_and_ends_by_itself() {
        let copied = make(Duration::from_millis(20));
        assert!(copied.pid > 0 && copied.stack_pointer > 0, "{copied:?}");
        let pid = copied.pid.cast_signed();
        // SAFETY: only a query; no status is written.
        let seen = unsafe { libc::waitpid(pid, ptr::null_mut(), libc::WNOHANG) };
        assert_eq!((seen, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ECHILD)));
        // SAFETY: waits for its end.
        let ended = unsafe { libc::waitpid(pid, ptr::null_mut(), libc::__WALL) };
        assert_eq!(ended, pid);
    }
}
