//! Functions that open and close descriptors, and that start, join and detach threads. On Linux only.
//!
//! In a process that is not tracked each function is a comparison and a jump. In a tracked process it calls the C
//! library's function with all registers unchanged, so that variadic arguments and cancellation work as before, and
//! records the result. While it waits there is no Rust frame on the stack; the frames of these routines can be unwound.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use memgate_ffi::process;
use memgate_session::handles::{self, Asked, Kept, Routine, Start};
use memgate_session::recording;
use memgate_tracker::capture::Registers;
use memgate_tracker::sys::{Errno, readable};

use super::Pointer;
use super::exec::{note_shell, shelling};
use super::function::{Function, exported, finding, functions, no_descriptor};

#[cfg_attr(target_arch = "x86_64", path = "x86_64/handles.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64/handles.rs")]
mod machine;

pub(super) fn bind() {
    ALL.iter().for_each(|function| function.bind_early());
}

/// Called in a recorded process.
pub(crate) fn find_table_place() {
    TABLE_PLACE.store(process::thread_table_place().unwrap_or(UNKNOWN), Ordering::Relaxed);
}

/// Offset of the address of the TLS table in a thread's control block.
static TABLE_PLACE: AtomicUsize = AtomicUsize::new(UNKNOWN);
const UNKNOWN: usize = usize::MAX;

/// Fails with a null pointer instead of a stream.
unsafe extern "C" fn no_stream() -> Pointer {
    Errno::of(libc::ENOSYS).restore();
    core::ptr::null_mut()
}

/// Fails to start a thread: returns the error code.
unsafe extern "C" fn no_thread() -> c_int {
    libc::EAGAIN
}

/// Fails with the error for a missing thread.
unsafe extern "C" fn no_such_thread() -> c_int {
    libc::ESRCH
}

functions! {
    open no_descriptor open64 no_descriptor openat no_descriptor openat64 no_descriptor
    __open_2 no_descriptor __open64_2 no_descriptor __openat_2 no_descriptor __openat64_2 no_descriptor
    creat no_descriptor creat64 no_descriptor
    mkstemp no_descriptor mkstemp64 no_descriptor mkostemp no_descriptor mkostemp64 no_descriptor
    shm_open no_descriptor memfd_create no_descriptor posix_openpt no_descriptor
    socket no_descriptor accept no_descriptor accept4 no_descriptor
    dup no_descriptor dup2 no_descriptor dup3 no_descriptor fcntl no_descriptor fcntl64 no_descriptor
    epoll_create no_descriptor epoll_create1 no_descriptor eventfd no_descriptor timerfd_create no_descriptor
    signalfd no_descriptor inotify_init no_descriptor inotify_init1 no_descriptor
    pipe no_descriptor pipe2 no_descriptor socketpair no_descriptor
    fopen no_stream fopen64 no_stream tmpfile no_stream tmpfile64 no_stream popen no_stream opendir no_stream
    close no_descriptor fclose no_descriptor pclose no_descriptor closedir no_descriptor
    pthread_create no_thread
    pthread_join no_such_thread pthread_detach no_such_thread
    pthread_tryjoin_np no_such_thread pthread_timedjoin_np no_such_thread pthread_clockjoin_np no_such_thread
}

exported! { "memgate_opens":
    open open64 openat openat64 __open_2 __open64_2 __openat_2 __openat64_2 creat creat64
    mkstemp mkstemp64 mkostemp mkostemp64 shm_open memfd_create posix_openpt
    socket accept accept4 dup dup2 dup3
    epoll_create epoll_create1 eventfd timerfd_create signalfd inotify_init inotify_init1
}
exported! { "memgate_duplicates": fcntl fcntl64 }
exported! { "memgate_opens_two_at_first": pipe pipe2 }
exported! { "memgate_opens_two_at_fourth": socketpair }
exported! { "memgate_opens_stream": fopen fopen64 tmpfile tmpfile64 }
exported! { "memgate_opens_folder": opendir }
exported! { "memgate_closes": close }
exported! { "memgate_closes_stream": fclose pclose }
exported! { "memgate_closes_folder": closedir }
exported! { "memgate_starts": pthread_create }
exported! { "memgate_gives_up": pthread_join pthread_detach }
exported! { "memgate_tries": pthread_tryjoin_np pthread_timedjoin_np pthread_clockjoin_np }

/// C's `popen`, which starts a program like `system`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen() {
    shelling!(note_shell, popen::FUNCTION, "memgate_opens_stream")
}

extern "C" fn opened(descriptor: c_int, pc: usize, sp: usize, fp: usize) {
    handles::opened(descriptor, Registers { pc, sp, fp });
}

unsafe extern "C" fn opened_two(place: *const [c_int; 2], pc: usize, sp: usize, fp: usize) {
    // SAFETY: after success both descriptors are written.
    for descriptor in unsafe { *place } {
        handles::opened(descriptor, Registers { pc, sp, fp });
    }
}

unsafe extern "C" fn stream_opened(stream: *mut libc::FILE, pc: usize, sp: usize, fp: usize) {
    // SAFETY: a stream that was just opened.
    handles::opened(unsafe { libc::fileno(stream) }, Registers { pc, sp, fp });
}

unsafe extern "C" fn folder_opened(folder: *mut libc::DIR, pc: usize, sp: usize, fp: usize) {
    // SAFETY: a directory that was just opened.
    handles::opened(unsafe { libc::dirfd(folder) }, Registers { pc, sp, fp });
}

extern "C" fn closes(descriptor: c_int) {
    handles::closes(descriptor);
}

unsafe extern "C" fn stream_closes(stream: *mut libc::FILE) {
    let errno = Errno::save();
    // SAFETY: the caller's stream; one without a descriptor has -1.
    handles::closes(unsafe { libc::fileno(stream) });
    errno.restore();
}

unsafe extern "C" fn folder_closes(folder: *mut libc::DIR) {
    let errno = Errno::save();
    // SAFETY: the C library's function gives EINVAL for a null pointer.
    if !folder.is_null() {
        // SAFETY: the caller's directory.
        handles::closes(unsafe { libc::dirfd(folder) });
    }
    errno.restore();
}

unsafe extern "C" fn starts(
    place: usize,
    attributes: *const libc::pthread_attr_t,
    routine: usize,
    argument: usize,
    sp: usize,
    fp: usize,
) -> Option<&'static Start> {
    /// Distance of the caller's return address below its stack pointer.
    const RETURN_BELOW: usize = if cfg!(target_arch = "aarch64") { 88 } else { 8 };
    // SAFETY: the calling routine has stored it there.
    let pc = unsafe { ptr::with_exposed_provenance::<usize>(sp.wrapping_sub(RETURN_BELOW)).read() };
    // SAFETY: the caller's attributes.
    let is_detached = !attributes.is_null() && unsafe { is_detached(attributes) };
    let thread = Asked { place, is_detached, routine, argument };
    handles::starts(&thread, Registers { pc, sp, fp })
}

unsafe fn is_detached(attributes: *const libc::pthread_attr_t) -> bool {
    let mut state = libc::PTHREAD_CREATE_JOINABLE;
    // SAFETY: the caller's attributes, and a variable for the result.
    let failed = unsafe { pthread_attr_getdetachstate(attributes, &raw mut state) } != 0;
    !failed && state == libc::PTHREAD_CREATE_DETACHED
}

unsafe extern "C" {
    fn pthread_attr_getdetachstate(attributes: *const libc::pthread_attr_t, state: *mut c_int) -> c_int;
    fn pthread_self() -> usize;
}

extern "C" fn started(start: &Start) {
    // SAFETY: the C library has written the thread's handle there. Only the caller, who waits, knows the thread yet.
    let read = |place| unsafe { ptr::with_exposed_provenance::<usize>(place).read() };
    handles::started(start, start.place().map(read));
}

/// A thread is about to be joined or detached. Called before that, because afterwards its memory may belong to another
/// thread.
extern "C" fn gives_up(thread: usize) {
    handles::given_up(thread, table_of(thread));
}

/// A thread is joined if it has ended or ends in time. Returns a word for [`tried`].
extern "C" fn tries(thread: usize) -> usize {
    handles::tries_to_join(thread, table_of(thread))
}

extern "C" fn tried(told: usize, failed: c_int) {
    handles::tried_to_join(told, failed == 0);
}

/// The block that holds a thread's TLS table. glibc keeps the block, with the thread's stack, for later threads.
fn table_of(thread: usize) -> Option<Kept> {
    const ENTRY: usize = 2 * size_of::<usize>();
    /// The entry with the length, and the entry of the generation.
    const MORE_ENTRIES: usize = 2;
    let word = |at: usize| {
        // The caller may pass a value that is not a thread, so check before reading.
        let can_be_read =
            at.is_multiple_of(size_of::<usize>()) && recording::asks_the_kernel() && readable(at);
        // SAFETY: any bits are a word, and the address is readable.
        can_be_read.then(|| unsafe { ptr::with_exposed_provenance::<usize>(at).read() })
    };
    let place = TABLE_PLACE.load(Ordering::Relaxed);
    let table = word(thread.checked_add(place).filter(|_| place != UNKNOWN)?)?;
    // The table begins after the entry that contains its length.
    let address = table.checked_sub(ENTRY)?;
    let bytes = word(address)?.checked_add(MORE_ENTRIES)?.checked_mul(ENTRY)?;
    Some(Kept { address, bytes: bytes as u64 })
}

extern "C" fn start_failed(start: &Start) {
    handles::start_failed(start);
}

extern "C" fn begun(start: &Start) -> Routine {
    // SAFETY: always succeeds.
    let thread = unsafe { pthread_self() };
    handles::begun(start, thread, table_of(thread))
}
