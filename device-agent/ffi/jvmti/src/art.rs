//! The heap of Android's runtime, counted by class.
//!
//! Data flow: [`ArtHeap::of`] searches the extension functions for the walk that reports each object's heap.
//! [`ArtHeap::count`] tags the classes loaded since the last count with numbers, walks the heap once, and adds up by
//! the number of an object's class. Objects are never tagged: every collection sweeps the runtime's tag table, and the
//! table is rewritten for every object that moves.
//!
//! The plain walk also visits the objects of the boot image and the zygote, about 10^5 objects that no test makes. Only
//! the app's own heap is counted. Without the extension all heaps are counted, which does not change the difference
//! between two counts.
//!
//! Another extension of this runtime adds a dex file to a class loader ([`Jvmti::add_to_dex_loader`]).

use core::ffi::{CStr, c_void};
use core::ptr;
use std::sync::Mutex;

use jni::Env;
use jni::objects::JObject;
use jni::sys::{jint, jlong, jobject};

use crate::calls::{Error, Jvmti, OwnJvmti, check};
use crate::raw::{self, function as f};

/// The extension that walks the heap and reports each object's heap, since API 26.
const ITERATE_THROUGH_HEAP: &CStr = c"com.android.art.heap.iterate_through_heap_ext";
/// The extension that adds a dex file to a class loader, since API 30.
const ADD_TO_DEX_LOADER: &CStr = c"com.android.art.classloader.add_to_dex_class_loader";
/// Prefix of the names of all extensions of this runtime.
const OF_ART: &[u8] = b"com.android.art.";
/// `kHeapIdApp`; 1 is the image's and 2 the zygote's heap.
const APP_HEAP: jint = 3;
/// Tells the walk to continue.
const GO_ON: jint = 0;

/// Live objects of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassTotal {
    /// `Ljava/lang/String;`, `[I`
    pub signature: String,
    /// Number of instances.
    pub instances: u64,
    /// Size of the instances in bytes.
    pub bytes: u64,
}

/// Counts the app's heap.
pub struct ArtHeap {
    /// The environment in which only classes have tags: their numbers.
    jvmti: OwnJvmti,
    walk: Option<f::IterateThroughHeap>,
    /// Signatures of the classes, by number from 1. Locked for a count, never inside the walk.
    signatures: Mutex<Vec<String>>,
}

/// The sums of the walk. All their memory is allocated before the walk: during it every other thread is stopped, maybe
/// inside an allocation.
struct Sums {
    classes: Vec<(u64, u64)>,
    /// Whether the walk reports each object's heap.
    told: bool,
}

impl ArtHeap {
    /// Uses the runtime's own walk if it has one, otherwise the plain walk of every virtual machine. `None`: the
    /// virtual machine does not allow tags.
    #[must_use]
    pub fn of(env: &Env<'_>) -> Option<Self> {
        Self::new(OwnJvmti::new(env)?)
    }

    fn new(jvmti: OwnJvmti) -> Option<Self> {
        let walk = jvmti.get().art_extensions().ok()?.and_then(|art| art.walk);
        let refused = jvmti.get().add_capabilities(&[raw::CAN_TAG_OBJECTS]);
        refused.is_ok_and(|refused| refused.is_empty()).then_some(())?;
        Some(Self { jvmti, walk, signatures: Mutex::new(Vec::new()) })
    }

    /// Counts all objects in the app's heap, reachable or not, so collect garbage first. Creates a local reference for
    /// each loaded class, so call it in a local frame.
    pub fn count(&self) -> Result<Vec<ClassTotal>, Error> {
        let mut signatures = self.signatures.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.number_classes(&mut signatures)?;
        // Objects of classes loaded meanwhile are counted under 0, and reported the next time.
        let mut sums =
            Sums { classes: vec![(0, 0); signatures.len().wrapping_add(1)], told: self.walk.is_some() };
        // SAFETY: the type of the function in this slot.
        let plain = unsafe { self.jvmti.get().function::<f::IterateThroughHeap>(raw::ITERATE_THROUGH_HEAP) };
        let walk = self.walk.map_or(plain, Ok)?;
        let callbacks = raw::HeapCallbacks { iteration: Some(object), ..raw::HeapCallbacks::default() };
        let user = (&raw mut sums).cast::<c_void>();
        // SAFETY: no filter, all classes; the sums outlive the call, which ends with the walk.
        check(unsafe { walk(self.jvmti.get().env, 0, ptr::null_mut(), &raw const callbacks, user) })?;
        let counted = signatures.iter().zip(sums.classes.iter().skip(1));
        Ok(counted
            .filter(|(_, (instances, _))| *instances > 0)
            .map(|(signature, &(instances, bytes))| ClassTotal {
                signature: signature.clone(),
                instances,
                bytes,
            })
            .collect())
    }

    /// Gives numbers to the classes that have none.
    fn number_classes(&self, signatures: &mut Vec<String>) -> Result<(), Error> {
        for class in self.jvmti.get().list(raw::GET_LOADED_CLASSES)? {
            if self.jvmti.get().raw_tag(class)? != 0 {
                continue;
            }
            // A class that is about to be unloaded may no longer have a signature.
            let Ok(signature) = self.jvmti.get().raw_signature(class) else { continue };
            let number = jlong::try_from(signatures.len()).map_err(|_never| Error::NotThere)?.wrapping_add(1);
            self.jvmti.get().raw_set_tag(class, number)?;
            signatures.push(signature);
        }
        Ok(())
    }
}

/// The used extension functions of Android's runtime.
#[derive(Default)]
struct ArtExtensions {
    walk: Option<f::IterateThroughHeap>,
    add_to_loader: Option<f::AddToDexLoader>,
}

impl Jvmti<'_> {
    /// Is this Android's runtime?
    ///
    /// # Errors
    /// There is no memory for its result.
    pub fn is_art(self) -> Result<bool, Error> {
        Ok(self.art_extensions()?.is_some())
    }

    /// Adds the classes of a dex file to this class loader. The loader uses them if it does not find a class itself.
    ///
    /// # Errors
    /// The loader is not a dex class loader, or the runtime refuses the file. [`Error::NotThere`]: the runtime is older
    /// than Android 11, or not Android's.
    pub fn add_to_dex_loader(self, loader: &JObject<'_>, dex: &CStr) -> Result<(), Error> {
        self.raw_add_to_dex_loader(loader.as_raw(), dex)
    }

    fn raw_add_to_dex_loader(self, loader: jobject, dex: &CStr) -> Result<(), Error> {
        let add = self.art_extensions()?.and_then(|art| art.add_to_loader).ok_or(Error::NotThere)?;
        // SAFETY: a live reference and a terminated text, which the runtime copies.
        check(unsafe { add(self.env, loader, dex.as_ptr()) })
    }

    fn art_extensions(self) -> Result<Option<ArtExtensions>, Error> {
        let (mut count, mut at) = (0, ptr::null_mut());
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::GetExtensionFunctions>(raw::GET_EXTENSION_FUNCTIONS) };
        let Ok(get) = get else { return Ok(None) };
        // SAFETY: the results go into our own variables.
        if check(unsafe { get(self.env, &raw mut count, &raw mut at) }).is_err() {
            return Ok(None);
        }
        let mut art: Option<ArtExtensions> = None;
        for extension in self.owned(at, count)? {
            // The virtual machine allocated all results for us, so they are freed here. Only the parameter names stay
            // if there is no memory for their list.
            for parameter in self.owned(extension.params, extension.param_count).unwrap_or_default() {
                self.give_back(parameter.name.cast());
            }
            self.give_back(extension.errors.cast());
            self.give_back(extension.short_description.cast());
            let Some(id) = self.text(extension.id) else { continue };
            if !id.as_bytes().starts_with(OF_ART) {
                continue;
            }
            let art = art.get_or_insert_default();
            let function = (!extension.func.is_null()).then_some(extension.func);
            if id.as_bytes() == ITERATE_THROUGH_HEAP.to_bytes() {
                // SAFETY: the extension of this name takes a filter, a class, callbacks and a pointer for them, like
                // the plain walk.
                art.walk = function
                    .map(|at| unsafe { core::mem::transmute::<*const c_void, f::IterateThroughHeap>(at) });
            }
            if id.as_bytes() == ADD_TO_DEX_LOADER.to_bytes() {
                // SAFETY: the extension of this name takes a class loader and a path.
                art.add_to_loader = function
                    .map(|at| unsafe { core::mem::transmute::<*const c_void, f::AddToDexLoader>(at) });
            }
        }
        Ok(art)
    }

    fn raw_tag(self, object: jobject) -> Result<i64, Error> {
        let mut tag = 0;
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::LongOf>(raw::GET_TAG) }?;
        // SAFETY: a live reference.
        check(unsafe { get(self.env, object, &raw mut tag) })?;
        Ok(tag)
    }

    fn raw_set_tag(self, object: jobject, tag: i64) -> Result<(), Error> {
        // SAFETY: the type of the function in this slot.
        let set = unsafe { self.function::<f::SetTag>(raw::SET_TAG) }?;
        // SAFETY: a live reference.
        check(unsafe { set(self.env, object, tag) })
    }

    fn raw_signature(self, class: jobject) -> Result<String, Error> {
        let mut text = ptr::null_mut();
        // SAFETY: the type of the function in this slot.
        let get = unsafe { self.function::<f::GetClassSignature>(raw::GET_CLASS_SIGNATURE) }?;
        // SAFETY: a live reference; the generic signature is not requested.
        check(unsafe { get(self.env, class, &raw mut text, ptr::null_mut()) })?;
        Ok(self.text(text).unwrap_or_default())
    }
}

/// Both walks call this function. The plain walk passes no last argument, so it is read only if the walk reports heaps.
unsafe extern "system" fn object(
    class: jlong,
    bytes: jlong,
    _: *mut jlong,
    _: jint,
    user: *mut c_void,
    heap: jint,
) -> jint {
    // SAFETY: `count` passes its sums.
    let sums = unsafe { &mut *user.cast::<Sums>() };
    let of_app = !sums.told || heap == APP_HEAP;
    let class = usize::try_from(class).unwrap_or(0);
    if let Some((instances, all)) = sums.classes.get_mut(class).filter(|_| of_app) {
        *instances = (*instances).wrapping_add(1);
        *all = all.saturating_add(u64::try_from(bytes).unwrap_or(0));
    }
    GO_ON
}

#[cfg(test)]
mod tests;
