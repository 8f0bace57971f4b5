//! A function table that behaves as ART's sources specify (openjdkjvmti: `art_jvmti.h`, `ti_heap.cc`,
//! `ti_extension.cc`): only JVMTI 1.2, a table of 154 slots, extension functions, tags per environment that need their
//! capability, several heaps in one walk. It was not tested on a device.

use core::ffi::c_char;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jni::sys::{JNI_EVERSION, JNI_OK, JavaVM, jclass};

use super::*;
use crate::raw::{Capabilities, Code, ExtensionFunctionInfo, HeapCallbacks, ParamInfo};

const MUST_POSSESS_CAPABILITY: Code = 99;
const NULL_POINTER: Code = 100;
const ILLEGAL_ARGUMENT: Code = 103;
const IMAGE: jint = 1;
const ZYGOTE: jint = 2;

/// State of the simulated runtime.
#[derive(Default)]
struct Runtime {
    classes: Vec<&'static str>,
    /// Number of the class, bytes, heap.
    objects: Vec<(usize, jlong, jint)>,
    /// Is the walk that reports heaps offered?
    extended: bool,
    may_tag: bool,
    tags: HashMap<usize, jlong>,
    /// Class loaders and the dex files that were added to them.
    added: Vec<(usize, String)>,
    /// Blocks that were allocated for results and not freed.
    blocks: HashMap<usize, Box<[u64]>>,
    environments: i32,
    /// Requested versions that it does not have: each is an error in the app's log.
    refused: Vec<jint>,
}

/// There is one runtime per process, as on a device, so tests run one after the other.
static ONE: Mutex<()> = Mutex::new(());
static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

fn runtime<R>(work: impl FnOnce(&mut Runtime) -> R) -> R {
    let mut guard = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    work(guard.get_or_insert_default())
}

fn allocate(runtime: &mut Runtime, bytes: usize) -> *mut u8 {
    let mut block = vec![0_u64; bytes.div_ceil(8)].into_boxed_slice();
    let at = block.as_mut_ptr();
    runtime.blocks.insert(at.addr(), block);
    at.cast()
}

fn text(runtime: &mut Runtime, text: &str) -> *mut c_char {
    let text = CString::new(text).unwrap();
    let bytes = text.as_bytes_with_nul();
    let at = allocate(runtime, bytes.len());
    // SAFETY: this number of bytes was just allocated.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
    at.cast()
}

/// A reference to the class with this number.
fn reference(class: usize) -> jobject {
    ptr::without_provenance_mut(0x1000 + class * 8)
}

extern "system" fn deallocate(_: raw::Env, at: *mut u8) -> Code {
    if !at.is_null() {
        assert!(runtime(|r| r.blocks.remove(&at.addr())).is_some(), "given back twice, or never allocated");
    }
    0
}

extern "system" fn potential(_: raw::Env, out: *mut Capabilities) -> Code {
    // SAFETY: the caller's 128 bits.
    unsafe { *out = [1 << raw::CAN_TAG_OBJECTS, 0, 0, 0] };
    0
}

extern "system" fn add(_: raw::Env, wanted: *const Capabilities) -> Code {
    // SAFETY: as above.
    let wanted = unsafe { *wanted };
    runtime(|r| r.may_tag |= wanted[0] & 1 << raw::CAN_TAG_OBJECTS != 0);
    0
}

extern "system" fn loaded(_: raw::Env, count: *mut jint, classes: *mut *mut jobject) -> Code {
    runtime(|r| {
        let at = allocate(r, r.classes.len() * 8).cast::<jobject>();
        for i in 0..r.classes.len() {
            // SAFETY: there is room for all elements.
            unsafe { at.wrapping_add(i).write(reference(i)) };
        }
        // SAFETY: the caller's words.
        unsafe { *count = jint::try_from(r.classes.len()).unwrap() };
        // SAFETY: as above.
        unsafe { *classes = at };
    });
    0
}

extern "system" fn signature(_: raw::Env, class: jclass, out: *mut *mut c_char, _: *mut *mut c_char) -> Code {
    runtime(|r| {
        let name = r.classes[(class.addr() - 0x1000) / 8];
        // SAFETY: the caller's word.
        unsafe { *out = text(r, name) };
    });
    0
}

extern "system" fn get_tag(_: raw::Env, object: jobject, out: *mut jlong) -> Code {
    runtime(|r| {
        if !r.may_tag {
            return MUST_POSSESS_CAPABILITY;
        }
        // SAFETY: the caller's word.
        unsafe { *out = r.tags.get(&object.addr()).copied().unwrap_or(0) };
        0
    })
}

extern "system" fn set_tag(_: raw::Env, object: jobject, tag: jlong) -> Code {
    runtime(|r| {
        if !r.may_tag {
            return MUST_POSSESS_CAPABILITY;
        }
        r.tags.insert(object.addr(), tag);
        0
    })
}

/// The lock is not held during the callback: on a device all other threads are stopped meanwhile, but here the callback
/// may use the runtime.
fn walk_over(callbacks: *const HeapCallbacks, user: *const c_void, extended: bool) -> Code {
    // SAFETY: the caller's structure.
    let callback = unsafe { (*callbacks).iteration }.unwrap();
    let (objects, tags) = runtime(|r| (r.objects.clone(), r.tags.clone()));
    for (class, bytes, heap) in objects {
        let class_tag = tags.get(&reference(class).addr()).copied().unwrap_or(0);
        let mut tag = 0;
        // The plain walk passes five arguments. The register of the sixth may hold any value.
        let heap = if extended { heap } else { 0x7fff };
        // SAFETY: a callback of this type.
        let control = unsafe { callback(class_tag, bytes, &raw mut tag, -1, user.cast_mut(), heap) };
        assert_eq!((control, tag), (0, 0), "no object is tagged");
    }
    0
}

extern "system" fn plain_walk(
    _: raw::Env,
    filter: jint,
    class: jclass,
    callbacks: *const HeapCallbacks,
    user: *const c_void,
) -> Code {
    assert!(filter == 0 && class.is_null());
    walk_over(callbacks, user, false)
}

extern "system" fn extended_walk(
    _: raw::Env,
    filter: jint,
    class: jclass,
    callbacks: *const HeapCallbacks,
    user: *const c_void,
) -> Code {
    assert!(filter == 0 && class.is_null());
    walk_over(callbacks, user, true)
}

extern "system" fn extensions(_: raw::Env, count: *mut jint, out: *mut *mut ExtensionFunctionInfo) -> Code {
    runtime(|r| {
        let mut ids = vec![("com.android.art.heap.get_heap_name", ptr::null())];
        if r.extended {
            ids.push(("com.android.art.heap.iterate_through_heap_ext", extended_walk as *const c_void));
            ids.push(("com.android.art.classloader.add_to_dex_class_loader", add_to_loader as *const c_void));
        }
        let at = allocate(r, ids.len() * size_of::<ExtensionFunctionInfo>()).cast::<ExtensionFunctionInfo>();
        for (i, (id, func)) in ids.iter().enumerate() {
            let params = allocate(r, size_of::<ParamInfo>()).cast::<ParamInfo>();
            let parameter =
                ParamInfo { name: text(r, "heap_filter"), kind: 91, base_type: 104, null_ok: false };
            // SAFETY: there is room for one element.
            unsafe { params.write(parameter) };
            let info = ExtensionFunctionInfo {
                func: *func,
                id: text(r, id),
                short_description: text(r, "Iterate through a heap."),
                param_count: 1,
                params,
                error_count: 1,
                errors: allocate(r, 4).cast(),
            };
            // SAFETY: there is room for all elements.
            unsafe { at.wrapping_add(i).write(info) };
        }
        // SAFETY: the caller's words.
        unsafe { *count = jint::try_from(ids.len()).unwrap() };
        // SAFETY: as above.
        unsafe { *out = at };
    });
    0
}

/// Like `SearchUtil::AddToDexClassLoader`: refuses a null loader, a null path, and a file that cannot be opened.
extern "system" fn add_to_loader(_: raw::Env, loader: jobject, segment: *const c_char) -> Code {
    if loader.is_null() || segment.is_null() {
        return NULL_POINTER;
    }
    // SAFETY: the caller's text.
    let path = unsafe { CStr::from_ptr(segment) }.to_str().unwrap().to_owned();
    if !path.starts_with('/') {
        return ILLEGAL_ARGUMENT;
    }
    runtime(|r| r.added.push((loader.addr(), path)));
    0
}

extern "system" fn dispose(_: raw::Env) -> Code {
    runtime(|r| {
        r.environments -= 1;
        r.tags.clear();
    });
    0
}

/// The function table, and the two words that point to it.
fn table() -> raw::Env {
    let mut table = vec![ptr::null::<c_void>(); raw::LAST_OF_1_2];
    for (slot, function) in [
        (raw::DEALLOCATE, deallocate as *const c_void),
        (raw::GET_CLASS_SIGNATURE, signature as *const c_void),
        (raw::GET_LOADED_CLASSES, loaded as *const c_void),
        (raw::GET_TAG, get_tag as *const c_void),
        (raw::SET_TAG, set_tag as *const c_void),
        (raw::ITERATE_THROUGH_HEAP, plain_walk as *const c_void),
        (raw::GET_EXTENSION_FUNCTIONS, extensions as *const c_void),
        (raw::DISPOSE_ENVIRONMENT, dispose as *const c_void),
        (raw::GET_POTENTIAL_CAPABILITIES, potential as *const c_void),
        (raw::ADD_CAPABILITIES, add as *const c_void),
    ] {
        table[slot - 1] = function;
    }
    let table: &'static [*const c_void] = table.leak();
    Box::leak(Box::new(table.as_ptr()))
}

extern "system" fn get_env(_: *mut JavaVM, out: *mut *mut c_void, version: jint) -> jint {
    if version != 0x3001_0200 {
        runtime(|r| r.refused.push(version));
        return JNI_EVERSION;
    }
    runtime(|r| r.environments += 1);
    // SAFETY: the caller's word.
    unsafe { *out = table().cast() };
    JNI_OK
}

extern "system" fn no_thread(_: *mut JavaVM, _: *mut *mut c_void, _: *mut c_void) -> jint {
    jni::sys::JNI_ERR
}

extern "system" fn no_end(_: *mut JavaVM) -> jint {
    jni::sys::JNI_ERR
}

/// A runtime with these classes and objects, and its tool interface.
fn start(runtime: Runtime) -> (MutexGuard<'static, ()>, Jvmti<'static>) {
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    *RUNTIME.lock().unwrap_or_else(PoisonError::into_inner) = Some(runtime);
    // Three reserved words, DestroyJavaVM, AttachCurrentThread, DetachCurrentThread, GetEnv,
    // AttachCurrentThreadAsDaemon.
    let invoke: [*const c_void; 8] = [
        ptr::null(),
        ptr::null(),
        ptr::null(),
        no_end as *const c_void,
        no_thread as *const c_void,
        no_end as *const c_void,
        get_env as *const c_void,
        no_thread as *const c_void,
    ];
    let mut vm: JavaVM = Box::leak(Box::new(invoke)).as_ptr().cast();
    // SAFETY: a table of the invocation interface.
    let jvmti = unsafe { Jvmti::of_versions(&raw mut vm, raw::versions(true)) }.unwrap();
    (one, jvmti)
}

fn total(signature: &str, instances: u64, bytes: u64) -> ClassTotal {
    ClassTotal { signature: signature.to_owned(), instances, bytes }
}

#[test]
fn only_jvmti_1_2_is_had_and_nothing_behind_its_table_is_called() {
    let (_one, jvmti) = start(Runtime::default());
    assert_eq!(
        runtime(|r| r.environments),
        1,
        "an environment is not left behind by a version that is refused"
    );
    assert_eq!(runtime(|r| r.refused.clone()), [], "nothing is written into the app's log");
    assert_eq!(jvmti.is_art(), Ok(true));
    assert_eq!(jvmti.set_sampling_interval(1), Err(Error::NotThere));
    // A slot that is empty in ART.
    assert_eq!(jvmti.collect(), Err(Error::NotThere));
}

#[test]
fn the_apps_heap_is_counted_by_class_and_no_object_is_tagged() {
    let (_one, jvmti) = start(Runtime {
        classes: vec!["Ljava/lang/String;", "Lcom/example/Tile;", "[I"],
        objects: vec![(0, 16, IMAGE), (0, 24, ZYGOTE), (0, 32, 3), (1, 40, 3), (1, 40, 3), (2, 96, 0)],
        extended: true,
        ..Runtime::default()
    });
    let heap = ArtHeap::new(OwnJvmti(jvmti)).unwrap();
    assert!(heap.walk.is_some(), "the app's heap alone counts");
    let want = [total("Ljava/lang/String;", 1, 32), total("Lcom/example/Tile;", 2, 80)];
    assert_eq!(heap.count().unwrap(), want);
    // A class and objects of it are added. Existing classes keep their numbers.
    runtime(|r| {
        r.classes.push("Lcom/example/New;");
        r.objects.extend([(3, 8, 3), (1, 40, 3)]);
    });
    let want = [want[0].clone(), total("Lcom/example/Tile;", 3, 120), total("Lcom/example/New;", 1, 8)];
    assert_eq!(heap.count().unwrap(), want);
    drop(heap);
    assert_eq!(runtime(|r| (r.blocks.len(), r.environments)), (0, 0), "everything is given back");
}

#[test]
fn a_class_loader_gets_a_dex_file_where_the_runtime_can_do_that() {
    let (_one, jvmti) = start(Runtime { extended: true, ..Runtime::default() });
    let loader = reference(0);
    assert_eq!(jvmti.raw_add_to_dex_loader(loader, c"/data/x.dex"), Ok(()));
    assert_eq!(jvmti.raw_add_to_dex_loader(loader, c"x.dex"), Err(Error::Code(ILLEGAL_ARGUMENT)));
    let none = jvmti.raw_add_to_dex_loader(ptr::null_mut(), c"/data/x.dex");
    assert_eq!(none, Err(Error::Code(NULL_POINTER)));
    let added = vec![(loader.addr(), "/data/x.dex".to_owned())];
    assert_eq!(runtime(|r| (r.added.clone(), r.blocks.len())), (added, 0), "everything is given back");
}

#[test]
fn an_older_runtime_takes_no_dex_file() {
    let (_one, jvmti) = start(Runtime::default());
    assert_eq!(jvmti.raw_add_to_dex_loader(reference(0), c"/data/x.dex"), Err(Error::NotThere));
}

#[test]
fn without_the_extension_all_heaps_count() {
    let (_one, jvmti) = start(Runtime {
        classes: vec!["Ljava/lang/String;"],
        objects: vec![(0, 16, IMAGE), (0, 32, 3)],
        ..Runtime::default()
    });
    let heap = ArtHeap::new(OwnJvmti(jvmti)).unwrap();
    assert!(heap.walk.is_none());
    assert_eq!(heap.count().unwrap(), [total("Ljava/lang/String;", 2, 48)]);
}

#[test]
fn objects_of_a_class_that_comes_between_numbering_and_walking_wait_for_the_next_count() {
    let (_one, jvmti) = start(Runtime {
        classes: vec!["LA;"],
        // The second class is not loaded yet.
        objects: vec![(0, 8, 3), (1, 8, 3)],
        extended: true,
        ..Runtime::default()
    });
    let heap = ArtHeap::new(OwnJvmti(jvmti)).unwrap();
    assert_eq!(heap.count().unwrap(), [total("LA;", 1, 8)]);
    runtime(|r| r.classes.push("LB;"));
    assert_eq!(heap.count().unwrap(), [total("LA;", 1, 8), total("LB;", 1, 8)]);
}

#[test]
fn an_answer_without_memory_for_a_copy_is_no_empty_answer() {
    // More elements than any address space can hold.
    type Large = [u8; 1 << 40];
    let (_one, jvmti) = start(Runtime::default());
    let at = runtime(|r| allocate(r, 8));
    assert_eq!(jvmti.owned(at.cast::<Large>(), jint::MAX).err(), Some(Error::NoMemory));
    assert_eq!(runtime(|r| r.blocks.len()), 0, "it is given back");
    assert_eq!(jvmti.owned(ptr::null_mut::<Large>(), 0).map(|all| all.len()), Ok(0));
}
