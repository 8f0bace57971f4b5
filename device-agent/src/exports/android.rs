//! Exports that exist only on Android.

use core::ffi::c_char;

use jni::sys::{JNI_VERSION_1_6, JavaVM, jint};
use memgate_ffi::process;

use crate::entry::Pointer;

type OnAttach = unsafe extern "system" fn(*mut JavaVM, *const c_char, Pointer) -> jint;

/// Passes the call to another copy of this library, if one was preloaded into this process (`wrap.sh`) from another
/// path than the one that is attached now. There is one stream, and it belongs to the preloaded copy. `None`: this
/// copy, which exports `own`, is the right one.
///
/// # Safety
/// `own` must be `Agent_OnAttach` of this copy, with its arguments.
pub(super) unsafe fn handed_over(own: OnAttach, vm: *mut JavaVM, options: *const c_char) -> Option<jint> {
    let first = process::symbol(c"Agent_OnAttach");
    // Every agent exports `Agent_OnAttach`, but only ours also exports this name.
    let mark = process::symbol(c"memgate_has_gtest_listener");
    let own = process::object_of(own as usize);
    let object = process::object_of(first);
    if first == 0 || object == own || process::object_of(mark) != object {
        return None;
    }
    // SAFETY: another copy's function of this name has this type.
    let attach = unsafe { core::mem::transmute::<usize, OnAttach>(first) };
    // SAFETY: promised by the caller.
    Some(unsafe { attach(vm, options, core::ptr::null_mut()) })
}

/// `System.loadLibrary`. Always succeeds, because a failing `JNI_OnLoad` throws in the app.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn JNI_OnLoad(vm: *mut JavaVM, _reserved: Pointer) -> jint {
    // SAFETY: the virtual machine's own.
    unsafe { memgate_jvmti::with_env(vm, memgate_jvm::on_library) };
    JNI_VERSION_1_6
}
