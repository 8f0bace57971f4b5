//! Guards during which the guest's own code cannot interrupt this thread.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;

/// While this value lives, no signal handler runs in this thread.
pub struct SignalsHeld(libc::sigset_t);

impl SignalsHeld {
    /// Blocks all signals in this thread.
    #[must_use]
    pub fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::zeroed());
        // SAFETY: fills the set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: two sets; it cannot fail. On Linux it affects only the calling thread.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: all-zero is a set, and the call wrote another.
        Self(unsafe { before.assume_init() })
    }
}

impl Default for SignalsHeld {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        // SAFETY: restores the previous set.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

#[cfg(not(target_os = "android"))]
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// bionic cancels no thread and has no such function.
#[cfg(target_os = "android")]
unsafe fn pthread_setcancelstate(_: c_int, _: *mut c_int) -> c_int {
    0
}

/// `PTHREAD_CANCEL_DISABLE`, in glibc and musl.
const DISABLE: c_int = 1;

/// While this value lives, this thread is not cancelled. Some of our calls (open, close) are cancellation points. A
/// guest function that is none must not become one, and a cancellation would leave our locks held.
pub struct CancelHeld(c_int);

impl CancelHeld {
    /// Disables cancellation of this thread.
    #[must_use]
    pub fn new() -> Self {
        let mut before = 0;
        // SAFETY: writes the previous state; makes no system call.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Default for CancelHeld {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for CancelHeld {
    fn drop(&mut self) {
        // SAFETY: restores the previous state.
        unsafe { pthread_setcancelstate(self.0, ptr::null_mut()) };
    }
}
