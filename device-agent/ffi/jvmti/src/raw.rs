//! The function table, the event numbers and the structures of `jvmti.h`.

use core::ffi::{c_char, c_uchar, c_void};

use jni::sys::{jboolean, jclass, jfieldID, jint, jlong, jmethodID, jobject};

/// `jvmtiEnv`: a pointer to the function table, which begins with a reserved word.
pub type Env = *mut *const *const c_void;
/// `jvmtiError`.
pub type Code = jint;

/// Slots of the function table, counted from 1 as in the specification, with their names in `jvmti.h`.
macro_rules! slots {
    ($($name:ident = $slot:literal $c_name:literal),* $(,)?) => {
        $(
            #[doc = concat!("`", $c_name, "`")]
            pub const $name: usize = $slot;
        )*
        /// Every used slot, with its name in `jvmti.h`.
        pub const SLOTS: &[(usize, &str)] = &[$(($slot, $c_name)),*];
    };
}

slots! {
    SET_EVENT_NOTIFICATION_MODE = 2 "SetEventNotificationMode",
    GET_ALL_THREADS = 4 "GetAllThreads",
    GET_THREAD_INFO = 9 "GetThreadInfo",
    DEALLOCATE = 47 "Deallocate",
    ALLOCATE = 46 "Allocate",
    GET_CLASS_SIGNATURE = 48 "GetClassSignature",
    GET_SOURCE_FILE_NAME = 50 "GetSourceFileName",
    GET_CLASS_MODIFIERS = 51 "GetClassModifiers",
    GET_CLASS_FIELDS = 53 "GetClassFields",
    GET_IMPLEMENTED_INTERFACES = 54 "GetImplementedInterfaces",
    GET_CLASS_LOADER = 57 "GetClassLoader",
    GET_FIELD_NAME = 60 "GetFieldName",
    GET_FIELD_MODIFIERS = 62 "GetFieldModifiers",
    GET_METHOD_NAME = 64 "GetMethodName",
    GET_METHOD_DECLARING_CLASS = 65 "GetMethodDeclaringClass",
    GET_LINE_NUMBER_TABLE = 70 "GetLineNumberTable",
    GET_LOADED_CLASSES = 78 "GetLoadedClasses",
    GET_VERSION_NUMBER = 88 "GetVersionNumber",
    GET_STACK_TRACE = 104 "GetStackTrace",
    GET_TAG = 106 "GetTag",
    SET_TAG = 107 "SetTag",
    FORCE_GARBAGE_COLLECTION = 108 "ForceGarbageCollection",
    GET_OBJECTS_WITH_TAGS = 114 "GetObjectsWithTags",
    FOLLOW_REFERENCES = 115 "FollowReferences",
    ITERATE_THROUGH_HEAP = 116 "IterateThroughHeap",
    SET_EVENT_CALLBACKS = 122 "SetEventCallbacks",
    GET_EXTENSION_FUNCTIONS = 124 "GetExtensionFunctions",
    DISPOSE_ENVIRONMENT = 127 "DisposeEnvironment",
    GET_SYSTEM_PROPERTIES = 130 "GetSystemProperties",
    GET_SYSTEM_PROPERTY = 131 "GetSystemProperty",
    GET_PHASE = 133 "GetPhase",
    GET_POTENTIAL_CAPABILITIES = 140 "GetPotentialCapabilities",
    ADD_CAPABILITIES = 142 "AddCapabilities",
    ADD_TO_BOOTSTRAP_CLASS_LOADER_SEARCH = 149 "AddToBootstrapClassLoaderSearch",
    ADD_TO_SYSTEM_CLASS_LOADER_SEARCH = 151 "AddToSystemClassLoaderSearch",
    RETRANSFORM_CLASSES = 152 "RetransformClasses",
    GET_OBJECT_SIZE = 154 "GetObjectSize",
    SET_HEAP_SAMPLING_INTERVAL = 156 "SetHeapSamplingInterval",
}

/// Last slot of the table in JVMTI 1.2, which ART implements.
pub const LAST_OF_1_2: usize = 154;
/// JVMTI 11, whose table has one more slot.
pub const VERSION_11: jint = 0x300B_0000;
const VERSION_1_2: jint = 0x3001_0200;
/// The version that ART offers to processes that are not debuggable.
const VERSION_OF_ART: jint = 0x7001_0200;

/// Versions to request, best first. ART writes an error into the app's log for each version that it does not know, so
/// 11 is not requested on Android.
#[must_use]
pub const fn versions(on_android: bool) -> &'static [jint] {
    if on_android { &[VERSION_1_2, VERSION_OF_ART] } else { &[VERSION_11, VERSION_1_2, VERSION_OF_ART] }
}

/// `jvmtiCapabilities`: 128 bits, numbered in the order of `jvmti.h`.
pub type Capabilities = [u32; 4];

/// Bits of [`Capabilities`], with their names in `jvmti.h`.
macro_rules! capabilities {
    ($($name:ident = $bit:literal $c_name:literal),* $(,)?) => {
        $(
            #[doc = concat!("`", $c_name, "`")]
            pub const $name: usize = $bit;
        )*
        /// Every used capability, with its name in `jvmti.h`.
        pub const CAPABILITIES: &[(usize, &str)] = &[$(($bit, $c_name)),*];
    };
}

capabilities! {
    CAN_TAG_OBJECTS = 0 "can_tag_objects",
    CAN_GET_SOURCE_FILE_NAME = 11 "can_get_source_file_name",
    CAN_GET_LINE_NUMBERS = 12 "can_get_line_numbers",
    CAN_GENERATE_ALL_CLASS_HOOK_EVENTS = 26 "can_generate_all_class_hook_events",
    CAN_GENERATE_VM_OBJECT_ALLOC_EVENTS = 29 "can_generate_vm_object_alloc_events",
    CAN_GENERATE_OBJECT_FREE_EVENTS = 32 "can_generate_object_free_events",
    CAN_RETRANSFORM_CLASSES = 37 "can_retransform_classes",
    CAN_GENERATE_RESOURCE_EXHAUSTION_HEAP_EVENTS = 39 "can_generate_resource_exhaustion_heap_events",
    CAN_GENERATE_SAMPLED_OBJECT_ALLOC_EVENTS = 43 "can_generate_sampled_object_alloc_events",
}

/// `JVMTI_ERROR_NONE`
pub const ERROR_NONE: Code = 0;

/// `jvmtiThreadInfo`
#[repr(C)]
pub struct ThreadInfo {
    /// Modified UTF-8, allocated by the virtual machine.
    pub name: *mut c_char,
    /// Priority.
    pub priority: jint,
    /// Daemon?
    pub is_daemon: jboolean,
    /// Local reference.
    pub thread_group: jobject,
    /// Local reference.
    pub context_class_loader: jobject,
}

/// `jvmtiFrameInfo`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FrameInfo {
    /// The method.
    pub method: jmethodID,
    /// Bytecode index, -1 in native methods.
    pub location: jlong,
}

/// `jvmtiLineNumberEntry`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LineNumberEntry {
    /// First bytecode index of the line.
    pub start_location: jlong,
    /// The line.
    pub line_number: jint,
}

/// `jvmtiHeapReferenceInfo` for references from the stack: its largest named variant.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StackLocalInfo {
    /// Tag of the thread.
    pub thread_tag: jlong,
    /// Unique id of the thread.
    pub thread_id: jlong,
    /// Depth of the frame.
    pub depth: jint,
    /// Method of the frame.
    pub method: jmethodID,
    /// Bytecode index.
    pub location: jlong,
    /// Slot of the local variable.
    pub slot: jint,
}

/// `jvmtiHeapReferenceInfo`
#[repr(C)]
pub union HeapReferenceInfo {
    /// Fields, array elements, constant pools.
    pub index: jint,
    /// Local variables and JNI local references (which have the first four members).
    pub stack: StackLocalInfo,
    /// Reserved for future variants.
    pub reserved: [jlong; 8],
}

/// `jvmtiHeapIterationCallback`, with one more argument: the number of the object's heap, which only ART's extension
/// passes.
pub type HeapIteration = unsafe extern "system" fn(jlong, jlong, *mut jlong, jint, *mut c_void, jint) -> jint;
/// `jvmtiHeapReferenceCallback`
pub type HeapReference = unsafe extern "system" fn(
    jint,
    *const HeapReferenceInfo,
    jlong,
    jlong,
    jlong,
    *mut jlong,
    *mut jlong,
    jint,
    *mut c_void,
) -> jint;

/// `jvmtiHeapCallbacks`
#[repr(C)]
#[derive(Default)]
pub struct HeapCallbacks {
    /// Called by `IterateThroughHeap`.
    pub iteration: Option<HeapIteration>,
    /// Called by `FollowReferences`.
    pub reference: Option<HeapReference>,
    /// Not used.
    pub others: [Option<HeapIteration>; 14],
}

/// `jvmtiParamInfo`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ParamInfo {
    /// Modified UTF-8, allocated by the virtual machine.
    pub name: *mut c_char,
    /// How it is passed.
    pub kind: jint,
    /// Its type.
    pub base_type: jint,
    /// May it be null?
    pub null_ok: jboolean,
}

/// `jvmtiExtensionFunctionInfo`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ExtensionFunctionInfo {
    /// The function.
    pub func: *const c_void,
    /// Its name.
    pub id: *mut c_char,
    /// A description for users.
    pub short_description: *mut c_char,
    /// Number of parameters after the environment.
    pub param_count: jint,
    /// The parameters.
    pub params: *mut ParamInfo,
    /// Number of the function's own errors.
    pub error_count: jint,
    /// The errors.
    pub errors: *mut Code,
}

/// An unused slot in the table of event callbacks.
pub type Unused = Option<unsafe extern "system" fn()>;
/// `(jvmtiEnv, JNIEnv, jthread)`
pub type ThreadEvent = unsafe extern "system" fn(Env, *mut jni::sys::JNIEnv, jobject);
/// `(jvmtiEnv, JNIEnv)`
pub type VmEvent = unsafe extern "system" fn(Env, *mut jni::sys::JNIEnv);
/// `jvmtiEventClassFileLoadHook`
pub type ClassFileLoadHook = unsafe extern "system" fn(
    Env,
    *mut jni::sys::JNIEnv,
    jclass,
    jobject,
    *const c_char,
    jobject,
    jint,
    *const c_uchar,
    *mut jint,
    *mut *mut c_uchar,
);
/// `jvmtiEventClassPrepare`
pub type ClassPrepare = unsafe extern "system" fn(Env, *mut jni::sys::JNIEnv, jobject, jclass);
/// `jvmtiEventResourceExhausted`
pub type ResourceExhausted =
    unsafe extern "system" fn(Env, *mut jni::sys::JNIEnv, jint, *const c_void, *const c_char);
/// `jvmtiEventObjectFree`
pub type ObjectFree = unsafe extern "system" fn(Env, jlong);
/// `jvmtiEventVMObjectAlloc`, `jvmtiEventSampledObjectAlloc`
pub type ObjectAlloc = unsafe extern "system" fn(Env, *mut jni::sys::JNIEnv, jobject, jobject, jclass, jlong);

/// `jvmtiEventCallbacks`: events 50 to 86.
#[repr(C)]
#[derive(Default)]
pub struct EventCallbacks {
    /// 50
    pub vm_init: Option<ThreadEvent>,
    /// 51
    pub vm_death: Option<VmEvent>,
    /// 52
    pub thread_start: Option<ThreadEvent>,
    /// 53
    pub thread_end: Option<ThreadEvent>,
    /// 54
    pub class_file_load_hook: Option<ClassFileLoadHook>,
    /// 55
    pub unused_55: Unused,
    /// 56
    pub class_prepare: Option<ClassPrepare>,
    /// 57 to 79
    pub unused_57_to_79: [Unused; 23],
    /// 80
    pub resource_exhausted: Option<ResourceExhausted>,
    /// 81 and 82
    pub unused_81_82: [Unused; 2],
    /// 83
    pub object_free: Option<ObjectFree>,
    /// 84
    pub vm_object_alloc: Option<ObjectAlloc>,
    /// 85
    pub unused_85: Unused,
    /// 86
    pub sampled_object_alloc: Option<ObjectAlloc>,
}

/// Types of the functions in the table.
pub mod function {
    use super::{
        Capabilities, Code, Env, EventCallbacks, ExtensionFunctionInfo, FrameInfo, HeapCallbacks,
        LineNumberEntry, ThreadInfo, c_char, c_uchar, c_void, jclass, jfieldID, jint, jlong, jmethodID,
        jobject,
    };

    /// Functions without arguments.
    pub type Plain = unsafe extern "system" fn(Env) -> Code;
    /// `SetEventNotificationMode`, whose variadic last argument is never passed.
    pub type SetEventNotificationMode = unsafe extern "C" fn(Env, jint, jint, jobject, ...) -> Code;
    /// Lists of local references: threads, classes.
    pub type List = unsafe extern "system" fn(Env, *mut jint, *mut *mut jobject) -> Code;
    /// Lists of local references that belong to a class.
    pub type ListOf = unsafe extern "system" fn(Env, jclass, *mut jint, *mut *mut jobject) -> Code;
    /// `GetThreadInfo`
    pub type GetThreadInfo = unsafe extern "system" fn(Env, jobject, *mut ThreadInfo) -> Code;
    /// `Allocate`
    pub type Allocate = unsafe extern "system" fn(Env, jlong, *mut *mut c_uchar) -> Code;
    /// `Deallocate`
    pub type Deallocate = unsafe extern "system" fn(Env, *mut c_uchar) -> Code;
    /// `GetClassSignature`
    pub type GetClassSignature =
        unsafe extern "system" fn(Env, jclass, *mut *mut c_char, *mut *mut c_char) -> Code;
    /// A text that belongs to a class.
    pub type TextOf = unsafe extern "system" fn(Env, jclass, *mut *mut c_char) -> Code;
    /// `GetClassFields`
    pub type GetClassFields = unsafe extern "system" fn(Env, jclass, *mut jint, *mut *mut jfieldID) -> Code;
    /// `GetFieldName`
    pub type GetFieldName = unsafe extern "system" fn(
        Env,
        jclass,
        jfieldID,
        *mut *mut c_char,
        *mut *mut c_char,
        *mut *mut c_char,
    ) -> Code;
    /// `GetFieldModifiers`
    pub type GetFieldModifiers = unsafe extern "system" fn(Env, jclass, jfieldID, *mut jint) -> Code;
    /// `GetMethodName`
    pub type GetMethodName = unsafe extern "system" fn(
        Env,
        jmethodID,
        *mut *mut c_char,
        *mut *mut c_char,
        *mut *mut c_char,
    ) -> Code;
    /// `GetMethodDeclaringClass`
    pub type GetMethodDeclaringClass = unsafe extern "system" fn(Env, jmethodID, *mut jclass) -> Code;
    /// `GetLineNumberTable`
    pub type GetLineNumberTable =
        unsafe extern "system" fn(Env, jmethodID, *mut jint, *mut *mut LineNumberEntry) -> Code;
    /// `GetVersionNumber`, `GetPhase`
    pub type Number = unsafe extern "system" fn(Env, *mut jint) -> Code;
    /// `GetStackTrace`
    pub type GetStackTrace =
        unsafe extern "system" fn(Env, jobject, jint, jint, *mut FrameInfo, *mut jint) -> Code;
    /// `GetTag`, `GetObjectSize`
    pub type LongOf = unsafe extern "system" fn(Env, jobject, *mut jlong) -> Code;
    /// `SetTag`
    pub type SetTag = unsafe extern "system" fn(Env, jobject, jlong) -> Code;
    /// `GetObjectsWithTags`
    pub type GetObjectsWithTags = unsafe extern "system" fn(
        Env,
        jint,
        *const jlong,
        *mut jint,
        *mut *mut jobject,
        *mut *mut jlong,
    ) -> Code;
    /// `FollowReferences`
    pub type FollowReferences =
        unsafe extern "system" fn(Env, jint, jclass, jobject, *const HeapCallbacks, *const c_void) -> Code;
    /// `IterateThroughHeap`
    pub type IterateThroughHeap =
        unsafe extern "system" fn(Env, jint, jclass, *const HeapCallbacks, *const c_void) -> Code;
    /// `GetExtensionFunctions`
    pub type GetExtensionFunctions =
        unsafe extern "system" fn(Env, *mut jint, *mut *mut ExtensionFunctionInfo) -> Code;
    /// ART's extension `add_to_dex_class_loader`
    pub type AddToDexLoader = unsafe extern "system" fn(Env, jobject, *const c_char) -> Code;
    /// `SetEventCallbacks`
    pub type SetEventCallbacks = unsafe extern "system" fn(Env, *const EventCallbacks, jint) -> Code;
    /// `GetSystemProperties`
    pub type GetSystemProperties = unsafe extern "system" fn(Env, *mut jint, *mut *mut *mut c_char) -> Code;
    /// `GetSystemProperty`
    pub type GetSystemProperty = unsafe extern "system" fn(Env, *const c_char, *mut *mut c_char) -> Code;
    /// `GetPotentialCapabilities`
    pub type GetCapabilities = unsafe extern "system" fn(Env, *mut Capabilities) -> Code;
    /// `AddCapabilities`
    pub type AddCapabilities = unsafe extern "system" fn(Env, *const Capabilities) -> Code;
    /// `AddToBootstrapClassLoaderSearch`, `AddToSystemClassLoaderSearch`
    pub type AddToSearch = unsafe extern "system" fn(Env, *const c_char) -> Code;
    /// `RetransformClasses`
    pub type RetransformClasses = unsafe extern "system" fn(Env, jint, *const jclass) -> Code;
    /// `SetHeapSamplingInterval`
    pub type SetHeapSamplingInterval = unsafe extern "system" fn(Env, jint) -> Code;
}
