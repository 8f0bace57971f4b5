//! What is exported on Android alone.

use core::ffi::c_char;

use jni::sys::{JNI_VERSION_1_6, JavaVM, jint};
use memgate_ffi::process;

use crate::entry::Pointer;

type OnAttach = unsafe extern "system" fn(*mut JavaVM, *const c_char, Pointer) -> jint;

/// Another copy of this library was preloaded into this process (`wrap.sh`), from another path than
/// the one that is attached now: there is one stream, the other copy's, which gets the call.
/// `None`: this copy, which exports `own`, is the one.
///
/// # Safety
/// `Agent_OnAttach` of this copy, and its arguments.
pub(super) unsafe fn handed_over(own: OnAttach, vm: *mut JavaVM, options: *const c_char) -> Option<jint> {
    let first = process::symbol(c"Agent_OnAttach");
    // A name that any agent has: ours also exports this.
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

/// `System.loadLibrary`. Always succeeds: a library whose `JNI_OnLoad` fails throws in the app.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn JNI_OnLoad(vm: *mut JavaVM, _reserved: Pointer) -> jint {
    // SAFETY: the virtual machine's own.
    unsafe { memgate_jvmti::with_env(vm, memgate_jvm::on_library) };
    JNI_VERSION_1_6
}
