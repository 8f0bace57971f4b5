//! Futexes, and files mapped for sharing with the harness.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::calm::SignalsHeld;

#[cfg(not(target_os = "android"))]
use libc::{MREMAP_MAYMOVE, mremap};

/// `linux/mman.h`; the crate `libc` does not have it for Android.
#[cfg(target_os = "android")]
const MREMAP_MAYMOVE: libc::c_int = 1;
#[cfg(target_os = "android")]
unsafe extern "C" {
    fn mremap(
        old: *mut core::ffi::c_void,
        old_bytes: usize,
        bytes: usize,
        flags: libc::c_int,
        ...
    ) -> *mut core::ffi::c_void;
}

/// Sleeps while the word holds `expected`, at most for `timeout`. May also return spuriously. The word may lie in
/// memory shared with another process.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let limit = timeout.map(|t| libc::timespec {
        tv_sec: libc::time_t::try_from(t.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the word lives as long as its reference. The result is ignored, because callers check the word again.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, limit) };
}

/// Wakes all threads that wait for the word.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word lives as long as its reference.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Lowest number for our short-lived descriptors.
const HIGH_NUMBER: libc::c_int = 500;

/// A file that is open only while this value lives, so that no descriptor of ours can disturb the guest.
pub struct BriefFile(OwnedFd);

impl BriefFile {
    /// Creates a new file, private to the user.
    ///
    /// # Errors
    /// As open(2).
    pub fn create(path: &str) -> io::Result<Self> {
        Self::open_with(
            path,
            libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC | libc::O_NOFOLLOW,
        )
    }

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(path: &str) -> io::Result<Self> {
        Self::open_with(path, libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW)
    }

    fn open_with(path: &str, flags: libc::c_int) -> io::Result<Self> {
        let path = CString::new(path).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        // Signals are held, so that no handler sees the low number in use.
        let held = SignalsHeld::new();
        // SAFETY: a terminated string.
        let fd = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, with no other owner.
        let low = unsafe { OwnedFd::from_raw_fd(fd) };
        // The lowest free number is the one that the guest's next open would get, or that it is about to close. So the
        // descriptor is moved out of the way.
        // SAFETY: an open descriptor.
        let high = unsafe { libc::fcntl(low.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH_NUMBER) };
        // If the limit on descriptors is low, there is no high number, and the low one is used.
        // SAFETY: just made, with no other owner.
        let file = if high < 0 { low } else { unsafe { OwnedFd::from_raw_fd(high) } };
        drop(held);
        Ok(Self(file))
    }

    /// Makes sure that blocks exist for the whole range: writing to a mapped hole on a full disk would kill the guest
    /// with SIGBUS. RLIMIT_FSIZE is checked first, because exceeding it would also raise a signal.
    ///
    /// # Errors
    /// No room on the disk, or the limit is lower.
    pub fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        within_limit(offset.saturating_add(bytes))?;
        let (at, n) = (offset.cast_signed(), bytes.cast_signed());
        // SAFETY: an open descriptor.
        match unsafe { libc::posix_fallocate(self.0.as_raw_fd(), at, n) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Does the file have at least this many bytes?
    #[must_use]
    pub fn is_as_long_as(&self, bytes: u64) -> bool {
        // SAFETY: an open descriptor.
        let end = unsafe { libc::lseek(self.0.as_raw_fd(), 0, libc::SEEK_END) };
        u64::try_from(end).is_ok_and(|end| end >= bytes)
    }

    /// Maps part of the file as shared memory. `offset` is page-aligned, and the part is allocated.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn map(&self, offset: u64, bytes: usize) -> io::Result<SharedMap> {
        let flags = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                flags,
                libc::MAP_SHARED,
                self.0.as_raw_fd(),
                offset.cast_signed(),
            )
        };
        match NonNull::new(at.cast::<u8>()) {
            Some(start) if at != libc::MAP_FAILED => Ok(SharedMap { start, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Fails if a file of this size would exceed RLIMIT_FSIZE, which would raise a signal.
fn within_limit(bytes: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes the structure.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    if known && limit.rlim_cur != libc::RLIM_INFINITY && bytes > limit.rlim_cur {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    Ok(())
}

/// A mapped part of a file. Dropping it unmaps.
pub struct SharedMap {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: access goes through atomics or copies.
unsafe impl Send for SharedMap {}
// SAFETY: as above.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// A word of the mapping; `None`: outside or misaligned.
    #[must_use]
    pub fn word(&self, offset: usize) -> Option<&AtomicU32> {
        (offset.is_multiple_of(4) && offset.saturating_add(4) <= self.bytes).then(|| {
            // SAFETY: inside the mapping and aligned; shared words are only used atomically.
            unsafe { &*self.address(offset).cast() }
        })
    }

    /// A double word of the mapping.
    #[must_use]
    pub fn long(&self, offset: usize) -> Option<&AtomicU64> {
        (offset.is_multiple_of(8) && offset.saturating_add(8) <= self.bytes).then(|| {
            // SAFETY: as above.
            unsafe { &*self.address(offset).cast() }
        })
    }

    /// Copies as many bytes into the mapping as fit, and returns their number.
    pub fn write(&self, offset: usize, from: &[u8]) -> usize {
        let n = self.bytes.saturating_sub(offset).min(from.len());
        if n > 0 {
            // SAFETY: [offset, offset + n) lies inside; readers only look after the committed end.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.address(offset), n) };
        }
        n
    }

    /// Moves this mapping to the next `bytes` in the file. `end`: the file offset at which the mapping ends now. The
    /// file is extended by its path and the mapping is moved, so no descriptor is needed. The bytes may be a hole: see
    /// [`SharedMap::populate`].
    ///
    /// # Errors
    /// As truncate(2) and mremap(2). The mapping is unchanged then.
    pub fn slide(&mut self, path: &str, end: u64, bytes: usize) -> io::Result<()> {
        let path = CString::new(path).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        let length = end.saturating_add(bytes as u64);
        within_limit(length)?;
        // SAFETY: a terminated string.
        if unsafe { libc::truncate(path.as_ptr(), length.cast_signed()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let old = self.start.as_ptr().cast();
        // SAFETY: the mapping belongs to this value, and no other code holds an address in it.
        let at = unsafe { mremap(old, self.bytes, self.bytes.saturating_add(bytes), MREMAP_MAYMOVE) };
        let next = NonNull::new(at.cast::<u8>().wrapping_add(self.bytes)).filter(|_| at != libc::MAP_FAILED);
        let Some(next) = next else { return Err(io::Error::last_os_error()) };
        // SAFETY: the front part, which is already written.
        unsafe { libc::munmap(at, self.bytes) };
        (self.start, self.bytes) = (next, bytes);
        Ok(())
    }

    /// Makes sure that blocks exist for a page-aligned part, like [`BriefFile::allocate`], but without a descriptor.
    ///
    /// # Errors
    /// No room, or a kernel before 5.14.
    pub fn populate(&self, offset: usize, bytes: usize) -> io::Result<()> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: inside the mapping; a fault that would be a signal is an error value here.
        let status = unsafe { libc::madvise(self.address(offset).cast(), bytes, libc::MADV_POPULATE_WRITE) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Address of a byte of the mapping.
    #[must_use]
    pub fn address(&self, offset: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(offset)
    }

    /// Number of mapped bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Is nothing mapped?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Stores the value and wakes all waiters.
pub fn store_and_wake(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Release);
    futex_wake(word);
}

/// A counter that can be polled.
///
/// # Errors
/// As eventfd(2).
pub fn event_fd() -> io::Result<std::fs::File> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// User id of the process at the other end of a Unix socket.
///
/// # Errors
/// Not a connected Unix socket.
pub fn peer_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    let into = (&raw mut who).cast();
    // SAFETY: writes at most the structure.
    let status = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut bytes)
    };
    if status == 0 { Ok(who.uid) } else { Err(io::Error::last_os_error()) }
}

/// Result of [`poll`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polled {
    /// The first descriptor can be read, or has ended.
    pub heard: bool,
    /// The second descriptor can be read.
    pub rung: bool,
    /// The first descriptor accepts more bytes.
    pub writable: bool,
}

/// Waits until one of two descriptors can be read, at most for `limit`.
///
/// # Errors
/// As poll(2), except for interruptions.
pub fn poll(a: BorrowedFd<'_>, b: BorrowedFd<'_>, limit: Duration) -> io::Result<Polled> {
    let of = |fd: BorrowedFd<'_>, events| libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let wait = |fds: &mut [libc::pollfd; 2], limit: Duration| loop {
        let ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: two structures.
        if unsafe { libc::poll(fds.as_mut_ptr(), 2, ms) } >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    let mut readable = [of(a, libc::POLLIN), of(b, libc::POLLIN)];
    wait(&mut readable, limit)?;
    let mut writable = [of(a, libc::POLLOUT), of(b, 0)];
    wait(&mut writable, Duration::ZERO)?;
    let ([a, b], [out, _]) = (readable, writable);
    Ok(Polled { heard: a.revents != 0, rung: b.revents != 0, writable: out.revents & libc::POLLOUT != 0 })
}
