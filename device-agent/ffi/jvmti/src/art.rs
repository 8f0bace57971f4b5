//! The heap of Android's runtime, counted by class.
//!
//! Data flow: [`ArtHeap::of`] looks among the extension functions for the walk that tells each
//! object's heap; [`ArtHeap::count`] tags the classes that have come since the last time with
//! numbers, walks once, and adds up by the number of an object's class. No object is ever tagged:
//! the runtime's table of tags is swept by every collection and rewritten for every object that
//! moves.
//!
//! The plain walk also visits what the boot image and the zygote brought, some 10^5 objects that no
//! test makes. Only the app's own heap counts; without the extension everything does, which
//! differences between two counts do not notice.
//!
//! Another of its extensions puts a dex file after what a class loader has
//! ([`Jvmti::add_to_dex_loader`]).

use core::ffi::{CStr, c_void};
use core::ptr;
use std::sync::Mutex;

use jni::Env;
use jni::objects::JObject;
use jni::sys::{jint, jlong, jobject};

use crate::calls::{Error, Jvmti, OwnJvmti, check};
use crate::raw::{self, function as f};

/// The extension that walks the heap and tells heaps apart, since API 26.
const ITERATE_THROUGH_HEAP: &CStr = c"com.android.art.heap.iterate_through_heap_ext";
/// The extension that puts a dex file into a class loader, since API 30.
const ADD_TO_DEX_LOADER: &CStr = c"com.android.art.classloader.add_to_dex_class_loader";
/// Beginning of the names of all of this runtime's extensions.
const OF_ART: &[u8] = b"com.android.art.";
/// `kHeapIdApp`; 1 is the image's and 2 the zygote's heap.
const APP_HEAP: jint = 3;
/// A walk that goes on.
const GO_ON: jint = 0;

/// Live objects of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassTotal {
    /// `Ljava/lang/String;`, `[I`
    pub signature: String,
    /// How many.
    pub instances: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Counts the app's heap.
pub struct ArtHeap {
    /// Classes carry their numbers here, and nothing else a tag.
    jvmti: OwnJvmti,
    walk: Option<f::IterateThroughHeap>,
    /// Signatures of the classes, by number from 1. Taken by who counts, never in the walk.
    signatures: Mutex<Vec<String>>,
}

/// What the walk adds to. It has all its room before: while the walk runs every other thread
/// stands, maybe inside an allocation.
struct Sums {
    classes: Vec<(u64, u64)>,
    /// The walk tells heaps apart.
    told: bool,
}

impl ArtHeap {
    /// By the runtime's own walk where it has one, else by the plain one, which every virtual
    /// machine has. `None`: it refuses tags.
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

    /// Everything in the app's heap, reachable or not: collect before. Leaves a local reference for
    /// each loaded class behind, so run it in a local frame.
    pub fn count(&self) -> Result<Vec<ClassTotal>, Error> {
        let mut signatures = self.signatures.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.number_classes(&mut signatures)?;
        // Objects of classes that came since are counted under 0, and told the next time.
        let mut sums =
            Sums { classes: vec![(0, 0); signatures.len().wrapping_add(1)], told: self.walk.is_some() };
        // SAFETY: the type of this place.
        let plain = unsafe { self.jvmti.get().function::<f::IterateThroughHeap>(raw::ITERATE_THROUGH_HEAP) };
        let walk = self.walk.map_or(plain, Ok)?;
        let callbacks = raw::HeapCallbacks { iteration: Some(object), ..raw::HeapCallbacks::default() };
        let user = (&raw mut sums).cast::<c_void>();
        // SAFETY: no filter, all classes; the sums outlive the call, which is over when the walk
        // is.
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

    /// Classes that have no number yet get the next ones.
    fn number_classes(&self, signatures: &mut Vec<String>) -> Result<(), Error> {
        for class in self.jvmti.get().list(raw::GET_LOADED_CLASSES)? {
            if self.jvmti.get().raw_tag(class)? != 0 {
                continue;
            }
            // A class that is about to be unloaded may have none any more.
            let Ok(signature) = self.jvmti.get().raw_signature(class) else { continue };
            let number = jlong::try_from(signatures.len()).map_err(|_never| Error::NotThere)?.wrapping_add(1);
            self.jvmti.get().raw_set_tag(class, number)?;
            signatures.push(signature);
        }
        Ok(())
    }
}

/// That the runtime is Android's, and what it has of the functions that are used here.
#[derive(Default)]
struct ArtExtensions {
    walk: Option<f::IterateThroughHeap>,
    add_to_loader: Option<f::AddToDexLoader>,
}

impl Jvmti<'_> {
    /// Is this Android's runtime?
    ///
    /// # Errors
    /// There is no memory for its answer.
    pub fn is_art(self) -> Result<bool, Error> {
        Ok(self.art_extensions()?.is_some())
    }

    /// This class loader finds from now on the classes of a dex file, too, where it does not find
    /// them by itself.
    ///
    /// # Errors
    /// It is no loader of dex files, or the runtime refuses the file; [`Error::NotThere`]: the
    /// runtime is older than Android 11, or another.
    pub fn add_to_dex_loader(self, loader: &JObject<'_>, dex: &CStr) -> Result<(), Error> {
        self.raw_add_to_dex_loader(loader.as_raw(), dex)
    }

    fn raw_add_to_dex_loader(self, loader: jobject, dex: &CStr) -> Result<(), Error> {
        let add = self.art_extensions()?.and_then(|art| art.add_to_loader).ok_or(Error::NotThere)?;
        // SAFETY: a reference that lives, and a text with its end; the runtime copies it.
        check(unsafe { add(self.env, loader, dex.as_ptr()) })
    }

    fn art_extensions(self) -> Result<Option<ArtExtensions>, Error> {
        let (mut count, mut at) = (0, ptr::null_mut());
        // SAFETY: the type of this place.
        let get = unsafe { self.function::<f::GetExtensionFunctions>(raw::GET_EXTENSION_FUNCTIONS) };
        let Ok(get) = get else { return Ok(None) };
        // SAFETY: the answers go into words of ours.
        if check(unsafe { get(self.env, &raw mut count, &raw mut at) }).is_err() {
            return Ok(None);
        }
        let mut art: Option<ArtExtensions> = None;
        for extension in self.owned(at, count)? {
            // Everything in it was allocated for us, and is given back: names without memory for
            // their list are not.
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
                // SAFETY: the extension of this name takes a filter, a class, callbacks and a
                // pointer for them, as the plain walk does.
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
        // SAFETY: the type of this place.
        let get = unsafe { self.function::<f::LongOf>(raw::GET_TAG) }?;
        // SAFETY: a reference that lives.
        check(unsafe { get(self.env, object, &raw mut tag) })?;
        Ok(tag)
    }

    fn raw_set_tag(self, object: jobject, tag: i64) -> Result<(), Error> {
        // SAFETY: the type of this place.
        let set = unsafe { self.function::<f::SetTag>(raw::SET_TAG) }?;
        // SAFETY: a reference that lives.
        check(unsafe { set(self.env, object, tag) })
    }

    fn raw_signature(self, class: jobject) -> Result<String, Error> {
        let mut text = ptr::null_mut();
        // SAFETY: the type of this place.
        let get = unsafe { self.function::<f::GetClassSignature>(raw::GET_CLASS_SIGNATURE) }?;
        // SAFETY: a reference that lives; the generic signature is not asked for.
        check(unsafe { get(self.env, class, &raw mut text, ptr::null_mut()) })?;
        Ok(self.text(text).unwrap_or_default())
    }
}

/// Both walks call this: the plain one without the last argument, which is looked at only where the
/// walk tells heaps apart.
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
