//! A copy of the process that stands still, for whoever reads its memory from outside.
//!
//! Data flow: `clone` without flags, as `fork` makes its child but past the C library, so that no
//! handler of the guest's runs → the child closes its descriptors, sleeps, and ends; whoever reads
//! it ends it earlier.
//!
//! What the guest sees of it:
//! - no SIGCHLD, and nothing in `wait`: a child whose end sends no signal is waited for by those who
//!   ask for clones (`__WCLONE`, `__WALL`) alone;
//! - no handler of signals in the child, because all signals are blocked in it; no exit handler,
//!   because it ends by the system call; no lock and no allocation, because it makes four system
//!   calls and nothing else;
//! - no pipe that stays open for its sake: it closes its own descriptors first.

use core::arch::asm;
use core::ptr;
use core::time::Duration;

use crate::calm::SignalsHeld;
use crate::process::monotonic_ns;

/// Registers that a function keeps for its caller.
const KEPT: usize = 12;
/// `close_range`, since Linux 5.9: the same number on every machine.
const CLOSE_RANGE: libc::c_long = 436;

/// The copy, as the process that was copied knows it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Copied {
    /// Its process id; 0: there is none.
    pub pid: u32,
    /// Why there is none.
    pub error: i32,
    /// How long making it took.
    pub took_ns: u64,
    /// Stack pointer of the thread that made it. What the thread had in registers that are kept
    /// across calls lies above.
    pub stack_pointer: u64,
}

impl Copied {
    /// None was made, because it would be of no use.
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
    // SAFETY: no flags: the child has memory of its own and goes on behind this call, as after a
    // fork. Below it makes system calls alone.
    let pid = unsafe { libc::syscall(libc::SYS_clone, 0, nothing, nothing, nothing, nothing) };
    if pid == 0 {
        stand_still(limit);
    }
    let took_ns = monotonic_ns().saturating_sub(began);
    let error = if pid < 0 { std::io::Error::last_os_error().raw_os_error().unwrap_or(0) } else { 0 };
    let stack_pointer = stack_pointer().min(ptr::from_ref(kept) as u64);
    Copied { pid: u32::try_from(pid).unwrap_or(0), error, took_ns, stack_pointer }
}

/// What the copy does.
fn stand_still(limit: Duration) -> ! {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(0),
        tv_nsec: limit.subsec_nanos().into(),
    };
    let nothing = ptr::null::<u8>();
    // SAFETY: the name is a terminated string of at most 16 bytes; it is this process's alone.
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, c"memgate copy".as_ptr(), 0, 0, 0) };
    // SAFETY: its own table of descriptors. An older kernel refuses: they are closed when it ends.
    unsafe { libc::syscall(CLOSE_RANGE, 0, u32::MAX, 0) };
    // SAFETY: no descriptors; reads the time.
    unsafe { libc::syscall(libc::SYS_ppoll, nothing, 0, &raw const time, nothing, 0) };
    loop {
        // SAFETY: does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, 0) };
    }
}

/// What the calling function keeps for its caller in registers.
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
        // SAFETY: asks; no status is written.
        let seen = unsafe { libc::waitpid(pid, ptr::null_mut(), libc::WNOHANG) };
        assert_eq!((seen, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ECHILD)));
        // SAFETY: waits for its end.
        let ended = unsafe { libc::waitpid(pid, ptr::null_mut(), libc::__WALL) };
        assert_eq!(ended, pid);
    }
}
