//! Calls to the kernel and the C library.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

static MAPPED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Number of bytes mapped by [`map`] and not unmapped.
#[must_use]
pub fn mapped_bytes() -> u64 {
    MAPPED_BYTES.load(Ordering::Relaxed)
}

/// Maps zeroed, private, anonymous memory. `errno` is kept.
///
/// MAP_STACK disables transparent huge pages (since Linux 6.7): otherwise sparse shadow memory would take 2 MiB for
/// each touched page. It is a flag of `mmap`, so it needs no further system call that a guest's seccomp filter could
/// refuse.
///
/// This is a system call, not a call of `mmap`: a library of the guest may define `mmap` and call the agent's. The
/// agent would then record its own memory as the library's, before it has memory for the record.
#[must_use]
pub fn map(bytes: usize) -> Option<NonNull<u8>> {
    map_with(bytes, 0)
}

/// Like [`map`], but allocates all pages at once. If all pages are used soon, in random order, this is cheaper than two
/// page faults for each page (the first read, then the first write).
#[must_use]
pub fn map_populated(bytes: usize) -> Option<NonNull<u8>> {
    map_with(bytes, libc::MAP_POPULATE)
}

#[cold]
#[inline(never)]
fn map_with(bytes: usize, more: libc::c_int) -> Option<NonNull<u8>> {
    let errno = Errno::save();
    // All arguments of a system call have a register's width.
    let protection = libc::c_long::from(libc::PROT_READ | libc::PROT_WRITE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK | more;
    let (flags, no_file) = (libc::c_long::from(flags), libc::c_long::from(-1));
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let at = unsafe { libc::syscall(libc::SYS_mmap, 0usize, bytes, protection, flags, no_file, 0usize) };
    errno.restore();
    let at = NonNull::new(ptr::with_exposed_provenance_mut(usize::try_from(at).ok()?))?;
    MAPPED_BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
    Some(at)
}

/// Unmaps memory of [`map`].
///
/// # Safety
/// The memory must not be used any more.
pub unsafe fn unmap(at: NonNull<u8>, bytes: usize) {
    let errno = Errno::save();
    // SAFETY: the caller owns the mapping alone.
    let failed = unsafe { libc::syscall(libc::SYS_munmap, at.as_ptr(), bytes) } != 0;
    errno.restore();
    if !failed {
        MAPPED_BYTES.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

/// Are the 4 bytes at `address` (4-aligned) readable? FUTEX_WAIT reads them and reports EFAULT instead of faulting.
#[must_use]
pub fn readable(address: usize) -> bool {
    let errno = Errno::save();
    let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: FUTEX_WAIT only reads the word; the zero timeout bounds the wait; a bad address is an
    // error value.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            address & !3,
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            0x5a5a_a5a5_u32,
            &raw const no_time,
        )
    };
    let fault = result != 0 && Errno::save().0 == libc::EFAULT;
    errno.restore();
    !fault
}

/// Sleeps for 0.2 ms, with a futex, because `malloc` makes that system call, too.
pub fn pause() {
    let errno = Errno::save();
    let (word, time) = (0_u32, libc::timespec { tv_sec: 0, tv_nsec: 200_000 });
    // SAFETY: waits on a word that is visible only here, until the timeout.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const word,
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            0_u32,
            &raw const time,
        );
    }
    errno.restore();
}

/// An address in the loader that started this program.
#[must_use]
pub fn loader() -> usize {
    // SAFETY: looks the value up in the kernel's auxiliary vector.
    let base = unsafe { libc::getauxval(libc::AT_BASE) };
    // 0: the loader was started directly, so the kernel's entry point is in it.
    // SAFETY: as above.
    if base != 0 { base as usize } else { unsafe { libc::getauxval(libc::AT_ENTRY) as usize } }
}

/// A saved value of `errno`, to be restored.
pub struct Errno(i32);

impl Errno {
    /// A given value, for [`Errno::restore`].
    #[must_use]
    pub const fn of(code: i32) -> Self {
        Self(code)
    }

    /// Saves `errno`.
    #[must_use]
    pub fn save() -> Self {
        // SAFETY: errno of this thread.
        Self(unsafe { Self::place().read() })
    }

    /// Restores `errno`.
    pub fn restore(self) {
        // SAFETY: errno of this thread.
        unsafe { Self::place().write(self.0) };
    }

    fn place() -> *mut i32 {
        #[cfg(not(target_os = "android"))]
        // SAFETY: always succeeds.
        return unsafe { libc::__errno_location() };
        #[cfg(target_os = "android")]
        // SAFETY: always succeeds.
        return unsafe { libc::__errno() };
    }
}

/// The address of a pointer without its tag. On arm64 the allocator may put a tag into a pointer's upper byte, which
/// the processor ignores.
#[inline(always)]
#[must_use]
pub const fn without_mark(pointer: usize) -> usize {
    if cfg!(target_arch = "aarch64") { pointer & (usize::MAX >> 8) } else { pointer }
}

/// A return address without the signature that arm64 code may put into its upper bits (pointer authentication).
#[cfg(target_arch = "aarch64")]
#[inline(always)]
#[must_use]
pub fn without_signature(pc: usize) -> usize {
    let mut plain = pc;
    // SAFETY: `xpaclri`, which does nothing on processors that do not sign, changes the one
    // register that is named.
    unsafe {
        core::arch::asm!("hint #7", inout("x30") plain, options(pure, nomem, nostack, preserves_flags))
    };
    plain
}

/// Return addresses are signed on arm64 only.
#[cfg(not(target_arch = "aarch64"))]
#[inline(always)]
#[must_use]
pub const fn without_signature(pc: usize) -> usize {
    pc
}

/// The thread pointer. It points into the C library's data at the top of every thread's stack except the main thread's:
/// on x86-64 to the control block, on arm64 directly after it.
#[inline(always)]
#[must_use]
pub fn thread_pointer() -> usize {
    let base: usize;
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads the register that holds it.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) base, options(pure, nomem, nostack, preserves_flags))
    };
    #[cfg(target_arch = "x86_64")]
    // SAFETY: on x86-64 Linux the word at fs:0 holds the thread pointer itself (psABI, TLS variant
    // II).
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) base, options(pure, readonly, nostack, preserves_flags))
    };
    base
}

/// Offset of the thread id in a thread's control block, from the thread pointer; 0: unknown.
static THREAD_ID_AT: AtomicUsize = AtomicUsize::new(0);

/// Uses the offset `at` for thread ids, if it holds the id of the calling main thread, `own`.
pub fn find_thread_id(at: usize, own: Option<u32>) {
    if Some(id_at(at)) == own {
        THREAD_ID_AT.store(at, Ordering::Relaxed);
    }
}

/// The calling thread's id from its control block.
#[must_use]
pub fn noted_thread_id() -> Option<u32> {
    match THREAD_ID_AT.load(Ordering::Relaxed) {
        0 => None,
        at => Some(id_at(at)),
    }
}

fn id_at(offset: usize) -> u32 {
    // SAFETY: within the control block of this thread, which is larger in either library.
    unsafe { (thread_pointer().wrapping_add(offset) as *const u32).read_volatile() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_page_is_readable_and_an_unmapped_one_is_not() {
        let page = map(4096).unwrap();
        assert!(readable(page.as_ptr() as usize));
        // Made unreadable by its protection: an unmapped address could be reused by another thread at once.
        // SAFETY: nobody uses the page.
        let hidden = unsafe { libc::mprotect(page.as_ptr().cast(), 4096, libc::PROT_NONE) };
        assert_eq!(hidden, 0);
        assert!(!readable(page.as_ptr() as usize));
        assert!(!readable(8));
    }

    #[test]
    fn errno_survives_a_mapping() {
        Errno(4711).restore();
        assert!(map(usize::MAX / 2).is_none());
        assert_eq!(Errno::save().0, 4711);
    }
}
