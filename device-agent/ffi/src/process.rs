//! The process, its clocks, its limits.

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::time::Duration;
use std::ffi::CString;

/// Monotonic nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CPU nanoseconds of the calling thread.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Unix time minus monotonic time, nanoseconds.
#[must_use]
pub fn realtime_offset_ns() -> i64 {
    clock_ns(libc::CLOCK_REALTIME).wrapping_sub(monotonic_ns()).cast_signed()
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the structure.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Process id.
#[must_use]
pub fn pid() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::getpid() }.cast_unsigned()
}

/// Parent's process id.
#[must_use]
pub fn parent_pid() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::getppid() }.cast_unsigned()
}

/// Thread id.
#[must_use]
pub fn thread_id() -> u32 {
    // SAFETY: always succeeds.
    u32::try_from(unsafe { libc::syscall(libc::SYS_gettid) }).unwrap_or(0)
}

/// Own user id.
#[must_use]
pub fn user_id() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::getuid() }
}

/// An environment variable.
#[must_use]
pub fn variable(name: &CStr) -> Option<String> {
    // SAFETY: a terminated name; the value is copied at once.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: the environment's strings are terminated.
    Some(unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
}

/// Default stack size of new threads, as the C library derives it from RLIMIT_STACK.
#[must_use]
pub fn default_thread_stack_bytes() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes the structure.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } == 0;
    if !known || limit.rlim_cur == libc::RLIM_INFINITY {
        2 << 20
    } else {
        usize::try_from(limit.rlim_cur).unwrap_or(2 << 20)
    }
}

/// Lets other threads run for a moment.
pub fn pause(time: Duration) {
    let t = libc::timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    // SAFETY: reads the structure; being woken early is fine.
    unsafe { libc::nanosleep(&raw const t, ptr::null_mut()) };
}

/// Address of a symbol in the global scope, in search order; 0: none. `next`: search behind the agent itself.
#[must_use]
pub fn symbol(name: &CStr, next: bool) -> usize {
    let scope = if next { libc::RTLD_NEXT } else { libc::RTLD_DEFAULT };
    // SAFETY: a terminated name.
    let at = unsafe { libc::dlsym(scope, name.as_ptr()) };
    if at.is_null() {
        // The loader keeps an error text for this thread; fetching it gives it back.
        // SAFETY: no arguments.
        unsafe { libc::dlerror() };
    }
    at as usize
}

/// Start address of the object that `address` lies in; 0: none.
#[must_use]
pub fn object_of(address: usize) -> usize {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: writes the structure; the address is only looked up.
    if unsafe { libc::dladdr(address as *const c_void, &raw mut info) } == 0 {
        return 0;
    }
    info.dli_fbase as usize
}

/// Renames a file.
///
/// # Errors
/// As rename(2).
pub fn rename(from: &str, to: &str) -> std::io::Result<()> {
    let bad = |e| std::io::Error::new(std::io::ErrorKind::InvalidInput, e);
    let (from, to) = (CString::new(from).map_err(bad)?, CString::new(to).map_err(bad)?);
    // SAFETY: terminated strings.
    if unsafe { libc::rename(from.as_ptr(), to.as_ptr()) } == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Registers a handler for `exit`. The earlier it is registered, the later it runs.
#[must_use]
pub fn at_exit(handler: extern "C" fn()) -> bool {
    // SAFETY: the handler lives as long as the library, which is never unloaded.
    unsafe { libc::atexit(handler) == 0 }
}

/// Registers handlers around `fork`. Found by name: glibc and musl spell it differently, and a symbol that is
/// missing where the library is loaded would end a musl program before it begins.
#[must_use]
pub fn at_fork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> bool {
    type Register =
        unsafe extern "C" fn(extern "C" fn(), extern "C" fn(), extern "C" fn(), *mut c_void) -> c_int;
    // musl's function takes three arguments and ignores the fourth register.
    let at = [c"__register_atfork", c"pthread_atfork"]
        .into_iter()
        .map(|name| symbol(name, false))
        .find(|&at| at != 0);
    let Some(at) = at else { return false };
    // SAFETY: a function of either name takes these arguments.
    let register = unsafe { core::mem::transmute::<usize, Register>(at) };
    // SAFETY: the handlers live as long as the library.
    unsafe { register(prepare, parent, child, ptr::null_mut()) == 0 }
}

/// A key whose destructor runs when a thread ends that set it.
#[derive(Clone, Copy)]
pub struct ThreadKey(pub libc::pthread_key_t);

impl ThreadKey {
    /// A new key; `None`: the process has too many.
    #[must_use]
    pub fn new(destructor: unsafe extern "C" fn(*mut c_void)) -> Option<Self> {
        let mut key = 0;
        // SAFETY: writes the key.
        (unsafe { libc::pthread_key_create(&raw mut key, Some(destructor)) } == 0).then_some(Self(key))
    }

    /// Sets this thread's value, so that the destructor runs.
    pub fn set(&self, value: usize) {
        // SAFETY: a live key; the value is a plain number.
        unsafe { libc::pthread_setspecific(self.0, value as *const c_void) };
    }
}

/// Ends the process as `exit` does.
pub fn exit(status: i32) -> ! {
    // SAFETY: never returns.
    unsafe { libc::exit(status) }
}
