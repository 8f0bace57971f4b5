//! Exported entry points of the agent: for the loader, for the C library before `main`, for programs that use
//! `memgate.h`, and for virtual machines. Each is one guarded call; the implementation is elsewhere.
#![expect(unsafe_code, reason = "exports: the border to C")]
#![expect(unreachable_pub, reason = "exported to C, not to Rust")]

#[cfg(target_os = "android")]
mod android;
#[cfg(not(target_os = "android"))]
mod main;

use core::ffi::{c_char, c_int};

use memgate_session::{self as session, leak_info};
use memgate_wire::Outcome;

use crate::entry::{Pointer, text};
use crate::{life, native};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    life::load();
    // There is no `main` to wait for: an app's process starts in the runtime.
    #[cfg(target_os = "android")]
    life::start();
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
    session::test_begins(|| Some(unsafe { names(suite, test) }));
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
    session::test_ends(|| Some(unsafe { names(suite, test) }), Some(outcome));
}

/// # Safety
/// See [`text`].
unsafe fn names(suite: *const c_char, test: *const c_char) -> (String, String) {
    // SAFETY: promised by the caller.
    let suite = unsafe { text(suite) };
    // SAFETY: as above.
    (suite, unsafe { text(test) })
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
    session::mark(|| unsafe { text(name) });
}

/// See `memgate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn memgate_settle() {
    session::settle();
}

/// See `memgate.h`: all five results are always written.
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
    // SAFETY: the caller passes a variable for the address.
    unsafe { *info = taken.as_ref().map_or(core::ptr::null(), |t| t.words) };
    let sizes = taken.map_or([0; 4], |t| [t.overall_bytes, t.info_bytes, t.total_bytes, t.backtrace_size]);
    for (place, size) in [overall_size, info_size, total_memory, backtrace_size].into_iter().zip(sizes) {
        // SAFETY: the caller passes variables for all four.
        unsafe { *place = size };
    }
}

/// See `memgate.h`.
#[unsafe(no_mangle)]
pub extern "C" fn memgate_free_malloc_leak_info(info: *const u64) {
    leak_info::give_back(info);
}

/// See `memgate_gtest.h`: 1 if the agent itself listens to GoogleTest.
#[unsafe(no_mangle)]
pub extern "C" fn memgate_has_gtest_listener() -> c_int {
    c_int::from(native::gtest::is_installed())
}

/// The virtual machine loads the agent (`-agentpath`). Always succeeds, because a virtual machine does not start if its
/// agent fails.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Agent_OnLoad(
    vm: *mut jni::sys::JavaVM,
    options: *const c_char,
    _reserved: Pointer,
) -> jni::sys::jint {
    if memgate_jvm::is_awake() {
        return jni::sys::JNI_OK;
    }
    // SAFETY: the virtual machine's own interface.
    if let Some(jvmti) = unsafe { memgate_jvmti::Jvmti::of(vm) } {
        // SAFETY: the virtual machine passes a terminated text, or null.
        memgate_jvm::on_load(jvmti, &unsafe { text(options) });
    }
    jni::sys::JNI_OK
}

/// The agent is attached to a running virtual machine. May be called more than once. Always succeeds, for the same
/// reason.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Agent_OnAttach(
    vm: *mut jni::sys::JavaVM,
    options: *const c_char,
    _reserved: Pointer,
) -> jni::sys::jint {
    #[cfg(target_os = "android")]
    // SAFETY: the arguments are passed on unchanged.
    if let Some(status) = unsafe { android::handed_over(Agent_OnAttach, vm, options) } {
        return status;
    }
    if memgate_jvm::is_awake() {
        return jni::sys::JNI_OK;
    }
    // SAFETY: the virtual machine passes a terminated text, or null.
    let options = unsafe { text(options) };
    // SAFETY: the virtual machine's own interface.
    let Some(jvmti) = (unsafe { memgate_jvmti::Jvmti::of(vm) }) else { return jni::sys::JNI_OK };
    // SAFETY: as above.
    unsafe { memgate_jvmti::with_env(vm, |env| memgate_jvm::on_attach(env, jvmti, &options)) };
    jni::sys::JNI_OK
}
