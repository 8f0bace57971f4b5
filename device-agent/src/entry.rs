//! Everything this library exports. One guarded call each; what they do stands elsewhere.
//!
//! The allocation functions are naked trampolines: in a process that is not tracked they are one
//! comparison and one jump to the next allocator; in a tracked one they pass the caller's stack and
//! frame pointer on to the hook of the same name.
#![expect(unsafe_code, reason = "exports and trampolines: the border to C")]
#![expect(unreachable_pub, reason = "exported to C, not to Rust")]

#[cfg_attr(target_arch = "x86_64", path = "entry/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "entry/aarch64.rs")]
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

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64};

use memgate_ffi::process;
use memgate_wire::Outcome;

#[cfg(target_os = "android")]
use self::bionic::weak;
#[cfg(not(target_os = "android"))]
pub(crate) use self::controls::bind_controls;
#[cfg(not(target_os = "android"))]
pub(crate) use self::exec::bind as bind_starts;
#[cfg(not(target_os = "android"))]
pub(crate) use self::handles::{bind_all, find_thread_id, noted_thread_id};
#[cfg(not(target_os = "android"))]
pub(crate) use self::libc::{find_object, stack_end, weak};
use crate::native::{hooks, leak_info};
use crate::session;

type Pointer = *mut c_void;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    session::load();
    // There is no `main` to wait for: an app's process begins in the runtime.
    #[cfg(target_os = "android")]
    session::start();
}

/// Destructor of the agent's thread key.
pub(crate) unsafe extern "C" fn thread_ends(round: Pointer) {
    session::thread_ends(round as usize);
}

/// Lets the tracker publish its counters to the four words this place points at.
pub(crate) fn publish_to(place: &'static AtomicPtr<AtomicU64>) {
    // SAFETY: the place is static; control pages it points at stay mapped until the process ends or
    // the pointer is replaced.
    unsafe { hooks::TRACKER.publish_to(core::ptr::from_ref(place).cast_mut()) };
}

/// Allocates with one function and frees with its counterpart: does the tracker hear of it?
fn is_seen(allocate: usize, free: usize) -> bool {
    if allocate == 0 || free == 0 {
        return false;
    }
    let seen = hooks::TRACKER.totals().allocations;
    // SAFETY: `malloc`, or `operator new(unsigned long)`, of whatever library comes first.
    let allocate = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(usize) -> Pointer>(allocate) };
    // SAFETY: a plain request.
    let block = unsafe { allocate(61) };
    let passed = hooks::TRACKER.totals().allocations != seen;
    // SAFETY: `free`, or `operator delete(void*)`, its counterpart.
    let free = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(Pointer)>(free) };
    // SAFETY: the block just allocated.
    unsafe { free(block) };
    passed
}

/// Why this process's allocations do not come through here, if they do not. Recording must be on:
/// this allocates.
pub(crate) fn blind() -> Option<String> {
    let first = process::symbol(c"malloc", false);
    // Not compared with our own `malloc` by name: that name means the first one here, too.
    let is_ours = process::object_of(first) == process::object_of(blind as fn() -> Option<String> as usize);
    // A program that is linked to a fixed address has stubs of its own, which come first and lead
    // here.
    if !is_ours && !is_seen(first, process::symbol(c"free", false)) {
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

/// Do these pass through `malloc` for certain? Then the guest's heap stays untouched.
fn is_stock_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    ["libstdc++.so", "libc++.so", "libc++abi.so"].iter().any(|stock| name.starts_with(stock))
}

unsafe fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: the C API asks for terminated strings.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}

/// See `memgate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn memgate_active() -> c_int {
    c_int::from(session::is_active())
}

/// See `memgate.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memgate_test_begin(suite: *const c_char, test: *const c_char) {
    // SAFETY: the contract of `memgate.h`.
    let suite = unsafe { text(suite) };
    // SAFETY: as above.
    session::test_begins(&suite, &unsafe { text(test) });
}

/// See `memgate.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memgate_test_end(suite: *const c_char, test: *const c_char, outcome: c_int) {
    let outcome = match outcome {
        0 => Outcome::Passed,
        2 => Outcome::Skipped,
        _ => Outcome::Failed,
    };
    // SAFETY: the contract of `memgate.h`.
    let suite = unsafe { text(suite) };
    // SAFETY: as above.
    session::test_ends(&suite, &unsafe { text(test) }, Some(outcome));
}

/// See `memgate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn memgate_iteration(iteration: u32) {
    session::iteration_begins(iteration);
}

/// See `memgate.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memgate_mark(name: *const c_char) {
    // SAFETY: the contract of `memgate.h`.
    session::mark(&unsafe { text(name) });
}

/// See `memgate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn memgate_settle() {
    session::settle();
}

/// See `memgate.h`: all five results are written in any case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memgate_get_malloc_leak_info(
    info: *mut *const u64,
    overall_size: *mut usize,
    info_size: *mut usize,
    total_memory: *mut usize,
    backtrace_size: *mut usize,
) {
    if info.is_null()
        || overall_size.is_null()
        || info_size.is_null()
        || total_memory.is_null()
        || backtrace_size.is_null()
    {
        return;
    }
    let taken = session::is_active().then(leak_info::take).flatten();
    // SAFETY: the caller passes a place for the address.
    unsafe { *info = taken.as_ref().map_or(core::ptr::null(), |t| t.words) };
    let sizes = taken.map_or([0; 4], |t| [t.overall_bytes, t.info_bytes, t.total_bytes, t.backtrace_size]);
    for (place, size) in [overall_size, info_size, total_memory, backtrace_size].into_iter().zip(sizes) {
        // SAFETY: the caller passes places for all four.
        unsafe { *place = size };
    }
}

/// See `memgate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn memgate_free_malloc_leak_info(info: *const u64) {
    leak_info::give_back(info);
}

/// See `memgate_gtest.h`: 1 where the agent itself listens to GoogleTest.
#[unsafe(no_mangle)]
pub extern "C" fn memgate_has_gtest_listener() -> c_int {
    c_int::from(crate::native::gtest::is_installed())
}

/// The virtual machine loads the agent (`-agentpath`). Always succeeds: a virtual machine whose
/// agent fails does not start.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Agent_OnLoad(
    vm: *mut jni::sys::JavaVM,
    options: *const c_char,
    _reserved: Pointer,
) -> jni::sys::jint {
    if crate::jvm::is_awake() {
        return jni::sys::JNI_OK;
    }
    // SAFETY: the virtual machine's own interface.
    if let Some(jvmti) = unsafe { memgate_jvmti::Jvmti::of(vm) } {
        // SAFETY: the virtual machine passes a terminated text, or null.
        crate::jvm::on_load(jvmti, &unsafe { text(options) });
    }
    jni::sys::JNI_OK
}

/// Somebody attaches the agent to a virtual machine that runs. May come more than once; always
/// succeeds, as above.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Agent_OnAttach(
    vm: *mut jni::sys::JavaVM,
    options: *const c_char,
    _reserved: Pointer,
) -> jni::sys::jint {
    #[cfg(target_os = "android")]
    // SAFETY: the arguments are passed on as they came.
    if let Some(status) = unsafe { bionic::handed_over(vm, options) } {
        return status;
    }
    if crate::jvm::is_awake() {
        return jni::sys::JNI_OK;
    }
    // SAFETY: the virtual machine passes a terminated text, or null.
    let options = unsafe { text(options) };
    // SAFETY: the virtual machine's own interface.
    let Some(jvmti) = (unsafe { memgate_jvmti::Jvmti::of(vm) }) else { return jni::sys::JNI_OK };
    // SAFETY: as above.
    unsafe { memgate_jvmti::with_env(vm, |env| crate::jvm::on_attach(env, jvmti, &options)) };
    jni::sys::JNI_OK
}
