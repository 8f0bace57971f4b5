//! The few things asked of the kernel and the C library.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

static MAPPED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Bytes mapped through [`map`] and not given back.
#[must_use]
pub fn mapped_bytes() -> u64 {
    MAPPED_BYTES.load(Ordering::Relaxed)
}

/// Maps zeroed, private, anonymous memory. `errno` is kept.
///
/// MAP_STACK keeps transparent huge pages away (since Linux 6.7): sparse shadow memory would
/// otherwise take 2 MiB for each touched page. It is a flag of `mmap`, so no further system call is
/// needed that a guest's seccomp filter could refuse.
///
/// The kernel is asked, and not `mmap`: a library of the guest's may define that and call the agent's, which would
/// have its own memory as the library's, and no memory yet to note it in.
#[must_use]
pub fn map(bytes: usize) -> Option<NonNull<u8>> {
    map_with(bytes, 0)
}

/// As [`map`], with all pages there at once: for memory whose pages are all used soon, in random
/// order, that is cheaper than two page faults for each (the first read, then the first write).
#[must_use]
pub fn map_populated(bytes: usize) -> Option<NonNull<u8>> {
    map_with(bytes, libc::MAP_POPULATE)
}

#[cold]
#[inline(never)]
fn map_with(bytes: usize, more: libc::c_int) -> Option<NonNull<u8>> {
    let errno = Errno::save();
    // All words of a system call are of a register's width.
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

/// Gives memory back that [`map`] gave.
///
/// # Safety
/// Nobody may use it any more.
pub unsafe fn unmap(at: NonNull<u8>, bytes: usize) {
    let errno = Errno::save();
    // SAFETY: the caller owns the mapping alone.
    let failed = unsafe { libc::syscall(libc::SYS_munmap, at.as_ptr(), bytes) } != 0;
    errno.restore();
    if !failed {
        MAPPED_BYTES.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

/// Can the 4 bytes at `address` (4-aligned) be read? FUTEX_WAIT reads them for us and reports
/// EFAULT instead of faulting.
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

/// Sleeps for a fifth of a millisecond. A futex does it: `malloc` makes that call, too.
pub fn pause() {
    let errno = Errno::save();
    let (word, time) = (0_u32, libc::timespec { tv_sec: 0, tv_nsec: 200_000 });
    // SAFETY: waits for a word that nobody else knows, until the time is over.
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
    // SAFETY: looks the value up among those the kernel gave.
    let base = unsafe { libc::getauxval(libc::AT_BASE) };
    // 0: the loader was called by its name, and is what the kernel entered.
    // SAFETY: as above.
    if base != 0 { base as usize } else { unsafe { libc::getauxval(libc::AT_ENTRY) as usize } }
}

/// The value `errno` had, to be put back.
pub struct Errno(i32);

impl Errno {
    /// A given value, to be set by [`Errno::restore`].
    #[must_use]
    pub const fn of(code: i32) -> Self {
        Self(code)
    }

    /// Remembers it.
    #[must_use]
    pub fn save() -> Self {
        // SAFETY: errno of this thread.
        Self(unsafe { Self::place().read() })
    }

    /// Puts it back.
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

/// The address that a pointer means. On arm64 the allocator may mark pointers in their upper byte,
/// which the processor ignores.
#[inline(always)]
#[must_use]
pub const fn without_mark(pointer: usize) -> usize {
    if cfg!(target_arch = "aarch64") { pointer & (usize::MAX >> 8) } else { pointer }
}

/// A return address without the signature that code for arm64 may put into its upper bits (pointer
/// authentication).
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

/// The thread pointer: it points into what the C library puts at the top of every thread's stack but
/// the main one's, on x86-64 to the control block, on arm64 right behind it.
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

/// Where a thread's control block holds its id, seen from the thread pointer; 0: unknown.
static THREAD_ID_AT: AtomicUsize = AtomicUsize::new(0);

/// Threads' ids are noted there, if that of the main thread, which calls and whose id is `own`, is.
pub fn find_thread_id(at: usize, own: Option<u32>) {
    if Some(id_at(at)) == own {
        THREAD_ID_AT.store(at, Ordering::Relaxed);
    }
}

/// The calling thread's id, as its control block says.
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
        // Taken away by its protection: an unmapped address may be another thread's at once.
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
