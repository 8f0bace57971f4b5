//! The process, its clocks and its limits.

use core::ffi::{CStr, c_int, c_void};
#[cfg(not(target_os = "android"))]
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::ffi::CString;

/// Time, in monotonic nanoseconds, from which only the coarse clocks are read, which advance with the kernel's ticks;
/// 0: they are not used.
static COARSE_SINCE: AtomicU64 = AtomicU64::new(0);

/// From now on, reads clocks without the processor's time-stamp counter, with a delay of some milliseconds. This is for
/// a process that is about to disable the counter, or has disabled it: the C library's fine clocks also read the
/// counter, which ends a thread that may not read it.
pub fn read_clocks_coarsely() {
    let now = if may_read_counter() { libc::CLOCK_MONOTONIC } else { libc::CLOCK_MONOTONIC_COARSE };
    COARSE_SINCE.store(clock_ns(now).max(1), Ordering::Relaxed);
}

/// May this thread read the time-stamp counter? If the kernel cannot report this, the counter cannot be disabled.
#[must_use]
pub fn may_read_counter() -> bool {
    let mut now: c_int = libc::PR_TSC_ENABLE;
    // SAFETY: writes the number.
    unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut now) };
    now == libc::PR_TSC_ENABLE
}

/// Monotonic nanoseconds.
#[must_use]
pub fn monotonic_ns() -> u64 {
    match COARSE_SINCE.load(Ordering::Relaxed) {
        0 => clock_ns(libc::CLOCK_MONOTONIC),
        since => clock_ns(libc::CLOCK_MONOTONIC_COARSE).max(since),
    }
}

/// CPU time of the calling thread so far. It is a system call, so it is used only at the start: later a filter of the
/// guest may forbid it.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the process so far.
#[must_use]
pub fn cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Unix time minus monotonic time, nanoseconds.
#[must_use]
pub fn realtime_offset_ns() -> i64 {
    let is_coarse = COARSE_SINCE.load(Ordering::Relaxed) != 0;
    let clock = if is_coarse { libc::CLOCK_REALTIME_COARSE } else { libc::CLOCK_REALTIME };
    clock_ns(clock).wrapping_sub(monotonic_ns()).cast_signed()
}

/// A System V segment.
#[cfg(not(target_os = "android"))]
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    /// Its size.
    pub bytes: usize,
    /// Has this process made it?
    pub is_own: bool,
    /// The segment is marked for removal: it exists only while it is attached.
    pub is_removed: bool,
}

/// The System V segment of this number; `None`: there is none, or access is denied.
#[cfg(not(target_os = "android"))]
#[must_use]
pub fn segment(number: c_int) -> Option<Segment> {
    const SHM_DEST: i64 = 0o1000;
    let mut told = MaybeUninit::<libc::shmid_ds>::zeroed();
    // SAFETY: IPC_STAT fills the structure.
    let failed = unsafe { libc::syscall(libc::SYS_shmctl, number, libc::IPC_STAT, told.as_mut_ptr()) } != 0;
    if failed {
        return None;
    }
    // SAFETY: all-zero is such a value, and the kernel wrote another.
    let told = unsafe { told.assume_init() };
    // SAFETY: always succeeds.
    let own = unsafe { libc::getpid() };
    Some(Segment {
        bytes: told.shm_segsz,
        is_own: told.shm_cpid == own,
        is_removed: i64::from(told.shm_perm.mode) & SHM_DEST != 0,
    })
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the structure.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec.cast_unsigned().saturating_mul(1_000_000_000).saturating_add(now.tv_nsec.cast_unsigned())
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

/// Thread id, obtained from a futex: `malloc` also makes this system call, so no filter of the guest forbids it.
/// `None`: the kernel has no such futexes.
#[must_use]
pub fn thread_id_by_futex() -> Option<u32> {
    let word = AtomicU32::new(0);
    let nothing = ptr::null::<libc::timespec>();
    // Taking a free lock of this kind writes the taker's thread id into the word, which is visible only here.
    // SAFETY: the word outlives the call.
    let status = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_LOCK_PI | libc::FUTEX_PRIVATE_FLAG,
            0,
            nothing,
        )
    };
    (status == 0).then(|| word.load(Ordering::Relaxed) & FUTEX_TID_MASK)
}

/// Possible offset of the thread id in a thread's control block, from the thread pointer: for glibc, or musl.
#[must_use]
#[cfg(target_arch = "x86_64")]
pub fn thread_id_place() -> Option<usize> {
    Some(if symbol(c"gnu_get_libc_version") != 0 { 0x2d0 } else { 0x30 })
}

/// Possible offset of the thread id in a thread's control block, from the thread pointer. On arm64 the block lies
/// before the thread pointer. glibc publishes the size of the block and the offset of the id for debuggers.
#[must_use]
#[cfg(all(target_arch = "aarch64", not(target_os = "android")))]
pub fn thread_id_place() -> Option<usize> {
    if symbol(c"gnu_get_libc_version") == 0 {
        return None;
    }
    Some(told(c"_thread_db_pthread_tid", 2)?.wrapping_sub(told(c"_thread_db_sizeof_pthread", 0)?))
}

/// Offset of the address of the thread's TLS table (dtv) in glibc's thread structure, to which `pthread_t` points.
#[must_use]
#[cfg(not(target_os = "android"))]
pub fn thread_table_place() -> Option<usize> {
    if symbol(c"gnu_get_libc_version") == 0 {
        return None;
    }
    told(c"_thread_db_pthread_dtvp", 2)
}

/// A value that glibc publishes for debuggers: the bits, the number and the offset of a member, or only a size.
#[cfg(not(target_os = "android"))]
fn told(name: &CStr, index: usize) -> Option<usize> {
    let at = symbol(name) as *const u32;
    // SAFETY: constants of the C library, at least `index` + 1 words.
    (!at.is_null()).then(|| unsafe { at.wrapping_add(index).read() } as usize)
}

/// Bits of a futex word that hold a thread id (`linux/futex.h`).
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;

/// Real user id.
#[must_use]
pub fn user_id() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::getuid() }
}

/// Is this environment variable set?
#[must_use]
pub fn has_variable(name: &CStr) -> bool {
    // SAFETY: a terminated name.
    !unsafe { libc::getenv(name.as_ptr()) }.is_null()
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

/// Sets or removes an environment variable. Called only while no other thread can read the environment.
///
/// # Errors
/// As setenv(3).
#[cfg(not(target_os = "android"))]
pub fn set_variable(name: &CStr, value: Option<&CStr>) -> std::io::Result<()> {
    let status = match value {
        // SAFETY: terminated strings, which are copied; no thread reads meanwhile.
        Some(value) => unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) },
        // SAFETY: a terminated name; no thread reads meanwhile.
        None => unsafe { libc::unsetenv(name.as_ptr()) },
    };
    if status == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// A system property; empty: there is none.
#[must_use]
#[cfg(target_os = "android")]
pub fn property(name: &CStr) -> String {
    let mut value = [0_u8; libc::PROP_VALUE_MAX as usize];
    // SAFETY: a terminated name; at most this many bytes are written, the last one a NUL.
    unsafe { libc::__system_property_get(name.as_ptr(), value.as_mut_ptr().cast()) };
    CStr::from_bytes_until_nul(&value)
        .map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned())
}

/// Default stack size of new threads in bionic (`PTHREAD_STACK_SIZE_DEFAULT`), independent of RLIMIT_STACK.
#[must_use]
#[cfg(target_os = "android")]
pub const fn default_thread_stack_bytes() -> usize {
    1 << 20
}

/// Default stack size of new threads, as the C library derives it from RLIMIT_STACK.
#[must_use]
#[cfg(not(target_os = "android"))]
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

/// Address of the first symbol of this name in the global scope; 0: none.
#[must_use]
pub fn symbol(name: &CStr) -> usize {
    symbol_in(libc::RTLD_DEFAULT, name)
}

/// Address of the first symbol of this name after the agent itself; 0: none.
#[must_use]
pub fn next_symbol(name: &CStr) -> usize {
    symbol_in(libc::RTLD_NEXT, name)
}

fn symbol_in(scope: *mut c_void, name: &CStr) -> usize {
    // SAFETY: a terminated name.
    let at = unsafe { libc::dlsym(scope, name.as_ptr()) };
    if at.is_null() {
        // The loader keeps an error text for this thread; fetching the text frees it.
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

/// Path of the object that `address` lies in, as the loader knows it.
#[must_use]
pub fn path_of(address: usize) -> String {
    // SAFETY: all-zero is a valid structure of pointers.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: writes the structure; the address is only looked up.
    let found = unsafe { libc::dladdr(address as *const c_void, &raw mut info) } != 0;
    if !found || info.dli_fname.is_null() {
        return String::new();
    }
    // SAFETY: a terminated string of the loader, which does not unload anything of this scope meanwhile.
    unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned()
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

/// Removes a file, if there is one.
pub fn remove(path: &str) {
    if let Ok(path) = CString::new(path) {
        // SAFETY: a terminated string.
        unsafe { libc::unlink(path.as_ptr()) };
    }
}

/// Registers a handler for `exit`. The earlier it is registered, the later it runs.
#[must_use]
#[cfg(not(target_os = "android"))]
pub fn at_exit(handler: extern "C" fn()) -> bool {
    // SAFETY: the handler lives as long as the library, which is never unloaded.
    unsafe { libc::atexit(handler) == 0 }
}

/// Registers a handler for `exit`. The earlier it is registered, the later it runs.
///
/// bionic's `atexit` is not in its libc but in every program's start files; destructors of
/// preloaded libraries do not run.
#[must_use]
#[cfg(target_os = "android")]
pub fn at_exit(handler: extern "C" fn()) -> bool {
    unsafe extern "C" {
        fn __cxa_atexit(
            run: unsafe extern "C" fn(*mut c_void),
            handler: *mut c_void,
            library: *mut c_void,
        ) -> c_int;
    }
    unsafe extern "C" fn run(handler: *mut c_void) {
        // SAFETY: the handler that was registered with this function, converted back.
        let handler = unsafe { core::mem::transmute::<*mut c_void, extern "C" fn()>(handler) };
        handler();
    }
    // SAFETY: the handler lives as long as the library, which is never unloaded.
    unsafe { __cxa_atexit(run, handler as *mut c_void, ptr::null_mut()) == 0 }
}

/// Registers handlers around `fork`. The function is looked up by name, because it has different names in glibc and
/// musl, and a musl program with a missing symbol would not start.
#[must_use]
pub fn at_fork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> bool {
    type Register =
        unsafe extern "C" fn(extern "C" fn(), extern "C" fn(), extern "C" fn(), *mut c_void) -> c_int;
    // musl's function takes three arguments and ignores the fourth register.
    let at = [c"__register_atfork", c"pthread_atfork"].into_iter().map(symbol).find(|&at| at != 0);
    let Some(at) = at else { return false };
    // SAFETY: a function of either name takes these arguments.
    let register = unsafe { core::mem::transmute::<usize, Register>(at) };
    // SAFETY: the handlers live as long as the library.
    unsafe { register(prepare, parent, child, ptr::null_mut()) == 0 }
}

/// A key whose destructor runs at the end of each thread that set it.
#[derive(Clone, Copy)]
pub struct ThreadKey(pub u32);

impl ThreadKey {
    /// A new key; `None`: the process has too many.
    #[must_use]
    pub fn new(destructor: unsafe extern "C" fn(*mut c_void)) -> Option<Self> {
        let mut key = 0;
        // SAFETY: writes the key.
        let made = unsafe { libc::pthread_key_create(&raw mut key, Some(destructor)) } == 0;
        #[cfg(target_os = "android")]
        let key = libc::pthread_key_t::cast_unsigned(key);
        made.then_some(Self(key))
    }

    #[cfg(not(target_os = "android"))]
    const fn raw(self) -> libc::pthread_key_t {
        self.0
    }

    /// bionic's keys are signed.
    #[cfg(target_os = "android")]
    const fn raw(self) -> libc::pthread_key_t {
        self.0.cast_signed()
    }

    /// Sets this thread's value, so that the destructor runs.
    pub fn set(&self, value: usize) {
        // SAFETY: a live key; the value is a plain number.
        unsafe { libc::pthread_setspecific(self.raw(), value as *const c_void) };
    }
}

/// Ends the process by `exit`.
pub fn exit(status: i32) -> ! {
    // SAFETY: never returns.
    unsafe { libc::exit(status) }
}

/// Ends the process at once, without any code of the C library.
#[cfg(not(target_os = "android"))]
pub fn end(status: i32) -> ! {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `exit_group` never returns.
    unsafe {
        core::arch::asm!("syscall", in("rax") libc::SYS_exit_group, in("rdi") status, options(noreturn))
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: `exit_group` never returns.
    unsafe {
        core::arch::asm!("svc #0", in("x8") libc::SYS_exit_group, in("x0") status, options(noreturn))
    }
}

/// Apps on Android may always call `getpid`. Elsewhere the guest's system call filter may forbid it.
const ASKS_FOR_ITS_NUMBER: bool = cfg!(target_os = "android");

/// Memory that only this process has. In a child it reads as zero, however the child was made (`fork`, `_Fork`, a plain
/// `clone`), so that a child does not use its parent's shared pages as its own. Reading it needs no system call.
pub struct ForkMark(AtomicPtr<Marked>);

#[repr(C)]
struct Marked {
    mark: AtomicU64,
    pointer: AtomicPtr<AtomicU64>,
}

impl ForkMark {
    /// A mark that is not set.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Marks this process, so that [`ForkMark::holds`] is true in it. Called again in a child that is followed. False:
    /// the kernel has no such memory.
    #[must_use]
    pub fn set(&self) -> bool {
        let mut at = self.0.load(Ordering::Acquire);
        if at.is_null() {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: an anonymous mapping at an address of the kernel's choice.
            let page = unsafe {
                libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
            };
            if page == libc::MAP_FAILED {
                return false;
            }
            // SAFETY: the page just mapped. The flag exists since Linux 4.14; devices with Android 8 to 10 may have an
            // older kernel.
            if unsafe { libc::madvise(page, 4096, libc::MADV_WIPEONFORK) } != 0 && !ASKS_FOR_ITS_NUMBER {
                return false;
            }
            at = page.cast();
            self.0.store(at, Ordering::Release);
        }
        // SAFETY: mapped once, never unmapped; zero is a valid value.
        unsafe { &*at }.mark.store(pid().into(), Ordering::Release);
        true
    }

    /// Is this the process that set the mark?
    #[must_use]
    pub fn holds(&self) -> bool {
        self.marked().is_some_and(|m| match m.mark.load(Ordering::Acquire) {
            0 => false,
            marked => !ASKS_FOR_ITS_NUMBER || marked == u64::from(pid()),
        })
    }

    /// A pointer that is null in every child.
    #[must_use]
    pub fn pointer(&self) -> Option<&AtomicPtr<AtomicU64>> {
        self.marked().map(|m| &m.pointer)
    }

    fn marked(&self) -> Option<&Marked> {
        // SAFETY: null, or mapped once and never unmapped.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }
}

impl Default for ForkMark {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_futex_tells_the_id_that_the_kernel_tells() {
        let told = std::thread::spawn(|| (thread_id_by_futex(), thread_id())).join().unwrap();
        assert_eq!(told.0, Some(told.1));
        assert_eq!(thread_id_by_futex(), Some(thread_id()));
    }

    #[test]
    fn a_bare_clone_does_not_hold_its_parents_mark() {
        static MARK: ForkMark = ForkMark::new();
        assert!(!MARK.holds());
        assert!(MARK.set() && MARK.holds());
        // SAFETY: the child makes one system call.
        let child = unsafe { libc::syscall(libc::SYS_fork) };
        if child == 0 {
            let status = i32::from(MARK.holds());
            // SAFETY: never returns.
            unsafe { libc::syscall(libc::SYS_exit_group, status) };
        }
        let mut status = -1;
        // SAFETY: our own child.
        unsafe { libc::waitpid(i32::try_from(child).unwrap_or(-1), &raw mut status, 0) };
        assert_eq!(status, 0, "the child found the mark");
        assert!(MARK.holds());
    }
}
