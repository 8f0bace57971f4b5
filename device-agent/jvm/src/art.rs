//! Questions to Android's runtime, through its tool interface (JVMTI 1.2 with extensions) and the public methods of its
//! class library.
//!
//! A boundary collects twice and runs finalizers in between: a collection keeps objects that wait for a finalizer. Then
//! the app's heap is walked once ([`ArtHeap`]). Collection and walk are separate pauses, so objects that other threads
//! make in between count as alive; the confirming run distinguishes them from growth. Counters come from
//! `android.os.Debug`, which only reads words. The number of allocated objects is never read, because that would stop
//! the world.

use jni::objects::{JString, JValue};
use jni::{Env, jni_sig, jni_str};
use memgate_jvmti::{ArtHeap, ClassTotal, Jvmti};
use memgate_wire::java::JavaState;

use super::machine::{Failure, Live, Machine, clearing};
use super::names::class_of;
use super::vm::{heap_max, heap_used, run_finalizers, thread_names};

/// Room for a reference to every class.
const LOCAL_REFERENCES: usize = 1 << 16;

/// The runtime, with the questions that it answers.
pub(crate) struct Art {
    jvmti: Jvmti<'static>,
    heap: ArtHeap,
    /// Clear softly held objects before each count, because a cache of them is no leak.
    drops_soft: bool,
}

impl Art {
    /// `None`: the runtime gives no environment for the heap, or refuses tags.
    pub(crate) fn of(env: &Env<'_>, jvmti: Jvmti<'static>, drops_soft: bool) -> Option<Self> {
        Some(Self { jvmti, heap: ArtHeap::of(env)?, drops_soft })
    }

    /// Clears objects that are held only softly. The runtime does this only when an allocation finds no room. So this
    /// function tries to allocate as much as the maximum heap. The allocation fails and takes nothing; its error is
    /// cleared here. No array is as large as a heap of 2 GiB or more: there the allocation might succeed, so it is not
    /// tried.
    fn drop_soft(env: &mut Env<'_>) {
        let Some(most) = heap_max(env).and_then(|most| i32::try_from(most).ok()) else { return };
        let refused = env.with_local_frame(2, |env| {
            env.new_byte_array(usize::try_from(most).unwrap_or(0))?;
            Ok::<(), jni::errors::Error>(())
        });
        if refused.is_err() {
            env.exception_clear();
        }
    }

    /// A counter of the runtime.
    fn stat(env: &mut Env<'_>, name: &str) -> Option<u64> {
        let text = clearing(env, |env| {
            let debug = env.find_class(jni_str!("android/os/Debug"))?;
            let name = env.new_string(name)?;
            let answer = env.call_static_method(
                debug,
                jni_str!("getRuntimeStat"),
                jni_sig!("(Ljava/lang/String;)Ljava/lang/String;"),
                &[JValue::Object(&name)],
            )?;
            let answer = answer.l()?;
            if answer.is_null() {
                Ok(String::new())
            } else {
                env.cast_local::<JString<'_>>(answer)?.try_to_string(env)
            }
        });
        text.ok()?.trim().parse().ok()
    }
}

impl Machine for Art {
    fn histogram(&self, env: &mut Env<'_>) -> Result<Vec<Live>, Failure> {
        if self.drops_soft {
            Self::drop_soft(env);
        }
        let _counted_anyway = self.jvmti.collect();
        run_finalizers(env)?;
        let _as_well = self.jvmti.collect();
        let counted = env.with_local_frame(LOCAL_REFERENCES, |_| Ok::<_, Failure>(self.heap.count()?))?;
        let live = |total: ClassTotal| Live {
            class: class_of(&total.signature),
            instances: total.instances,
            bytes: total.bytes,
        };
        Ok(counted.into_iter().map(live).collect())
    }

    fn state(&self, env: &mut Env<'_>) -> JavaState {
        let names = thread_names(self.jvmti, env);
        let threads = names.as_ref().and_then(|names| u32::try_from(names.len()).ok());
        let mut thread_names = names.unwrap_or_default();
        thread_names.sort();
        JavaState {
            heap_used: heap_used(env),
            allocated_bytes: Self::stat(env, "art.gc.bytes-allocated"),
            collections: Self::stat(env, "art.gc.gc-count"),
            threads,
            thread_names,
            ..JavaState::default()
        }
    }

    fn wait_for_references(&self, _: &mut Env<'_>) {
        // The histogram runs finalizers between its two collections, which also waits for references.
    }

    fn collector(&self) -> &str {
        ""
    }

    fn arguments(&self) -> &[String] {
        &[]
    }

    fn direct_compilers(&self, _: &mut Env<'_>, _: &str) -> Result<String, Failure> {
        Ok("not in this runtime".to_owned())
    }

    fn dump_heap(&self, _: &mut Env<'_>, _: &str) -> Result<String, Failure> {
        Ok("not in this runtime".to_owned())
    }

    fn watch_memory(&self, _: &mut Env<'_>, _: &str) -> Result<(), Failure> {
        // The runtime neither prints a line nor writes dumps by itself.
        Ok(())
    }
}
