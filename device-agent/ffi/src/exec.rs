//! The arguments, the environment and the working directory of a program that is about to start.
//!
//! All this code may run in the child of a `vfork`, which shares its parent's memory and may use only signal-safe
//! functions. So it does not allocate from a heap, take a lock, or keep a descriptor.

use core::ffi::{CStr, c_char};
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// A null-terminated array of strings, as `execve` takes it.
#[derive(Clone, Copy)]
pub struct Strings<'a> {
    at: *const *const c_char,
    borrowed: PhantomData<&'a CStr>,
}

impl<'a> Strings<'a> {
    /// # Safety
    /// Null, or a null-terminated array of terminated strings, all of which outlive the value.
    #[must_use]
    pub const unsafe fn new(at: *const *const c_char) -> Self {
        Self { at, borrowed: PhantomData }
    }

    /// The environment of this process.
    #[must_use]
    pub fn environment() -> Self {
        unsafe extern "C" {
            static environ: *const *const c_char;
        }
        // SAFETY: a word of the C library. Another thread that changes it meanwhile has a race with every start of a
        // program anyway.
        let at = unsafe { ptr::read_volatile(&raw const environ) };
        // SAFETY: the C library keeps the array terminated.
        unsafe { Self::new(at) }
    }

    /// The array for a C function.
    #[must_use]
    pub const fn as_ptr(self) -> *const *const c_char {
        self.at
    }

    /// The value of the last variable of this name: `name` ends with `=`.
    #[must_use]
    pub fn value(self, name: &[u8]) -> Option<&'a [u8]> {
        self.filter_map(|text| text.to_bytes().strip_prefix(name)).last()
    }
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a CStr;

    fn next(&mut self) -> Option<&'a CStr> {
        if self.at.is_null() {
            return None;
        }
        // SAFETY: before the null pointer there is always another element: see `new`.
        let text = unsafe { self.at.read() };
        if text.is_null() {
            return None;
        }
        self.at = self.at.wrapping_add(1);
        // SAFETY: a terminated string.
        Some(unsafe { CStr::from_ptr(text) })
    }
}

/// Scratch memory for one start of a program: there may be no heap, and little stack. It is mapped once and reused.
///
/// The child of a `vfork` takes a place in its parent's memory. When the new program begins, the child is gone and
/// cannot return the place. The thread that started the child waits until then. So that thread, or another child of it,
/// may take the same place again. (A child that shares memory and thread-local storage and runs in parallel with its
/// parent must not start programs at the same time.)
pub struct Room {
    /// `None`: all places were taken.
    place: Option<&'static Place>,
    map: *mut u8,
    bytes: usize,
}

struct Place {
    /// Id of the process that uses this place; 0: none.
    by: AtomicU32,
    /// The thread that uses it; 0: unknown.
    thread: AtomicU64,
    map: AtomicPtr<u8>,
    bytes: AtomicUsize,
}

static PLACES: [Place; 16] = [const {
    Place {
        by: AtomicU32::new(0),
        thread: AtomicU64::new(0),
        map: AtomicPtr::new(ptr::null_mut()),
        bytes: AtomicUsize::new(0),
    }
}; 16];

impl Place {
    fn take(&self, process: u32, thread: u64) -> bool {
        let by = self.by.load(Ordering::Acquire);
        let is_free = by == 0 || by != process && self.thread.load(Ordering::Relaxed) == thread;
        let is_taken =
            is_free && self.by.compare_exchange(by, process, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if is_taken {
            self.thread.store(thread, Ordering::Relaxed);
        }
        is_taken
    }

    fn give_back(&self) {
        self.thread.store(0, Ordering::Relaxed);
        self.by.store(0, Ordering::Release);
    }
}

impl Room {
    /// Size of [`Room::front`] in bytes.
    pub const FRONT: usize = 4096;

    /// Takes scratch memory. `None`: no memory.
    #[must_use]
    pub fn new() -> Option<Self> {
        // SAFETY: always succeeds.
        let thread = unsafe { libc::pthread_self() };
        let process = crate::process::pid();
        let place = PLACES.iter().find(|place| place.take(process, thread));
        let (map, bytes) = place.map_or((ptr::null_mut(), 0), |place| {
            (place.map.load(Ordering::Relaxed), place.bytes.load(Ordering::Relaxed))
        });
        let mut room = Self { place, map, bytes };
        room.holds(Self::FRONT).then_some(room)
    }

    /// Makes sure that the memory has this many bytes. The content of the front may be lost.
    fn holds(&mut self, bytes: usize) -> bool {
        if bytes <= self.bytes {
            return true;
        }
        let bytes = bytes.saturating_add(Self::FRONT).next_multiple_of(4096);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a mapping at an address of the kernel's choice.
        let map =
            unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if map == libc::MAP_FAILED {
            return false;
        }
        self.unmap();
        (self.map, self.bytes) = (map.cast(), bytes);
        if let Some(place) = self.place {
            place.map.store(self.map, Ordering::Relaxed);
            place.bytes.store(bytes, Ordering::Relaxed);
        }
        true
    }

    fn unmap(&self) {
        if !self.map.is_null() {
            // SAFETY: the mapping belongs to this value.
            unsafe { libc::munmap(self.map.cast(), self.bytes) };
        }
    }

    /// The front part, for any use. Its content is undefined.
    pub fn front(&mut self) -> &mut [u8; Self::FRONT] {
        // SAFETY: mapped, with this size, and used only by this value.
        unsafe { &mut *self.map.cast() }
    }

    /// Writes an environment in which some variables have other values. Called before the front is used. `changes`: the
    /// name with `=`, and the parts of its new value. A variable without parts is removed. `None`: no memory.
    #[must_use]
    pub fn environment(
        &mut self,
        base: Strings<'_>,
        changes: &[(&[u8], &[&[u8]])],
    ) -> Option<*const *const c_char> {
        let word = size_of::<*const c_char>();
        let texts: usize = changes
            .iter()
            .map(|(name, parts)| {
                parts.iter().fold(name.len().saturating_add(1), |sum, part| sum.saturating_add(part.len()))
            })
            .sum();
        let slots = base.count().saturating_add(changes.len()).saturating_add(1).saturating_mul(word);
        if !self.holds(Self::FRONT.saturating_add(slots).saturating_add(texts)) {
            return None;
        }
        let first = self.map.wrapping_add(Self::FRONT).cast::<*const c_char>();
        let mut slot = first;
        let mut text = self.map.wrapping_add(Self::FRONT).wrapping_add(slots);
        let is_changed =
            |variable: &CStr| changes.iter().any(|(name, _)| variable.to_bytes().starts_with(name));
        for variable in base.filter(|variable| !is_changed(variable)) {
            // SAFETY: there is a slot for each variable, for each change, and for the end.
            unsafe { slot.write(variable.as_ptr()) };
            slot = slot.wrapping_add(1);
        }
        for (name, parts) in changes.iter().filter(|(_, parts)| !parts.is_empty()) {
            // SAFETY: as above.
            unsafe { slot.write(text.cast()) };
            slot = slot.wrapping_add(1);
            for part in core::iter::once(name).chain(parts.iter()).chain([&b"\0".as_slice()]) {
                // SAFETY: the room for all of them was counted.
                unsafe { ptr::copy_nonoverlapping(part.as_ptr(), text, part.len()) };
                text = text.wrapping_add(part.len());
            }
        }
        // SAFETY: as above.
        unsafe { slot.write(ptr::null()) };
        Some(first)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        match self.place {
            Some(place) => place.give_back(),
            None => self.unmap(),
        }
    }
}

/// An access right to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// Reading the file.
    Read,
    /// Creating files in it (a folder).
    Create,
    /// Running the file.
    Run,
}

/// Does this process, with its effective user, have this right?
#[must_use]
pub fn may(right: Right, path: &CStr) -> bool {
    let mode = match right {
        Right::Read => libc::R_OK,
        Right::Create => libc::W_OK | libc::X_OK,
        Right::Run => libc::X_OK,
    };
    // SAFETY: a terminated path.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), mode, libc::AT_EACCESS) == 0 }
}

/// The effective user of this process.
#[must_use]
pub fn effective_user() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}

/// Does the effective user have this right after a program is started? Checks only the permission bits of the file and
/// of the folders in its path: a process that changed its user may still have capabilities that it loses when it starts
/// a program. `folder`: scratch memory for the path of one folder.
#[must_use]
pub fn may_when_started(right: Right, path: &CStr, folder: &mut [u8]) -> bool {
    let user = effective_user();
    let bits = |path: &CStr, bits: u32| {
        status_of(path).is_some_and(|(mode, owner)| {
            let allowed = if owner == user { mode >> 6 } else { mode };
            allowed & bits == bits
        })
    };
    for (at, _) in path.to_bytes().iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at > 0) {
        let from = path.to_bytes().get(..at).unwrap_or_default();
        let Some((to, [end, ..])) = folder.split_at_mut_checked(at) else { return false };
        to.copy_from_slice(from);
        *end = 0;
        if !CStr::from_bytes_until_nul(folder).is_ok_and(|folder| bits(folder, 0o1)) {
            return false;
        }
    }
    bits(
        path,
        match right {
            Right::Read => 0o4,
            Right::Create => 0o3,
            Right::Run => 0o1,
        },
    )
}

/// Mode of a regular file; `None`: there is no such file.
#[must_use]
pub fn mode_of_file(path: &CStr) -> Option<u32> {
    status_of(path).map(|(mode, _)| mode).filter(|mode| mode & libc::S_IFMT == libc::S_IFREG)
}

/// Mode and owner.
fn status_of(path: &CStr) -> Option<(u32, u32)> {
    let mut found = core::mem::MaybeUninit::<libc::stat>::uninit();
    // Called by its number, because the C library's function of this name is newer than the oldest libraries that the
    // agent supports.
    // SAFETY: a terminated path; writes the structure.
    let status =
        unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), found.as_mut_ptr(), 0) };
    if status != 0 {
        return None;
    }
    // SAFETY: written by the call.
    let found = unsafe { found.assume_init() };
    Some((found.st_mode, found.st_uid))
}

/// Writes the working directory to `into`, without a NUL. Returns its length in bytes, 0 if it is unknown.
pub fn current_folder(into: &mut [u8]) -> usize {
    // SAFETY: writes at most this many bytes. The C library's function may allocate; the kernel's does not.
    let got = unsafe { libc::syscall(libc::SYS_getcwd, into.as_mut_ptr(), into.len()) };
    usize::try_from(got).unwrap_or(0).saturating_sub(1)
}

/// Runs `work` and restores `errno` afterwards.
pub fn with_errno_kept<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the address of this thread's word.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: a word of this thread.
    let before = unsafe { errno.read() };
    let result = work();
    // SAFETY: as above.
    unsafe { errno.write(before) };
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: &[&CStr]) -> Vec<*const c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
    }

    #[test]
    fn an_environment_is_changed_in_a_copy() {
        let array = strings(&[c"A=1", c"LD_PRELOAD=/a.so:/b.so", c"AB=2"]);
        // SAFETY: terminated, and it lives to the end of the test.
        let base = unsafe { Strings::new(array.as_ptr()) };
        assert_eq!(base.value(b"LD_PRELOAD="), Some(b"/a.so:/b.so".as_slice()));
        let changes: [(&[u8], &[&[u8]]); 2] = [(b"LD_PRELOAD=", &[b"/b", b".so"]), (b"NEW=", &[b"x"])];
        let mut room = Room::new().unwrap();
        let changed = room.environment(base, &changes).unwrap();
        room.front().fill(b'#');
        // SAFETY: terminated; the room lives to the end of the test.
        let after: Vec<&CStr> = unsafe { Strings::new(changed) }.collect();
        assert_eq!(after, [c"A=1", c"AB=2", c"LD_PRELOAD=/b.so", c"NEW=x"]);
        let changed = room.environment(base, &[(b"LD_PRELOAD=", &[])]).unwrap();
        // SAFETY: as above.
        let after: Vec<&CStr> = unsafe { Strings::new(changed) }.collect();
        assert_eq!(after, [c"A=1", c"AB=2"]);
        let long = vec![b'x'; 100_000];
        let changed = room.environment(base, &[(b"A=", &[&long])]).unwrap();
        // SAFETY: as above.
        let after = unsafe { Strings::new(changed) };
        assert_eq!(after.value(b"A=").map(<[u8]>::len), Some(100_000), "the room has grown");
    }

    #[test]
    fn a_room_is_taken_from_its_thread_only_by_the_next_child_of_it() {
        let place = &Place {
            by: AtomicU32::new(0),
            thread: AtomicU64::new(0),
            map: AtomicPtr::new(ptr::null_mut()),
            bytes: AtomicUsize::new(0),
        };
        let (process, child, other_child) = (10, 11, 12);
        assert!(place.take(child, 7), "it is free");
        assert!(!place.take(child, 7), "a signal handler in the child");
        assert!(!place.take(process, 8) && !place.take(other_child, 8), "another thread");
        assert!(place.take(other_child, 7) && place.take(process, 7), "the child before has gone");
        assert!(!place.take(process, 7), "a signal handler");
        place.give_back();
        assert!(place.take(process, 8));
    }

    #[test]
    fn what_a_file_is_and_allows_is_told() {
        let own = std::ffi::CString::new(std::env::current_exe().unwrap().to_str().unwrap()).unwrap();
        let folder = &mut [b'#'; 1024];
        assert!(may(Right::Run, &own) && mode_of_file(&own).is_some_and(|mode| mode & 0o100 != 0));
        assert!(
            may_when_started(Right::Read, &own, folder)
                && !may_when_started(Right::Read, c"/no/such/file", folder)
        );
        assert!(mode_of_file(c"/").is_none() && !may(Right::Read, c"/no/such/file"));
        let mut folder = [0; 512];
        let bytes = current_folder(&mut folder);
        assert_eq!(&folder[..bytes], std::env::current_dir().unwrap().to_str().unwrap().as_bytes());
    }
}
