//! Events: the virtual machine calls one of the functions here, which calls the agent's [`Events`] value.

use core::ffi::{CStr, c_char, c_uchar, c_void};
use core::{ptr, slice};
use std::sync::OnceLock;

use jni::objects::{JClass, JObject};
use jni::sys::{JNIEnv, JavaVM, jclass, jint, jlong, jobject};
use jni::{Env, EnvUnowned};

use crate::calls::{Error, Jvmti, check};
use crate::raw::{self, function as f};

/// The events that the agent receives. No lock of the agent may be held across a call back into the virtual machine.
pub trait Events: Sync {
    /// The virtual machine is ready to run Java code; the main class is not yet loaded.
    fn vm_init(&self, env: &mut EnvUnowned<'_>);

    /// The virtual machine is about to end; Java code can still run.
    fn vm_death(&self, env: &mut EnvUnowned<'_>);

    /// A class (`java/lang/String`) is being defined or redefined. A returned value replaces its bytes.
    fn class_loads(&self, name: &str, bytes: &[u8]) -> Option<Vec<u8>>;

    /// A class is prepared: its methods can be bound.
    fn class_prepared(&self, env: &mut Env<'_>, class: &JClass<'_>);

    /// The heap or the threads are exhausted: bits of `JVMTI_RESOURCE_EXHAUSTED_*`, and the virtual machine's message.
    fn exhausted(&self, env: &mut Env<'_>, flags: u32, what: &str);

    /// An allocation was sampled, in the thread that makes it.
    fn sampled(&self, env: &mut Env<'_>, object: &JObject<'_>, class: &JObject<'_>, bytes: u64);

    /// A tagged object was collected. The event comes late, from a thread of the virtual machine: no JNI or JVMTI
    /// function may be called.
    fn freed(&self, tag: i64);
}

/// An event that can be switched on and off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Event {
    /// [`Events::vm_init`]
    VmInit = 50,
    /// [`Events::vm_death`]
    VmDeath = 51,
    /// [`Events::class_loads`]
    ClassFileLoadHook = 54,
    /// [`Events::class_prepared`]
    ClassPrepare = 56,
    /// [`Events::exhausted`]
    ResourceExhausted = 80,
    /// [`Events::freed`]
    ObjectFree = 83,
    /// [`Events::sampled`] for every allocation, on ART.
    VmObjectAlloc = 84,
    /// [`Events::sampled`]. On ART this number is another event, so the capability is requested first.
    SampledObjectAlloc = 86,
}

/// `jvmtiEventMode`.
const JVMTI_ENABLE: jint = 1;
const JVMTI_DISABLE: jint = 0;

static LISTENER: OnceLock<&'static dyn Events> = OnceLock::new();

impl Jvmti<'_> {
    /// Sends all events to `listener`, for the life of the process. Events are off until
    /// [`Jvmti::enable`].
    pub fn listen(self, listener: &'static dyn Events) -> Result<(), Error> {
        LISTENER.get_or_init(|| listener);
        let callbacks = raw::EventCallbacks {
            vm_init: Some(vm_init),
            vm_death: Some(vm_death),
            class_file_load_hook: Some(class_file_load_hook),
            class_prepare: Some(class_prepare),
            resource_exhausted: Some(resource_exhausted),
            object_free: Some(object_free),
            vm_object_alloc: Some(sampled_object_alloc),
            sampled_object_alloc: Some(sampled_object_alloc),
            ..raw::EventCallbacks::default()
        };
        let bytes = jint::try_from(size_of::<raw::EventCallbacks>()).map_err(|_never| Error::NotThere)?;
        // SAFETY: the type of the function in this slot.
        let set = unsafe { self.function::<f::SetEventCallbacks>(raw::SET_EVENT_CALLBACKS) }?;
        // SAFETY: the virtual machine copies as many bytes as it knows.
        check(unsafe { set(self.env, &raw const callbacks, bytes) })
    }

    /// Switches an event on, for all threads.
    pub fn enable(self, event: Event) -> Result<(), Error> {
        self.notify(event, JVMTI_ENABLE)
    }

    /// Switches an event off, for all threads.
    pub fn disable(self, event: Event) -> Result<(), Error> {
        self.notify(event, JVMTI_DISABLE)
    }

    fn notify(self, event: Event, mode: jint) -> Result<(), Error> {
        // SAFETY: the type of the function in this slot.
        let set = unsafe { self.function::<f::SetEventNotificationMode>(raw::SET_EVENT_NOTIFICATION_MODE) }?;
        // SAFETY: null means all threads.
        check(unsafe { set(self.env, mode, event as jint, ptr::null_mut()) })
    }
}

/// Runs `work` in the calling thread, which the virtual machine has attached.
///
/// # Safety
/// `vm` must be the `JavaVM` that the virtual machine gave to the agent.
pub unsafe fn with_env(vm: *mut JavaVM, work: impl FnOnce(&mut Env<'_>)) {
    // SAFETY: promised by the caller.
    let vm = unsafe { jni::JavaVM::from_raw(vm) };
    let run = |env: &mut Env<'_>| {
        work(env);
        Ok::<(), jni::errors::Error>(())
    };
    let _attached_already = vm.attach_current_thread(run);
}

fn listener() -> Option<&'static dyn Events> {
    LISTENER.get().copied()
}

unsafe extern "system" fn vm_init(_: raw::Env, env: *mut JNIEnv, _: jobject) {
    if let Some(listener) = listener() {
        // SAFETY: the virtual machine's own, for this call.
        listener.vm_init(&mut unsafe { EnvUnowned::from_raw(env) });
    }
}

unsafe extern "system" fn vm_death(_: raw::Env, env: *mut JNIEnv) {
    if let Some(listener) = listener() {
        // SAFETY: the virtual machine's own, for this call.
        listener.vm_death(&mut unsafe { EnvUnowned::from_raw(env) });
    }
}

unsafe extern "system" fn class_file_load_hook(
    jvmti: raw::Env,
    _: *mut JNIEnv,
    _: jclass,
    _: jobject,
    name: *const c_char,
    _: jobject,
    length: jint,
    bytes: *const c_uchar,
    new_length: *mut jint,
    new_bytes: *mut *mut c_uchar,
) {
    let Some(listener) = listener().filter(|_| !name.is_null()) else { return };
    // SAFETY: a terminated name.
    let Ok(name) = unsafe { CStr::from_ptr(name) }.to_str() else { return };
    // SAFETY: the virtual machine passed this number of bytes.
    let bytes = unsafe { slice::from_raw_parts(bytes, usize::try_from(length).unwrap_or(0)) };
    let Some(replaced) = listener.class_loads(name, bytes) else { return };
    let (Ok(size), Ok(length)) = (jlong::try_from(replaced.len()), jint::try_from(replaced.len())) else {
        return;
    };
    let mut room = ptr::null_mut();
    // SAFETY: the type of the function in this slot.
    let Ok(allocate) = (unsafe { Jvmti::from_env(jvmti).function::<f::Allocate>(raw::ALLOCATE) }) else {
        return;
    };
    // SAFETY: the result goes into our own variable.
    if check(unsafe { allocate(jvmti, size, &raw mut room) }).is_err() || room.is_null() {
        return;
    }
    // SAFETY: room for this number of bytes was just allocated.
    unsafe { ptr::copy_nonoverlapping(replaced.as_ptr(), room, replaced.len()) };
    // SAFETY: the virtual machine's words for the answer.
    unsafe { new_bytes.write(room) };
    // SAFETY: as above.
    unsafe { new_length.write(length) };
}

unsafe extern "system" fn class_prepare(_: raw::Env, env: *mut JNIEnv, _: jobject, class: jclass) {
    let Some(listener) = listener() else { return };
    // SAFETY: the virtual machine's own, for this call.
    let mut unowned = unsafe { EnvUnowned::from_raw(env) };
    let tell = |env: &mut Env<'_>| {
        // SAFETY: a local reference of this call.
        let class = unsafe { JClass::from_raw(env, class) };
        listener.class_prepared(env, &class);
        Ok::<(), jni::errors::Error>(())
    };
    let _nothing_fails_here = unowned.with_env_no_catch(tell).into_outcome();
}

unsafe extern "system" fn resource_exhausted(
    _: raw::Env,
    env: *mut JNIEnv,
    flags: jint,
    _: *const c_void,
    what: *const c_char,
) {
    let Some(listener) = listener() else { return };
    // SAFETY: a terminated text, or null.
    let what = if what.is_null() { c"" } else { unsafe { CStr::from_ptr(what) } };
    // SAFETY: the virtual machine's own, for this call.
    let mut unowned = unsafe { EnvUnowned::from_raw(env) };
    let tell = |env: &mut Env<'_>| {
        listener.exhausted(env, flags.cast_unsigned(), &what.to_string_lossy());
        Ok::<(), jni::errors::Error>(())
    };
    let _nothing_fails_here = unowned.with_env_no_catch(tell).into_outcome();
}

unsafe extern "system" fn object_free(_: raw::Env, tag: jlong) {
    if let Some(listener) = listener() {
        listener.freed(tag);
    }
}

unsafe extern "system" fn sampled_object_alloc(
    _: raw::Env,
    env: *mut JNIEnv,
    _: jobject,
    object: jobject,
    class: jclass,
    size: jlong,
) {
    let Some(listener) = listener() else { return };
    // SAFETY: the virtual machine's own, for this call.
    let mut unowned = unsafe { EnvUnowned::from_raw(env) };
    let bytes = u64::try_from(size).unwrap_or(0);
    let work = |env: &mut Env<'_>| -> Result<(), jni::errors::Error> {
        // SAFETY: local references of this call.
        let object = unsafe { JObject::from_raw(env, object) };
        // SAFETY: as above.
        let class = unsafe { JObject::from_raw(env, class) };
        listener.sampled(env, &object, &class, bytes);
        Ok(())
    };
    let _nothing_fails_here = unowned.with_env_no_catch(work).into_outcome();
}
