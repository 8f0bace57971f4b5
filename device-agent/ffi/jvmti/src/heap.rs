//! Walks over the heap. The visitor runs while the virtual machine has stopped all threads. It may only use memory that
//! it already has: no JNI, no JVMTI, no allocation that could wait for a stopped thread.

use core::ffi::c_void;
use core::ptr;

use jni::objects::JObject;
use jni::sys::{jint, jlong};

use crate::calls::{Error, Jvmti, Method, StackFrame, check};
use crate::raw::{self, function as f};

/// The objects that a walk skips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum HeapFilter {
    /// None.
    None = 0,
    /// Tagged objects.
    Tagged = 4,
    /// Untagged objects.
    Untagged = 8,
    /// Objects of untagged classes.
    ClassUntagged = 0x20,
}

/// How a walk continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Visit {
    /// Continue; in a walk over references: also beyond this object.
    Deeper = 0x100,
    /// Continue, but not beyond this object.
    Beside = 0,
    /// Stop.
    Abort = 0x8000,
}

/// Kind of a reference: `jvmtiHeapReferenceKind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceKind {
    /// From an object to its class.
    Class,
    /// From an instance field; index of the field.
    Field(u32),
    /// From an array element; its index.
    ArrayElement(u32),
    /// From a class to its loader.
    ClassLoader,
    /// From a class to its signers, its protection domain, an interface or its superclass.
    ClassPart,
    /// From a static field; index of the field.
    StaticField(u32),
    /// From a class to a constant in its constant pool.
    ConstantPool,
    /// From a JNI global reference.
    JniGlobal,
    /// From the virtual machine to one of its own classes.
    SystemClass,
    /// From a monitor that is held.
    Monitor,
    /// From a local variable: the tag of the thread, and the frame.
    StackLocal(i64, StackFrame),
    /// From a JNI local reference: the tag of the thread and the method of the frame.
    JniLocal(i64, Method),
    /// From the list of threads.
    Thread,
    /// From somewhere else in the virtual machine.
    Other,
}

/// A reference that a walk has found. A tag of 0 means no tag.
pub struct Reference<'a> {
    /// Kind.
    pub kind: ReferenceKind,
    /// Tag of the class of the target object.
    pub class_tag: i64,
    /// Tag of the class of the referring object; 0 for roots.
    pub referrer_class_tag: i64,
    /// Size of the target object in bytes.
    pub bytes: u64,
    /// Tag of the target object; may be changed.
    pub tag: &'a mut i64,
    /// Tag of the referring object; `None` for roots.
    pub referrer_tag: Option<&'a mut i64>,
}

impl Jvmti<'_> {
    /// Visits every object (reachable or not) that the filter does not skip: the tag of its class, its size in bytes,
    /// and its own tag, which may be changed.
    pub fn iterate(
        self,
        filter: HeapFilter,
        class: Option<&JObject<'_>>,
        visit: &mut dyn FnMut(i64, u64, &mut i64) -> Visit,
    ) -> Result<(), Error> {
        let callbacks = raw::HeapCallbacks { iteration: Some(object), ..raw::HeapCallbacks::default() };
        let mut visit = visit;
        // SAFETY: the type of the function in this slot.
        let walk = unsafe { self.function::<f::IterateThroughHeap>(raw::ITERATE_THROUGH_HEAP) }?;
        let class = class.map_or(ptr::null_mut(), JObject::as_raw);
        // SAFETY: the visitor outlives the call, which ends with the walk.
        check(unsafe { walk(self.env, filter as jint, class, &raw const callbacks, (&raw mut visit).cast()) })
    }

    /// Visits every reference that can be reached from the roots (or from `from`), breadth first
    /// per root set.
    pub fn follow(
        self,
        filter: HeapFilter,
        from: Option<&JObject<'_>>,
        visit: &mut dyn FnMut(Reference<'_>) -> Visit,
    ) -> Result<(), Error> {
        let callbacks = raw::HeapCallbacks { reference: Some(reference), ..raw::HeapCallbacks::default() };
        let mut visit = visit;
        // SAFETY: the type of the function in this slot.
        let walk = unsafe { self.function::<f::FollowReferences>(raw::FOLLOW_REFERENCES) }?;
        let from = from.map_or(ptr::null_mut(), JObject::as_raw);
        // SAFETY: the visitor outlives the call, which ends with the walk.
        check(unsafe {
            walk(
                self.env,
                filter as jint,
                ptr::null_mut(),
                from,
                &raw const callbacks,
                (&raw mut visit).cast(),
            )
        })
    }
}

unsafe extern "system" fn object(
    class_tag: jlong,
    size: jlong,
    tag: *mut jlong,
    _: jint,
    visitor: *mut c_void,
    _: jint,
) -> jint {
    // SAFETY: `iterate` passed a pointer to its visitor.
    let visit = unsafe { &mut *visitor.cast::<&mut dyn FnMut(i64, u64, &mut i64) -> Visit>() };
    // SAFETY: the virtual machine's word for this object's tag.
    let tag = unsafe { &mut *tag };
    visit(class_tag, u64::try_from(size).unwrap_or(0), tag) as jint
}

unsafe extern "system" fn reference(
    kind: jint,
    info: *const raw::HeapReferenceInfo,
    class_tag: jlong,
    referrer_class_tag: jlong,
    size: jlong,
    tag: *mut jlong,
    referrer_tag: *mut jlong,
    _: jint,
    visitor: *mut c_void,
) -> jint {
    // SAFETY: `follow` passed a pointer to its visitor.
    let visit = unsafe { &mut *visitor.cast::<&mut dyn FnMut(Reference<'_>) -> Visit>() };
    // SAFETY: kinds 2, 3, 8 have an index, 24 and 25 a frame; the others have no information.
    let kind = unsafe { kind_of(kind, info) };
    // An object that refers to itself has one tag, so there must be only one reference to its word.
    let referrer_tag = if ptr::eq(tag, referrer_tag) { ptr::null_mut() } else { referrer_tag };
    // SAFETY: the virtual machine's word for the tag of the target object.
    let tag = unsafe { &mut *tag };
    // SAFETY: the virtual machine's word, another one, or null for roots.
    let referrer_tag = unsafe { referrer_tag.as_mut() };
    let bytes = u64::try_from(size).unwrap_or(0);
    visit(Reference { kind, class_tag, referrer_class_tag, bytes, tag, referrer_tag }) as jint
}

/// # Safety
/// `info` must be what the virtual machine passed with this kind.
unsafe fn kind_of(kind: jint, info: *const raw::HeapReferenceInfo) -> ReferenceKind {
    let index = || {
        // SAFETY: kinds that call this begin with the index.
        u32::try_from(unsafe { info.cast::<jint>().read() }).unwrap_or(0)
    };
    let frame = || {
        let stack = info.cast::<raw::StackLocalInfo>();
        // SAFETY: kinds that call this have these members. JNI locals end after them, so only their addresses are
        // taken.
        let thread = unsafe { &raw const (*stack).thread_tag };
        // SAFETY: as above.
        let method = unsafe { &raw const (*stack).method };
        // SAFETY: as above.
        (unsafe { thread.read() }, Method(unsafe { method.read() }))
    };
    match kind {
        1 => ReferenceKind::Class,
        2 => ReferenceKind::Field(index()),
        3 => ReferenceKind::ArrayElement(index()),
        4 => ReferenceKind::ClassLoader,
        5 | 6 | 7 | 10 => ReferenceKind::ClassPart,
        8 => ReferenceKind::StaticField(index()),
        9 => ReferenceKind::ConstantPool,
        21 => ReferenceKind::JniGlobal,
        22 => ReferenceKind::SystemClass,
        23 => ReferenceKind::Monitor,
        24 => {
            let (thread, method) = frame();
            let stack = info.cast::<raw::StackLocalInfo>();
            // SAFETY: this kind has all members.
            let location = unsafe { &raw const (*stack).location };
            // SAFETY: as above.
            let location = unsafe { location.read() };
            ReferenceKind::StackLocal(thread, StackFrame { method, location })
        }
        25 => {
            let (thread, method) = frame();
            ReferenceKind::JniLocal(thread, method)
        }
        26 => ReferenceKind::Thread,
        _ => ReferenceKind::Other,
    }
}
