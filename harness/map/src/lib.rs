//! The harness's unsafe fence: the shared control page of a spool.
//!
//! The recorder maps the first page of a spool that a tested process writes, waits on its words and wakes the
//! process. This crate knows offsets, not their meaning (`memgate_wire::spool` does), and does not use the rest of
//! the file.
//!
//! # Why nothing is read through the mapping
//!
//! The file belongs to another process, which may shorten it at any moment. Touching a mapped page after the end of its
//! file raises SIGBUS, and no earlier check can exclude it. So values are read by `pread` and written by `pwrite` on
//! the open descriptor: the kernel serves them from the same page cache as the guest's mapping. The mapping provides
//! only the *address* that a futex needs, and there a missing page is `EFAULT`, not a signal. Remaining risks:
//!
//! - `pread` and `pwrite` of one aligned word are copies, without a promise to be atomic. To read a double word that
//!   the guest stores, a reader repeats until two reads agree (`reading/stream.rs` of the harness). A guest that reads
//!   a torn number at worst goes on too early.
//! - A store into a shortened file makes it longer again. Such a file is never read as complete, because `committed` is
//!   beyond its old end.
//! - A file system that serves mappings and `pread` from different caches does not work (on Linux no file system that
//!   supports shared mappings does so).
#![expect(unsafe_code, reason = "the fence: maps one page and hands its words to futex calls")]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use memgate_wire::handshake::Words;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;

/// Bytes of the page.
pub const PAGE_BYTES: usize = 4096;

/// The control page of one spool, shared with the process that writes it.
#[derive(Debug)]
pub struct ControlPage {
    file: File,
    address: NonNull<u8>,
}

// SAFETY: the page is never dereferenced, only its address goes to futex system calls, which any
// thread may make.
unsafe impl Send for ControlPage {}
// SAFETY: as above; all methods take `&self` and touch the page through the kernel only.
unsafe impl Sync for ControlPage {}

/// A futex word of this process that ends a [`ControlPage::wait`] from another thread.
#[derive(Debug, Default)]
pub struct Bell(AtomicU32);

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The word differs from the seen value, or its waiters were woken.
    Page,
    /// The bell was rung.
    Bell,
    /// Neither happened within the given time.
    Timeout,
}

/// Why a control page could not be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The file is shorter than the page.
    #[error("the file has {0} bytes, a control page needs {PAGE_BYTES}")]
    TooShort(u64),
    /// The system refused.
    #[error("the control page cannot be mapped")]
    System(#[source] io::Error),
}

impl ControlPage {
    /// Maps the first page of `file`, which must be open for reading and writing.
    ///
    /// # Errors
    /// A file that is too short, or a system that refuses.
    pub fn map(file: File) -> Result<Self, MapError> {
        let length = file.metadata().map_err(MapError::System)?.len();
        if length < PAGE_BYTES as u64 {
            return Err(MapError::TooShort(length));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let address =
            unsafe { rustix::mm::mmap(ptr::null_mut(), PAGE_BYTES, protection, MapFlags::SHARED, &file, 0) };
        let address = address.map_err(|e| MapError::System(e.into()))?;
        let address = NonNull::new(address.cast()).ok_or(MapError::TooShort(length))?;
        Ok(Self { file, address })
    }

    /// The file the page belongs to.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Reads the word at `offset`.
    ///
    /// # Errors
    /// The file is gone or too short.
    pub fn load_u32(&self, offset: usize) -> io::Result<u32> {
        let mut bytes = [0; size_of::<u32>()];
        self.file.read_exact_at(&mut bytes, checked(offset, size_of::<u32>())?)?;
        // Data that the guest stored before this word must not be read before the word.
        fence(Ordering::SeqCst);
        Ok(u32::from_le_bytes(bytes))
    }

    /// Writes the word at `offset`. Stores of one thread become visible to the guest in their order.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn store_u32(&self, offset: usize, value: u32) -> io::Result<()> {
        self.store(offset, &value.to_le_bytes())
    }

    /// Writes the double word at `offset`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn store_u64(&self, offset: usize, value: u64) -> io::Result<()> {
        self.store(offset, &value.to_le_bytes())
    }

    /// Waits until the word at `offset` no longer holds `seen`, `bell` is rung, or `timeout` has
    /// passed.
    ///
    /// One system call waits for both words. Before Linux 5.16, or where a sandbox refuses that call, a ring just
    /// before the wait begins is noticed only after `timeout`.
    ///
    /// # Errors
    /// The page is no longer backed by its file.
    pub fn wait(&self, offset: usize, seen: u32, bell: &Bell, timeout: Duration) -> io::Result<Woken> {
        // The bell is read and cleared in one step: a plain store could erase a ring whose reason is not yet visible
        // here.
        if bell.0.swap(0, Ordering::AcqRel) != 0 {
            return Ok(Woken::Bell);
        }
        let address = self.word_address(offset)?;
        let outcome = match wait_for_either(address, seen, &bell.0, timeout) {
            Err(Errno::NOSYS | Errno::PERM) => self.wait_for_page(offset, seen, timeout),
            outcome => outcome,
        };
        if bell.0.swap(0, Ordering::AcqRel) != 0 {
            return Ok(Woken::Bell);
        }
        match outcome {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) => Ok(Woken::Page),
            Err(Errno::TIMEDOUT) => Ok(Woken::Timeout),
            Err(e) => Err(e.into()),
        }
    }

    /// Wakes all threads that wait on the word at `offset`, in any process.
    ///
    /// # Errors
    /// The page is no longer backed by its file.
    pub fn wake(&self, offset: usize) -> io::Result<()> {
        futex::wake(self.word(offset)?, futex::Flags::empty(), i32::MAX.unsigned_abs())?;
        Ok(())
    }

    /// Rings `bell`: the thread that waits with it goes on, or its next wait ends at once.
    ///
    /// # Errors
    /// The page is no longer backed by its file: the waiting thread then notices this itself.
    pub fn ring(&self, bell: &Bell, offset: usize) -> io::Result<()> {
        bell.0.store(1, Ordering::Release);
        futex::wake(&bell.0, futex::Flags::empty(), i32::MAX.unsigned_abs())?;
        // This wakes a thread that waits only on the page. The guest never waits on this word.
        self.wake(offset)
    }

    fn store(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        // Earlier stores of ours must be visible before this one.
        fence(Ordering::SeqCst);
        self.file.write_all_at(bytes, checked(offset, bytes.len())?)
    }

    fn wait_for_page(&self, offset: usize, seen: u32, timeout: Duration) -> Result<(), Errno> {
        let word = self.word(offset).map_err(|_e| Errno::INVAL)?;
        let timeout = futex::Timespec::try_from(timeout).map_err(|_e| Errno::INVAL)?;
        futex::wait(word, futex::Flags::empty(), seen, Some(&timeout))
    }

    fn word_address(&self, offset: usize) -> io::Result<NonNull<u8>> {
        checked(offset, 4)?;
        // SAFETY: `checked` keeps the offset within the mapped page.
        Ok(unsafe { self.address.add(offset) })
    }

    /// The word at `offset` for a futex call. It must not be loaded or stored: see the head of this
    /// file.
    fn word(&self, offset: usize) -> io::Result<&AtomicU32> {
        let address = self.word_address(offset)?.cast::<u32>();
        // SAFETY: aligned and inside a mapping that lives as long as `self`; other processes change
        // it, which is what an atomic is for; it is passed to the kernel only, which answers EFAULT
        // where the page is gone.
        Ok(unsafe { AtomicU32::from_ptr(address.as_ptr()) })
    }
}

impl Words for ControlPage {
    type Error = io::Error;

    fn load(&self, offset: usize) -> io::Result<u32> {
        self.load_u32(offset)
    }

    fn store(&self, offset: usize, value: u32) -> io::Result<()> {
        self.store_u32(offset, value)
    }

    fn wake(&self, offset: usize) -> io::Result<()> {
        Self::wake(self, offset)
    }

    fn barrier(&self) {
        fence(Ordering::SeqCst);
    }
}

impl Drop for ControlPage {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; no reference into it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), PAGE_BYTES) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// The offset of an aligned word of `bytes` bytes that lies within the page.
fn checked(offset: usize, bytes: usize) -> io::Result<u64> {
    let inside = offset.checked_add(bytes).is_some_and(|end| end <= PAGE_BYTES);
    if !inside || !offset.is_multiple_of(bytes) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("no word of {bytes} bytes at {offset}"),
        ));
    }
    Ok(offset as u64)
}

fn wait_for_either(page: NonNull<u8>, seen: u32, bell: &AtomicU32, timeout: Duration) -> Result<(), Errno> {
    let mut words = [futex::Wait::new(); 2];
    let [on_page, on_bell] = &mut words;
    on_page.uaddr = futex::WaitPtr::new(page.as_ptr().cast());
    on_page.val = u64::from(seen);
    on_bell.uaddr = futex::WaitPtr::new(bell.as_ptr().cast());
    on_bell.val = 0;
    for word in [on_page, on_bell] {
        word.flags = futex::WaitFlags::SIZE_U32;
    }
    let until = deadline(timeout);
    futex::waitv(&words, futex::WaitvFlags::empty(), Some(&until), futex::ClockId::Monotonic).map(|_index| ())
}

/// `timeout` from now on the monotonic clock.
fn deadline(timeout: Duration) -> futex::Timespec {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let timeout =
        futex::Timespec::try_from(timeout).unwrap_or(futex::Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
    now.checked_add(timeout).unwrap_or(futex::Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Instant;

    use super::*;

    const WORD: usize = 24;
    const LONG: Duration = Duration::from_secs(20);

    fn page() -> (ControlPage, ControlPage) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        (ControlPage::map(file.try_clone().unwrap()).unwrap(), ControlPage::map(file).unwrap())
    }

    #[test]
    fn a_store_through_one_mapping_is_read_through_another() {
        let (ours, theirs) = page();
        ours.store_u32(WORD, 7).unwrap();
        ours.store_u64(16, u64::MAX - 1).unwrap();
        assert_eq!(theirs.load_u32(WORD).unwrap(), 7);
        let halves = [16, 20].map(|at| theirs.load_u32(at).unwrap());
        assert_eq!(halves, [u32::MAX - 1, u32::MAX]);
    }

    #[test]
    fn a_file_shorter_than_a_page_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4095).unwrap();
        assert!(matches!(ControlPage::map(file), Err(MapError::TooShort(4095))));
    }

    #[test]
    fn a_word_that_already_changed_is_not_waited_for() {
        let (ours, theirs) = page();
        theirs.store_u32(WORD, 1).unwrap();
        assert_eq!(ours.wait(WORD, 0, &Bell::default(), LONG).unwrap(), Woken::Page);
    }

    #[test]
    fn a_wake_from_the_other_side_ends_the_wait() {
        let (ours, theirs) = page();
        let guest = thread::spawn(move || {
            theirs.store_u32(WORD, 1).unwrap();
            theirs.wake(WORD).unwrap();
        });
        let begun = Instant::now();
        assert_eq!(ours.wait(WORD, 0, &Bell::default(), LONG).unwrap(), Woken::Page);
        assert!(begun.elapsed() < LONG / 2);
        guest.join().unwrap();
    }

    #[test]
    fn nothing_happening_is_a_timeout() {
        let (ours, _theirs) = page();
        let woken = ours.wait(WORD, 0, &Bell::default(), Duration::from_millis(5)).unwrap();
        assert_eq!(woken, Woken::Timeout);
    }

    #[test]
    fn a_bell_is_heard_before_and_during_a_wait() {
        let (ours, _theirs) = page();
        let (ours, bell) = (Arc::new(ours), Arc::new(Bell::default()));
        ours.ring(&bell, WORD).unwrap();
        assert_eq!(ours.wait(WORD, 0, &bell, LONG).unwrap(), Woken::Bell);
        let ringer = thread::spawn({
            let (ours, bell) = (Arc::clone(&ours), Arc::clone(&bell));
            move || ours.ring(&bell, WORD).unwrap()
        });
        assert_eq!(ours.wait(WORD, 0, &bell, LONG).unwrap(), Woken::Bell);
        ringer.join().unwrap();
    }

    #[test]
    fn a_file_shortened_under_us_is_an_error_not_a_signal() {
        let (ours, _theirs) = page();
        ours.file().set_len(0).unwrap();
        assert!(ours.load_u32(WORD).is_err());
        assert!(ours.wake(WORD).is_err());
        assert!(ours.wait(WORD, 0, &Bell::default(), Duration::from_millis(5)).is_err());
    }

    #[test]
    fn offsets_outside_the_page_or_unaligned_are_refused() {
        let (ours, _theirs) = page();
        for offset in [4093, 4094, 4096, usize::MAX, 2] {
            assert!(ours.load_u32(offset).is_err(), "{offset}");
            assert!(ours.wake(offset).is_err(), "{offset}");
        }
    }
}
