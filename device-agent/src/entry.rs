//! The interposed functions: the allocation functions, and on Linux some other functions of the C library. Each is one
//! guarded call; the implementation is elsewhere.
//!
//! The allocation functions are naked trampolines. In a process that is not tracked they are one comparison and one
//! jump to the next allocator. In a tracked process they pass the caller's stack and frame pointer to the hook of the
//! same name. All assembler code is in one folder per machine.
#![expect(unsafe_code, reason = "exports and trampolines: the border to C")]
#![expect(unreachable_pub, reason = "exported to C, not to Rust")]

#[cfg_attr(target_arch = "x86_64", path = "entry/x86_64/allocation.rs")]
#[cfg_attr(target_arch = "aarch64", path = "entry/aarch64/allocation.rs")]
mod allocation;
#[cfg(target_os = "android")]
mod bionic;
#[cfg(not(target_os = "android"))]
mod controls;
#[cfg(not(target_os = "android"))]
mod exec;
#[cfg(not(target_os = "android"))]
mod function;
#[cfg(not(target_os = "android"))]
mod handles;
#[cfg(not(target_os = "android"))]
mod libc;
#[cfg(not(target_os = "android"))]
mod mappings;

use core::ffi::{CStr, c_char, c_void};

use memgate_ffi::process;
use memgate_session::recording::TRACKER;

#[cfg(target_os = "android")]
pub(crate) use self::bionic::{find_object, stack_end, weak};
#[cfg(not(target_os = "android"))]
pub(crate) use self::handles::find_table_place;
#[cfg(not(target_os = "android"))]
pub(crate) use self::libc::{find_object, main_ends, next_of, stack_end, weak};

pub(crate) type Pointer = *mut c_void;

/// Looks up the C library's functions, in every process. A later `dlsym` would wait for a thread that loads a library,
/// and that library's constructor may wait for the calling thread. Signal handlers and children of `vfork` must not
/// call `dlsym` either.
#[cfg(not(target_os = "android"))]
pub(crate) fn bind() {
    controls::bind();
    mappings::bind();
    libc::bind();
    exec::bind();
    handles::bind();
}

/// Allocates and frees a block with these functions: does the tracker see it?
fn is_seen(allocate: usize, free: usize) -> bool {
    if allocate == 0 || free == 0 {
        return false;
    }
    let seen = TRACKER.totals().allocations;
    // SAFETY: `malloc`, or `operator new(unsigned long)`, of the first library that has it.
    let allocate = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(usize) -> Pointer>(allocate) };
    // SAFETY: a plain request.
    let block = unsafe { allocate(61) };
    let passed = TRACKER.totals().allocations != seen;
    // SAFETY: `free`, or `operator delete(void*)`, its counterpart.
    let free = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(Pointer)>(free) };
    // SAFETY: the block just allocated.
    unsafe { free(block) };
    passed
}

/// The reason why this process's allocations do not pass through the agent, if they do not. Recording must be on,
/// because this function allocates.
pub(crate) fn blind() -> Option<String> {
    let first = process::symbol(c"malloc");
    // Not compared with our own `malloc` by name, because here, too, that name means the first `malloc`.
    let is_ours = process::object_of(first) == process::object_of(blind as fn() -> Option<String> as usize);
    // A program that is linked to a fixed address has its own stubs, which come first and lead here.
    if !is_ours && !is_seen(first, process::symbol(c"free")) {
        return Some(format!(
            "the malloc of {} comes before the agent's; build or run it without that allocator for the gate",
            process::path_of(first)
        ));
    }
    let [new, delete, _] = weak();
    if new == 0 || delete == 0 || is_stock_library(&process::path_of(new)) {
        return None;
    }
    (!is_seen(new, delete)).then(|| {
        format!(
            "operator new of {} does not pass through malloc (a sanitizer, or an allocator of the program's own); \
             build or run it without that for the gate",
            process::path_of(new)
        )
    })
}

/// Is this a library that certainly passes through `malloc`? If so, the guest's heap stays untouched.
fn is_stock_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    ["libstdc++.so", "libc++.so", "libc++abi.so"].iter().any(|stock| name.starts_with(stock))
}

/// Copies a C string.
///
/// # Safety
/// `from` must be null or a terminated string.
pub(crate) unsafe fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: the C API requires terminated strings.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}
