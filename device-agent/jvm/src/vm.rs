//! Questions to HotSpot in the cheapest way that exists: diagnostic commands and management natives, called by JNI on
//! objects that are never initialised. So no management bean, no JMX server and none of their threads appear in the
//! guest.
//!
//! One diagnostic command collects and counts in one safepoint, so no object that is made in between can look like a
//! survivor.

use core::sync::atomic::{AtomicU64, Ordering};

use jni::errors::Error;
use jni::objects::{Global, JClass, JObject, JObjectArray, JString, JValue};
use jni::strings::JNIStr;
use jni::{Env, jni_sig, jni_str};
use memgate_jvmti::Jvmti;
use memgate_wire::hotspot::{class_histogram, number_behind};
use memgate_wire::java::JavaState;

use super::machine::{Failure, Live, Machine, clearing};
use super::soft::SoftReferences;

/// The last of the ten slots of `java.lang.Shutdown`. The JDK takes the first three: the console, the application's
/// hooks, files to delete.
const LAST_HOOK: i32 = 9;
/// Maximum number of steps of the reference handler to wait for at a boundary.
const MOST_STEPS: u32 = 10_000;

/// JDK classes whose objects release other objects in a thread of their own, after a collection has found these unused.
const CLEANERS: [&str; 5] = [
    "java.lang.ref.Finalizer",
    "jdk.internal.ref.Cleaner",
    "jdk.internal.ref.CleanerImpl$PhantomCleanableRef",
    "java.io.FileCleanable",
    "java.nio.BufferCleaner$PhantomCleaner",
];

/// The virtual machine, with the questions that it answers.
pub(crate) struct Vm {
    jvmti: Jvmti<'static>,
    diagnostics: Global<JObject<'static>>,
    /// `sun.management.VMManagementImpl` and `ThreadImpl`: the module may be left out of a small
    /// runtime image.
    management: Option<Global<JObject<'static>>>,
    threads: Option<Global<JClass<'static>>>,
    soft: SoftReferences,
    /// Number of objects of [`CLEANERS`] in the last [`Machine::settled_histogram`].
    cleaners: AtomicU64,
    /// Whether the histogram command alone does not collect here.
    collect_first: bool,
    collector: &'static str,
    /// Its options in their final order: from the command line, from argument files and from variables.
    arguments: Vec<String>,
}

impl Vm {
    /// Makes the objects that answer questions. The virtual machine must be initialised.
    pub(crate) fn new(env: &mut Env<'_>, jvmti: Jvmti<'static>, version: u32) -> Result<Self, Failure> {
        // Their initialisers load the libraries of the native methods that are called here.
        env.find_class(jni_str!("com/sun/management/internal/PlatformMBeanProviderImpl"))?;
        let loaded = env.find_class(jni_str!("java/lang/management/ManagementFactory"));
        optional(env, loaded);
        let diagnostics = object(env, jni_str!("com/sun/management/internal/DiagnosticCommandImpl"))?;
        let management = object(env, jni_str!("sun/management/VMManagementImpl"));
        let management = optional(env, management);
        let threads =
            env.find_class(jni_str!("sun/management/ThreadImpl")).and_then(|c| env.new_global_ref(c));
        let threads = optional(env, threads);
        let arguments =
            management.as_ref().and_then(|management| arguments(env, management)).unwrap_or_default();
        let mut vm = Self {
            jvmti,
            diagnostics,
            management,
            threads,
            soft: SoftReferences::default(),
            cleaners: AtomicU64::new(0),
            collect_first: false,
            collector: "",
            arguments,
        };
        vm.collector = collector(&vm.command(env, "VM.flags")?);
        vm.collect_first = version < 25 && matches!(vm.collector, "Z" | "Shenandoah");
        Ok(vm)
    }

    /// The answer to a diagnostic command.
    fn command(&self, env: &mut Env<'_>, command: &str) -> Result<String, Failure> {
        clearing(env, |env| {
            let text = env.new_string(command)?;
            let answer = env.call_method(
                &self.diagnostics,
                jni_str!("executeDiagnosticCommand"),
                jni_sig!("(Ljava/lang/String;)Ljava/lang/String;"),
                &[JValue::Object(&text)],
            )?;
            env.cast_local::<JString<'_>>(answer.l()?)?.try_to_string(env)
        })
    }

    /// The number after `label` in the answer to a command.
    fn number(&self, env: &mut Env<'_>, command: &str, label: &str) -> Option<u64> {
        number_behind(&self.command(env, command).ok()?, label)
    }

    fn management_long(&self, env: &mut Env<'_>, method: &JNIStr) -> Option<u64> {
        let management = self.management.as_ref()?;
        let value =
            clearing(env, |env| env.call_method(management, method, jni_sig!("()J"), &[])?.j()).ok()?;
        u64::try_from(value).ok()
    }

    fn allocated(&self, env: &mut Env<'_>) -> Option<u64> {
        let threads = self.threads.as_ref()?;
        let total = jni_str!("getTotalThreadAllocatedMemory");
        let value =
            clearing(env, |env| env.call_static_method(threads, total, jni_sig!("()J"), &[])?.j()).ok()?;
        u64::try_from(value).ok()
    }
}

impl Machine for Vm {
    fn histogram(&self, env: &mut Env<'_>) -> Result<Vec<Live>, Failure> {
        if self.collect_first {
            // If it does not collect, floating garbage remains. The only effect is that a test may be confirmed without
            // need.
            let _counted_anyway = self.jvmti.collect();
        }
        class_histogram(&self.command(env, "GC.class_histogram")?).ok_or(Failure::Cut)
    }

    fn settled_histogram(&self, env: &mut Env<'_>) -> Result<Vec<Live>, Failure> {
        let all_soft_go = self.soft.set_right(env);
        if !all_soft_go {
            let _counted_anyway = self.jvmti.collect();
            wait_for_references(env);
        }
        let mut live = self.histogram(env)?;
        if all_soft_go && self.cleaners.load(Ordering::Relaxed) < cleaners(&live) {
            wait_for_references(env);
            live = self.histogram(env)?;
        }
        self.cleaners.store(cleaners(&live), Ordering::Relaxed);
        self.soft.set_back(env);
        Ok(live)
    }

    fn state(&self, env: &mut Env<'_>) -> JavaState {
        let loaded = self.management_long(env, jni_str!("getTotalClassCount"));
        let unloaded = self.management_long(env, jni_str!("getUnloadedClassCount"));
        let names = thread_names(self.jvmti, env);
        let threads = names.as_ref().and_then(|names| u32::try_from(names.len()).ok());
        let mut thread_names = names.unwrap_or_default();
        thread_names.sort();
        JavaState {
            heap_used: heap_used(env),
            metaspace_bytes: self.number(env, "VM.metaspace basic scale=1", "Both:"),
            classes_loaded: loaded.zip(unloaded).map(|(all, gone)| all.saturating_sub(gone)),
            allocated_bytes: self.allocated(env),
            threads,
            thread_names,
            direct_bytes: bits(env, jni_str!("RESERVED_MEMORY")),
            direct_buffers: bits(env, jni_str!("COUNT")),
            jni_globals: self.number(env, "Thread.print", "JNI global refs:"),
            ..JavaState::default()
        }
    }

    fn wait_for_references(&self, env: &mut Env<'_>) {
        wait_for_references(env);
    }

    fn collector(&self) -> &str {
        self.collector
    }

    fn arguments(&self) -> &[String] {
        &self.arguments
    }

    fn direct_compilers(&self, env: &mut Env<'_>, file: &str) -> Result<String, Failure> {
        self.command(env, &format!("Compiler.directives_add \"{file}\""))
    }

    fn dump_heap(&self, env: &mut Env<'_>, place: &str) -> Result<String, Failure> {
        // The diagnostic command is not available to management.
        let diagnostic = object(env, jni_str!("com/sun/management/internal/HotSpotDiagnostic"))?;
        clearing(env, |env| {
            let place = env.new_string(place)?;
            let arguments = [JValue::Object(&place), JValue::Bool(true)];
            env.call_method(
                &diagnostic,
                jni_str!("dumpHeap0"),
                jni_sig!("(Ljava/lang/String;Z)V"),
                &arguments,
            )?;
            Ok(String::new())
        })
    }

    fn watch_memory(&self, env: &mut Env<'_>, dump: &str) -> Result<(), Failure> {
        let has = |text: &str| self.arguments.iter().any(|argument| argument.contains(text));
        // HotSpot prints a line to stdout when it reports such an error to an agent. The guest's output must stay
        // unchanged.
        if !has("jvmti") {
            let _one_line_more = self.command(env, "VM.log output=stdout what=jvmti=off");
        }
        let own = "HeapDumpOnOutOfMemoryError";
        if dump.is_empty() || has(own) {
            return Ok(());
        }
        self.command(env, &format!("VM.set_flag HeapDumpPath \"{dump}\""))?;
        self.command(env, &format!("VM.set_flag {own} 1"))?;
        Ok(())
    }
}

/// Makes `io.memgate.agent.AtEnd` run when the virtual machine ends, after the application's own shutdown hooks.
/// `Shutdown` is private to its package, but JNI ignores this. The hook takes its own slot, so that no thread is
/// needed.
pub(super) fn run_at_end(env: &mut Env<'_>) -> Result<(), Failure> {
    clearing(env, |env| {
        let hook = env.new_object(jni_str!("io/memgate/agent/AtEnd"), jni_sig!("()V"), &[])?;
        let shutdown = env.find_class(jni_str!("java/lang/Shutdown"))?;
        let arguments = [JValue::Int(LAST_HOOK), JValue::Bool(false), JValue::Object(&hook)];
        env.call_static_method(shutdown, jni_str!("add"), jni_sig!("(IZLjava/lang/Runnable;)V"), &arguments)?;
        Ok(())
    })
}

/// Lets finalizers run.
pub(super) fn run_finalizers(env: &mut Env<'_>) -> Result<(), Failure> {
    clearing(env, |env| {
        let system = env.find_class(jni_str!("java/lang/System"))?;
        env.call_static_method(system, jni_str!("runFinalization"), jni_sig!("()V"), &[])?;
        Ok(())
    })
}

/// Calls the method with which `Bits` waits before it allocates. It is private, but JNI ignores this. If the virtual
/// machine lacks the method, nothing waits.
fn wait_for_references(env: &mut Env<'_>) {
    let waited = env.with_local_frame(16, |env| {
        let class = env.find_class(jni_str!("java/lang/ref/Reference"))?;
        // The method returns after each step. The number of steps is bounded, because the guest goes on making
        // references.
        for _ in 0..MOST_STEPS {
            if !env
                .call_static_method(&class, jni_str!("waitForReferenceProcessing"), jni_sig!("()Z"), &[])?
                .z()?
            {
                break;
            }
        }
        Ok::<(), Error>(())
    });
    if waited.is_ok() {
        return;
    }
    env.exception_clear();
    if matches!(waited, Err(Error::JavaException)) {
        // Another thread interrupted this thread, and the wait cleared the interrupt.
        let _as_it_was = clearing(env, |env| {
            let class = env.find_class(jni_str!("java/lang/Thread"))?;
            let current = env
                .call_static_method(&class, jni_str!("currentThread"), jni_sig!("()Ljava/lang/Thread;"), &[])?
                .l()?;
            env.call_method(current, jni_str!("interrupt"), jni_sig!("()V"), &[])?;
            Ok(())
        });
    }
}

/// Options of the virtual machine, those from environment variables first.
fn arguments(env: &mut Env<'_>, management: &JObject<'_>) -> Option<Vec<String>> {
    let get = jni_str!("getVmArguments0");
    clearing(env, |env| {
        let all = env.call_method(management, get, jni_sig!("()[Ljava/lang/String;"), &[])?.l()?;
        let all = env.cast_local::<JObjectArray<'_, JString<'_>>>(all)?;
        (0..all.len(env)?)
            .map(|i| {
                let text = all.get_element(env, i)?;
                let copied = text.try_to_string(env);
                env.delete_local_ref(text);
                copied
            })
            .collect()
    })
    .ok()
}

/// A new object of a class whose constructor does not run.
fn object(env: &mut Env<'_>, class: &JNIStr) -> Result<Global<JObject<'static>>, Failure> {
    clearing(env, |env| {
        let class = env.find_class(class)?;
        let object = env.alloc_object(class)?;
        env.new_global_ref(object)
    })
}

fn optional<T, E>(env: &mut Env<'_>, result: Result<T, E>) -> Option<T> {
    if result.is_err() {
        env.exception_clear();
    }
    result.ok()
}

fn cleaners(live: &[Live]) -> u64 {
    live.iter().filter(|live| CLEANERS.contains(&live.class.as_str())).map(|live| live.instances).sum()
}

/// A counter of `java.nio.Bits`, which counts direct buffers.
fn bits(env: &mut Env<'_>, field: &JNIStr) -> Option<u64> {
    let value = clearing(env, |env| {
        let class = env.find_class(jni_str!("java/nio/Bits"))?;
        let signature = jni_sig!("Ljava/util/concurrent/atomic/AtomicLong;");
        let counter = env.get_static_field(class, field, signature)?.l()?;
        env.call_method(counter, jni_str!("get"), jni_sig!("()J"), &[])?.j()
    });
    u64::try_from(value.ok()?).ok()
}

/// The collector that the answer to `VM.flags` names.
fn collector(flags: &str) -> &'static str {
    ["G1", "Parallel", "Serial", "Z", "Shenandoah", "Epsilon"]
        .into_iter()
        .find(|name| flags.split_whitespace().any(|flag| flag == format!("-XX:+Use{name}GC")))
        .unwrap_or("")
}

/// Names of the Java threads.
pub(crate) fn thread_names(jvmti: Jvmti<'_>, env: &mut Env<'_>) -> Option<Vec<String>> {
    env.with_local_frame(64, |env| -> Result<_, Failure> {
        let threads = jvmti.threads(env)?;
        Ok(threads.iter().filter_map(|thread| jvmti.thread_name(env, thread).ok()).collect())
    })
    .ok()
}

/// Used bytes of the heap.
pub(crate) fn heap_used(env: &mut Env<'_>) -> Option<u64> {
    let runtime = runtime(env)?;
    used_of(env, &runtime)
}

/// Maximum size of the heap in bytes.
pub(crate) fn heap_max(env: &mut Env<'_>) -> Option<u64> {
    let runtime = runtime(env)?;
    max_of(env, &runtime)
}

/// The one `java.lang.Runtime`, for questions at times when no class may be looked up, for example in the middle of
/// an allocation.
pub(crate) fn runtime(env: &mut Env<'_>) -> Option<Global<JObject<'static>>> {
    let runtime = clearing(env, |env| {
        let class = env.find_class(jni_str!("java/lang/Runtime"))?;
        let get = jni_sig!("()Ljava/lang/Runtime;");
        let runtime = env.call_static_method(class, jni_str!("getRuntime"), get, &[])?.l()?;
        env.new_global_ref(runtime)
    });
    runtime.ok()
}

/// See [`heap_used`]. No Java code runs: the methods are native.
pub(crate) fn used_of(env: &mut Env<'_>, runtime: &JObject<'_>) -> Option<u64> {
    let total = of_runtime(env, runtime, jni_str!("totalMemory"))?;
    Some(total.saturating_sub(of_runtime(env, runtime, jni_str!("freeMemory"))?))
}

/// See [`heap_max`].
pub(crate) fn max_of(env: &mut Env<'_>, runtime: &JObject<'_>) -> Option<u64> {
    of_runtime(env, runtime, jni_str!("maxMemory"))
}

fn of_runtime(env: &mut Env<'_>, runtime: &JObject<'_>, method: &JNIStr) -> Option<u64> {
    let bytes = clearing(env, |env| env.call_method(runtime, method, jni_sig!("()J"), &[])?.j());
    u64::try_from(bytes.ok()?).ok()
}
