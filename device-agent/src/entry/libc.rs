//! Interposed functions of the C library other than allocation: those that end the process, and those that load and
//! unload libraries. Also data of the loader. On Linux only.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use memgate_ffi::process;
use memgate_session::{self as session, recording};
use memgate_tracker::cfi::FindObject;
use memgate_tracker::thread::Inside;
use memgate_wire::GoodbyeReason;

use super::{Pointer, text};

#[cfg_attr(target_arch = "x86_64", path = "x86_64/libc.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64/libc.rs")]
mod machine;
use machine::loading;

/// `main` has returned or the program calls `exit`.
pub(crate) fn main_ends() {
    if recording::is_tracking() {
        session::main_ends();
    }
}

static DLCLOSE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static EXIT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static FULL_EXIT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static QUICK_EXIT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

pub(super) fn bind() {
    for (slot, name) in [
        (&DLCLOSE, c"dlclose"),
        (&DLOPEN, c"dlopen"),
        (&DLMOPEN, c"dlmopen"),
        (&FULL_EXIT, c"exit"),
        (&EXIT, c"_exit"),
        (&QUICK_EXIT, c"quick_exit"),
    ] {
        next_of(slot, name);
    }
}

pub(crate) fn next_of(slot: &AtomicPtr<c_void>, name: &CStr) -> Pointer {
    let known = slot.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let found = process::next_symbol(name) as Pointer;
    slot.store(found, Ordering::Relaxed);
    found
}

/// C's `dlclose`: another object may be loaded later at the addresses of an unloaded one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: Pointer) -> c_int {
    let real = next_of(&DLCLOSE, c"dlclose");
    // SAFETY: the loader's own function.
    let real = unsafe { core::mem::transmute::<Pointer, unsafe extern "C" fn(Pointer) -> c_int>(real) };
    let tracked = recording::is_tracking() && !Inside::now();
    let before = if tracked { session::module_unloads() } else { None };
    // SAFETY: the caller's handle.
    let status = unsafe { real(handle) };
    if let Some(before) = before {
        session::module_unloaded(before);
    }
    status
}

static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static DLMOPEN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// `RTLD_DEEPBIND` of glibc and of musl, which ignores it.
const DEEPBIND: c_int = 8;

/// A function that loads a library. Its arguments decide whether `bypassing_library` is called.
macro_rules! loads {
    ($(#[$about:meta])* $name:ident $slot:ident $find:ident $text:literal) => {
        $(#[$about])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            loading!($name, bypassing_library, $slot, $find)
        }

        extern "C" fn $find() -> Pointer {
            found_or_none(next_of(&$slot, $text))
        }
    };
}

loads!(
    /// C's `dlopen`. A jump keeps the caller's return address where the loader expects it: the loader searches the
    /// caller's run path and name space. A library loaded with RTLD_DEEPBIND searches the C library for `malloc` before
    /// this library.
    dlopen DLOPEN find_dlopen c"dlopen"
);
loads!(
    /// C's `dlmopen`: a library in another name space has its own C library.
    dlmopen DLMOPEN find_dlmopen c"dlmopen"
);

/// If the C library has no such function, the call returns null.
fn found_or_none(found: Pointer) -> Pointer {
    extern "C" fn none() -> Pointer {
        core::ptr::null_mut()
    }
    if found.is_null() { none as extern "C" fn() -> Pointer as Pointer } else { found }
}

/// `name_space`: 0 means the process's own.
unsafe extern "C" fn bypassing_library(path: *const c_char, name_space: isize) {
    // SAFETY: the loader's contract: a terminated string, or null for the program itself.
    if !path.is_null() && unsafe { path.read() } != 0 {
        // SAFETY: as above.
        session::library_bypasses(|| unsafe { text(path) }, name_space != 0);
    }
}

type Exit = unsafe extern "C" fn(c_int) -> !;

fn leave(real: Pointer, status: c_int) -> ! {
    if recording::is_tracking() {
        session::ends(GoodbyeReason::QuickExit, Some(status));
    }
    if real.is_null() {
        process::end(status);
    }
    // SAFETY: the C library's own function.
    let real = unsafe { core::mem::transmute::<Pointer, Exit>(real) };
    // SAFETY: never returns.
    unsafe { real(status) }
}

/// C's `exit`. When `main` returns, the C library calls its own.
#[unsafe(no_mangle)]
pub extern "C" fn exit(status: c_int) -> ! {
    main_ends();
    let real = next_of(&FULL_EXIT, c"exit");
    // SAFETY: the C library's own function.
    let real = unsafe { core::mem::transmute::<Pointer, Exit>(real) };
    // SAFETY: never returns.
    unsafe { real(status) }
}

/// C's `_exit`. A signal handler may call it before the agent is loaded, so it is not looked up here.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    leave(EXIT.load(Ordering::Relaxed), status)
}

/// C's `_Exit`.
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    leave(EXIT.load(Ordering::Relaxed), status)
}

/// C's `quick_exit`.
#[unsafe(no_mangle)]
pub extern "C" fn quick_exit(status: c_int) -> ! {
    leave(next_of(&QUICK_EXIT, c"quick_exit"), status)
}

/// glibc's lock-free lookup of unwind tables, where the C library has it (2.35 and later).
pub(crate) fn find_object() -> Option<FindObject> {
    let at = process::symbol(c"_dl_find_object");
    // SAFETY: a function of that name has this signature.
    (at != 0).then(|| unsafe { core::mem::transmute::<usize, FindObject>(at) })
}

/// Top of the main thread's stack from glibc's loader; 0: unknown.
pub(crate) fn stack_end() -> usize {
    let at = process::symbol(c"__libc_stack_end") as *const usize;
    // SAFETY: a word of the loader, written before the first constructor.
    if at.is_null() { 0 } else { unsafe { at.read() } }
}

core::arch::global_asm!(
    ".weak _Znwm",
    ".weak _ZdlPv",
    ".weak _ZN7testing8UnitTest11GetInstanceEv",
    ".pushsection .data.rel.ro.memgate_weak,\"aw\",@progbits",
    ".p2align 3",
    ".hidden memgate_weak",
    ".globl memgate_weak",
    "memgate_weak:",
    ".quad _Znwm",
    ".quad _ZdlPv",
    ".quad _ZN7testing8UnitTest11GetInstanceEv",
    ".popsection",
);

unsafe extern "C" {
    static memgate_weak: [AtomicUsize; 3];
}

/// Addresses of `operator new`, `operator delete` and GoogleTest's `UnitTest::GetInstance` in the global scope; 0:
/// none. The loader fills them in: a `dlsym` call for a missing name would leave the error text in the guest's heap.
pub(crate) fn weak() -> [usize; 3] {
    // SAFETY: words of this library that are only read.
    let words = unsafe { &memgate_weak };
    [0, 1, 2].map(|i| words.get(i).map_or(0, |word| word.load(Ordering::Relaxed)))
}
