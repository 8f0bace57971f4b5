//! Calls through the function table, with owned results.

use core::ffi::{CStr, c_char, c_void};
use core::marker::PhantomData;
use core::{mem, ptr, slice};

use jni::Env;
use jni::objects::{JClass, JObject};
use jni::sys::{JavaVM, jfieldID, jint, jlong, jmethodID, jobject};

use crate::raw::{self, function as f};

/// A JVMTI environment, for its lifetime. The agent's own environment lives as long as the process.
#[derive(Debug, Clone, Copy)]
pub struct Jvmti<'env> {
    pub(crate) env: raw::Env,
    /// Last slot of its function table.
    last: usize,
    owner: PhantomData<&'env OwnJvmti>,
}

// SAFETY: a JVMTI environment may be used by every thread (JVMTI specification, "Environments").
unsafe impl Send for Jvmti<'_> {}
// SAFETY: as above.
unsafe impl Sync for Jvmti<'_> {}

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The virtual machine's answer, a `jvmtiError`.
    #[error("the virtual machine answers with JVMTI error {0}")]
    Code(jint),
    /// The virtual machine does not have this function.
    #[error("the virtual machine does not offer this")]
    NotThere,
    /// The agent has no memory for the answer.
    #[error("there is no memory for the answer")]
    NoMemory,
}

/// A method. Its name is available while its class is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Method(pub(crate) jmethodID);

impl Method {
    /// A number that identifies the method while its class is loaded.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0.addr() as u64
    }
}

// SAFETY: an opaque number to all code except the virtual machine, which accepts it from any thread.
unsafe impl Send for Method {}
// SAFETY: as above.
unsafe impl Sync for Method {}

/// A frame of a stack: `jvmtiFrameInfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct StackFrame {
    /// The method.
    pub method: Method,
    /// Bytecode index; negative in native methods.
    pub location: i64,
}

impl StackFrame {
    /// An empty frame, to be filled.
    pub const NONE: Self = Self { method: Method(ptr::null_mut()), location: 0 };
}

/// An additional JVMTI environment with its own tag map. Both end when this value is dropped.
#[derive(Debug)]
pub struct OwnJvmti(pub(crate) Jvmti<'static>);

impl OwnJvmti {
    /// Asks the virtual machine of `env` for another environment.
    #[must_use]
    pub fn new(env: &Env<'_>) -> Option<Self> {
        let vm = env.get_java_vm().ok()?;
        // SAFETY: the virtual machine's own interface.
        unsafe { Jvmti::of(vm.get_raw()) }.map(Self)
    }

    /// The environment. The borrow ends before the environment does.
    #[must_use]
    pub const fn get(&self) -> Jvmti<'_> {
        self.0
    }
}

impl Drop for OwnJvmti {
    fn drop(&mut self) {
        // SAFETY: the type of the function in this slot.
        if let Ok(dispose) = unsafe { self.0.function::<f::Plain>(raw::DISPOSE_ENVIRONMENT) } {
            // SAFETY: nothing uses it from here on, because every user of it has borrowed this value.
            let _ended = unsafe { dispose(self.0.env) };
        }
    }
}

/// The start of a source line in a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// First bytecode index.
    pub from: i64,
    /// Number.
    pub number: u32,
}

/// A field of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name.
    pub name: String,
    /// Static?
    pub is_static: bool,
}

const ACC_STATIC: jint = 8;

impl Jvmti<'static> {
    /// Gets the tool interface of the virtual machine. Called once per agent, because each environment has its own tag
    /// map.
    ///
    /// # Safety
    /// `vm` must be the `JavaVM` that the virtual machine gave to the agent.
    pub unsafe fn of(vm: *mut JavaVM) -> Option<Self> {
        // SAFETY: promised by the caller.
        unsafe { Self::of_versions(vm, raw::versions(cfg!(target_os = "android"))) }
    }

    /// Like [`Jvmti::of`], for these versions.
    ///
    /// # Safety
    /// See [`Jvmti::of`].
    pub(crate) unsafe fn of_versions(vm: *mut JavaVM, versions: &[jint]) -> Option<Self> {
        for version in versions.iter().copied() {
            let mut env: *mut c_void = ptr::null_mut();
            // SAFETY: promised by the caller: a pointer to the table of the invocation interface.
            let table = unsafe { *vm };
            // SAFETY: as above.
            let table = unsafe { &*table };
            // SAFETY: `GetEnv` is there since version 1.2.
            let get_env = unsafe { table.v1_2 }.GetEnv;
            // SAFETY: as above; the result goes into our own variable.
            let status = unsafe { get_env(vm, &raw mut env, version) };
            if status == jni::sys::JNI_OK && !env.is_null() {
                let last = if version == raw::VERSION_11 {
                    raw::SET_HEAP_SAMPLING_INTERVAL
                } else {
                    raw::LAST_OF_1_2
                };
                return Some(Self { env: env.cast(), last, owner: PhantomData });
            }
        }
        None
    }

    pub(crate) const fn from_env(env: raw::Env) -> Self {
        Self { env, last: raw::LAST_OF_1_2, owner: PhantomData }
    }
}

impl Jvmti<'_> {
    /// The function in a slot of the table.
    ///
    /// # Safety
    /// `F` must be the type of the function in that slot.
    pub(crate) unsafe fn function<F: Copy>(self, slot: usize) -> Result<F, Error> {
        const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
        if slot > self.last {
            return Err(Error::NotThere);
        }
        // SAFETY: an environment points at its table.
        let table = unsafe { *self.env };
        // SAFETY: slots up to `last` are in the table; the first slot is at its start.
        let entry = unsafe { table.wrapping_add(slot.wrapping_sub(1)).read() };
        if entry.is_null() {
            return Err(Error::NotThere);
        }
        // SAFETY: promised by the caller; a function pointer is a pointer here.
        Ok(unsafe { mem::transmute_copy::<*const c_void, F>(&entry) })
    }

    /// Requests those of the given capabilities that are offered. Returns the ones that are not available.
    pub fn add_capabilities(self, wanted: &[usize]) -> Result<Vec<usize>, Error> {
        let mut offered = raw::Capabilities::default();
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::GetCapabilities>(raw::GET_POTENTIAL_CAPABILITIES) }?;
        // SAFETY: the result goes into our own 128 bits.
        check(unsafe { get(self.env, &raw mut offered) })?;
        let has =
            |set: &raw::Capabilities, bit: usize| set.get(bit / 32).is_some_and(|w| w >> (bit % 32) & 1 == 1);
        let mut asked = raw::Capabilities::default();
        for &bit in wanted.iter().filter(|&&bit| has(&offered, bit)) {
            if let Some(word) = asked.get_mut(bit / 32) {
                *word |= 1 << (bit % 32);
            }
        }
        // SAFETY: the type of the function in this slot.
        let add = unsafe { self.function::<f::AddCapabilities>(raw::ADD_CAPABILITIES) }?;
        // SAFETY: our own 128 bits.
        check(unsafe { add(self.env, &raw const asked) })?;
        Ok(wanted.iter().copied().filter(|&bit| !has(&asked, bit)).collect())
    }

    /// A system property, with the value that the virtual machine has at start.
    #[must_use]
    pub fn system_property(self, name: &CStr) -> Option<String> {
        let mut text = ptr::null_mut();
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::GetSystemProperty>(raw::GET_SYSTEM_PROPERTY) }.ok()?;
        // SAFETY: a terminated name; the result goes into our own variable.
        check(unsafe { get(self.env, name.as_ptr(), &raw mut text) }).ok()?;
        self.text(text)
    }

    /// Appends a jar to the boot loader's classes.
    pub fn add_to_boot_search(self, jar: &CStr) -> Result<(), Error> {
        self.add_to_search(raw::ADD_TO_BOOTSTRAP_CLASS_LOADER_SEARCH, jar)
    }

    /// Appends a jar to the system loader's class path.
    pub fn add_to_system_search(self, jar: &CStr) -> Result<(), Error> {
        self.add_to_search(raw::ADD_TO_SYSTEM_CLASS_LOADER_SEARCH, jar)
    }

    fn add_to_search(self, slot: usize, jar: &CStr) -> Result<(), Error> {
        // SAFETY: both callers pass a slot of this type.
        let add = unsafe { self.function::<f::AddToSearch>(slot) }?;
        // SAFETY: a terminated path.
        check(unsafe { add(self.env, jar.as_ptr()) })
    }

    /// Forces a full collection.
    pub fn collect(self) -> Result<(), Error> {
        // SAFETY: the type of the function in this slot.
        let force = unsafe { self.function::<f::Plain>(raw::FORCE_GARBAGE_COLLECTION) }?;
        // SAFETY: no arguments.
        check(unsafe { force(self.env) })
    }

    /// Every loaded class, arrays included, as local references: call this in a local frame.
    pub fn loaded_classes<'local>(self, env: &Env<'local>) -> Result<Vec<JClass<'local>>, Error> {
        let raw = self.list(raw::GET_LOADED_CLASSES)?;
        // SAFETY: local references of this thread's current frame.
        Ok(raw.into_iter().map(|class| unsafe { JClass::from_raw(env, class) }).collect())
    }

    /// Every live thread, as local references.
    pub fn threads<'local>(self, env: &Env<'local>) -> Result<Vec<JObject<'local>>, Error> {
        let raw = self.list(raw::GET_ALL_THREADS)?;
        // SAFETY: local references of this thread's current frame.
        Ok(raw.into_iter().map(|thread| unsafe { JObject::from_raw(env, thread) }).collect())
    }

    pub(crate) fn list(self, slot: usize) -> Result<Vec<jobject>, Error> {
        let (mut count, mut at) = (0, ptr::null_mut());
        // SAFETY: both callers pass a slot of this type.
        let get = unsafe { self.function::<f::List>(slot) }?;
        // SAFETY: the results go into our own variables.
        check(unsafe { get(self.env, &raw mut count, &raw mut at) })?;
        self.owned(at, count)
    }

    /// Name of a thread.
    pub fn thread_name(self, env: &Env<'_>, thread: &JObject<'_>) -> Result<String, Error> {
        let mut info = raw::ThreadInfo {
            name: ptr::null_mut(),
            priority: 0,
            is_daemon: false,
            thread_group: ptr::null_mut(),
            context_class_loader: ptr::null_mut(),
        };
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::GetThreadInfo>(raw::GET_THREAD_INFO) }?;
        // SAFETY: a live reference; the result goes into our own structure.
        check(unsafe { get(self.env, thread.as_raw(), &raw mut info) })?;
        for reference in [info.thread_group, info.context_class_loader] {
            // SAFETY: a new local reference (or null), which we must delete.
            env.delete_local_ref(unsafe { JObject::from_raw(env, reference) });
        }
        Ok(self.text(info.name).unwrap_or_default())
    }

    /// Signature of a class: `Ljava/lang/String;`, `[[I`.
    pub fn class_signature(self, class: &JObject<'_>) -> Result<String, Error> {
        let mut text = ptr::null_mut();
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::GetClassSignature>(raw::GET_CLASS_SIGNATURE) }?;
        // SAFETY: a live reference; the generic signature is not requested.
        check(unsafe { get(self.env, class.as_raw(), &raw mut text, ptr::null_mut()) })?;
        Ok(self.text(text).unwrap_or_default())
    }

    /// Source file of a class, if it is known.
    #[must_use]
    pub fn source_file(self, class: &JObject<'_>) -> Option<String> {
        let mut text = ptr::null_mut();
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::TextOf>(raw::GET_SOURCE_FILE_NAME) }.ok()?;
        // SAFETY: a live reference.
        check(unsafe { get(self.env, class.as_raw(), &raw mut text) }).ok()?;
        self.text(text)
    }

    /// The fields that a class itself declares, in the order of the field indexes in references.
    pub fn fields(self, class: &JObject<'_>) -> Result<Vec<Field>, Error> {
        let (mut count, mut at) = (0, ptr::null_mut());
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::GetClassFields>(raw::GET_CLASS_FIELDS) }?;
        // SAFETY: a live reference; the results go into our own variables.
        check(unsafe { get(self.env, class.as_raw(), &raw mut count, &raw mut at) })?;
        let ids: Vec<jfieldID> = self.owned(at, count)?;
        ids.into_iter().map(|id| self.field(class, id)).collect()
    }

    fn field(self, class: &JObject<'_>, id: jfieldID) -> Result<Field, Error> {
        let (mut text, mut modifiers) = (ptr::null_mut(), 0);
        // SAFETY: the type of the function in this slot.
        let name = unsafe { self.function::<f::GetFieldName>(raw::GET_FIELD_NAME) }?;
        let none = ptr::null_mut();
        // SAFETY: a field of this class; the signatures are not requested.
        check(unsafe { name(self.env, class.as_raw(), id, &raw mut text, none, none) })?;
        let name = self.text(text).unwrap_or_default();
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::GetFieldModifiers>(raw::GET_FIELD_MODIFIERS) }?;
        // SAFETY: a field of this class.
        check(unsafe { get(self.env, class.as_raw(), id, &raw mut modifiers) })?;
        Ok(Field { name, is_static: modifiers & ACC_STATIC != 0 })
    }

    /// The interfaces that a class itself implements (or an interface extends), as local
    /// references.
    pub fn interfaces<'local>(
        self,
        env: &Env<'local>,
        class: &JObject<'_>,
    ) -> Result<Vec<JClass<'local>>, Error> {
        let (mut count, mut at) = (0, ptr::null_mut());
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::ListOf>(raw::GET_IMPLEMENTED_INTERFACES) }?;
        // SAFETY: a live reference; the results go into our own variables.
        check(unsafe { get(self.env, class.as_raw(), &raw mut count, &raw mut at) })?;
        let raw: Vec<jobject> = self.owned(at, count)?;
        // SAFETY: local references of this thread's current frame.
        Ok(raw.into_iter().map(|class| unsafe { JClass::from_raw(env, class) }).collect())
    }

    /// The tag of an object in this environment; 0: none.
    pub fn tag(self, object: &JObject<'_>) -> Result<i64, Error> {
        let mut tag = 0;
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::LongOf>(raw::GET_TAG) }?;
        // SAFETY: a live reference.
        check(unsafe { get(self.env, object.as_raw(), &raw mut tag) })?;
        Ok(tag)
    }

    /// Tags an object; 0 removes its tag.
    pub fn set_tag(self, object: &JObject<'_>, tag: i64) -> Result<(), Error> {
        // SAFETY: the type of the function in this slot.
        let set = unsafe { self.function::<f::SetTag>(raw::SET_TAG) }?;
        // SAFETY: a live reference.
        check(unsafe { set(self.env, object.as_raw(), tag) })
    }

    /// The live objects that have one of these tags, as local references, with their tags.
    pub fn objects_with_tags<'local>(
        self,
        env: &Env<'local>,
        tags: &[i64],
    ) -> Result<Vec<(JObject<'local>, i64)>, Error> {
        let (mut count, mut objects, mut found) = (0, ptr::null_mut(), ptr::null_mut());
        let asked = jint::try_from(tags.len()).map_err(|_too_many| Error::NotThere)?;
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::GetObjectsWithTags>(raw::GET_OBJECTS_WITH_TAGS) }?;
        // SAFETY: the number of tags is correct; the results go into our own variables.
        check(unsafe {
            get(self.env, asked, tags.as_ptr(), &raw mut count, &raw mut objects, &raw mut found)
        })?;
        // Both arrays are freed, even if one of the copies fails.
        let (objects, found) = (self.owned::<jobject>(objects, count), self.owned::<jlong>(found, count));
        // SAFETY: local references of this thread's current frame.
        Ok(objects?.into_iter().map(|o| unsafe { JObject::from_raw(env, o) }).zip(found?).collect())
    }

    /// The innermost frames of the calling thread, into `room`.
    pub fn own_stack(self, room: &mut [StackFrame]) -> Result<&[StackFrame], Error> {
        let mut count = 0;
        let most = jint::try_from(room.len()).map_err(|_too_many| Error::NotThere)?;
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::GetStackTrace>(raw::GET_STACK_TRACE) }?;
        let frames = room.as_mut_ptr().cast::<raw::FrameInfo>();
        // SAFETY: null means the calling thread. There is room for this number of frames, with the same layout (a test
        // compares them).
        check(unsafe { get(self.env, ptr::null_mut(), 0, most, frames, &raw mut count) })?;
        Ok(room.get(..usize::try_from(count).unwrap_or(0)).unwrap_or_default())
    }

    /// Name of a method.
    pub fn method_name(self, method: Method) -> Result<String, Error> {
        let mut text = ptr::null_mut();
        let none = ptr::null_mut();
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::GetMethodName>(raw::GET_METHOD_NAME) }?;
        // SAFETY: a method of a loaded class; the signatures are not requested.
        check(unsafe { get(self.env, method.0, &raw mut text, none, none) })?;
        Ok(self.text(text).unwrap_or_default())
    }

    /// The class that declares a method, as a local reference.
    pub fn declaring_class<'local>(self, env: &Env<'local>, method: Method) -> Result<JClass<'local>, Error> {
        let mut class = ptr::null_mut();
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::GetMethodDeclaringClass>(raw::GET_METHOD_DECLARING_CLASS) }?;
        // SAFETY: a method of a loaded class.
        check(unsafe { get(self.env, method.0, &raw mut class) })?;
        // SAFETY: a local reference of this thread's current frame.
        Ok(unsafe { JClass::from_raw(env, class) })
    }

    /// The starts of the lines of a method.
    pub fn lines(self, method: Method) -> Result<Vec<Line>, Error> {
        let (mut count, mut at) = (0, ptr::null_mut());
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::GetLineNumberTable>(raw::GET_LINE_NUMBER_TABLE) }?;
        // SAFETY: a method of a loaded class; the results go into our own variables.
        check(unsafe { get(self.env, method.0, &raw mut count, &raw mut at) })?;
        let lines: Vec<raw::LineNumberEntry> = self.owned(at, count)?;
        let line = |l: raw::LineNumberEntry| Line {
            from: l.start_location,
            number: u32::try_from(l.line_number).unwrap_or(0),
        };
        Ok(lines.into_iter().map(line).collect())
    }

    /// The line that contains a bytecode index; `None`: the class has no line numbers.
    #[must_use]
    pub fn line(self, method: Method, location: i64) -> Option<u32> {
        let lines = self.lines(method).ok()?;
        lines.into_iter().filter(|line| line.from <= location).max_by_key(|line| line.from).map(|l| l.number)
    }

    /// Is the virtual machine up, so that Java code can run?
    #[must_use]
    pub fn is_live(self) -> bool {
        const LIVE: jint = 4;
        let mut phase = 0;
        // SAFETY: the type of the function in this slot.
        let Ok(get) = (unsafe { self.function::<f::Number>(raw::GET_PHASE) }) else { return false };
        // SAFETY: the result goes into our own variable.
        check(unsafe { get(self.env, &raw mut phase) }).is_ok() && phase == LIVE
    }

    /// Sends a loaded class through the class file hook again.
    pub fn retransform(self, class: &JObject<'_>) -> Result<(), Error> {
        // SAFETY: the type of the function in this slot.
        let again = unsafe { self.function::<f::RetransformClasses>(raw::RETRANSFORM_CLASSES) }?;
        let classes = [class.as_raw()];
        // SAFETY: one live reference.
        check(unsafe { again(self.env, 1, classes.as_ptr()) })
    }

    /// Sets the mean number of bytes between two sampled allocations. The whole virtual machine has one interval.
    pub fn set_sampling_interval(self, bytes: u32) -> Result<(), Error> {
        let bytes = jint::try_from(bytes).map_err(|_too_large| Error::NotThere)?;
        // SAFETY: the type of the function in this slot.
        let set = unsafe { self.function::<f::SetHeapSamplingInterval>(raw::SET_HEAP_SAMPLING_INTERVAL) }?;
        // SAFETY: a plain number.
        check(unsafe { set(self.env, bytes) })
    }

    /// Copies an array that the virtual machine allocated, and frees the original.
    pub(crate) fn owned<T: Copy>(self, at: *mut T, count: jint) -> Result<Vec<T>, Error> {
        let count = usize::try_from(count).unwrap_or(0);
        if at.is_null() {
            return Ok(Vec::new());
        }
        let mut copy = Vec::new();
        // The array may be as large as the heap, and memory may be short.
        let reserved = copy.try_reserve_exact(count).map_err(|_too_large| Error::NoMemory);
        if reserved.is_ok() {
            // SAFETY: the virtual machine reported the number of elements.
            copy.extend_from_slice(unsafe { slice::from_raw_parts(at, count) });
        }
        self.give_back(at.cast());
        reserved.map(|()| copy)
    }

    /// Copies a text (modified UTF-8) that the virtual machine allocated, and frees the original.
    pub(crate) fn text(self, at: *mut c_char) -> Option<String> {
        if at.is_null() {
            return None;
        }
        // SAFETY: texts of the virtual machine are terminated.
        let text = String::from_utf8_lossy(unsafe { CStr::from_ptr(at) }.to_bytes()).into_owned();
        self.give_back(at.cast());
        Some(text)
    }

    pub(crate) fn give_back(self, at: *mut u8) {
        if at.is_null() {
            return;
        }
        // SAFETY: the type of the function in this slot.
        if let Ok(deallocate) = unsafe { self.function::<f::Deallocate>(raw::DEALLOCATE) } {
            // SAFETY: memory that the virtual machine allocated for a result.
            let _always_succeeds = unsafe { deallocate(self.env, at) };
        }
    }
}

/// Converts the virtual machine's error code to a result.
pub(crate) const fn check(code: raw::Code) -> Result<(), Error> {
    if code == raw::ERROR_NONE { Ok(()) } else { Err(Error::Code(code)) }
}
