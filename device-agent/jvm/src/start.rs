//! Brings the agent into a virtual machine: it is loaded at the start, or attached while the virtual machine runs.
//!
//! Data flow: `Agent_OnLoad` reads the options file and looks at the command line ([`target`]). In a test worker it
//! puts the jars in place, asks for its events and begins to sample. When the virtual machine is ready, the natives
//! are bound and the session begins ([`Agent::begin`]). `Agent_OnAttach` does all of it at once, and sends JUnit 4's
//! notifier through the hook again if it is loaded already. A later load or attach changes nothing. On Android's
//! runtime nothing is patched and no jar is put in place: the class with the natives comes with the tests, in their
//! own class loader, and is bound when it is prepared. If the tests bring no listener, a dex file with it is put into
//! the class loader of their runner as soon as the runner is prepared (`Agent::bring_listener`).

#[cfg(target_os = "android")]
mod library;

use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32};

use jni::objects::{JClass, JValue};
use jni::{Env, jni_sig, jni_str};
use memgate_ffi::lock::Lock;
use memgate_ffi::process;
use memgate_jvmti::{Event, Jvmti, raw};
use memgate_session::{self as session, platform};
use memgate_wire::LogLevel;
use memgate_wire::java::ANDROID_LISTENER;
use memgate_wire::options::{Detail, Options, Target};

use super::agent::{AGENT, Agent};
use super::art::Art;
use super::classes::SampledClasses;
use super::follow::Follow;
use super::heap::HeapWatch;
use super::machine::{Failure, Machine};
use super::pace::{self, Pace};
use super::sites::Sites;
use super::vm::{self, Vm};
use super::{names, notifier, target};

#[cfg(target_os = "android")]
pub use self::library::on_library;

const HOOKS_SIGNATURE: &str = "Lio/memgate/agent/Hooks;";
/// Room for a reference to every class.
const LOCAL_REFERENCES: usize = 1 << 16;

/// `Agent_OnLoad`: `text` names the options file. The guest does not notice errors here; the harness notices that the
/// hello is missing.
pub fn on_load(jvmti: Jvmti<'static>, text: &str) {
    let command = target::command(jvmti);
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    // `target=all` means this virtual machine, whatever it runs.
    let runs_tests = target::runs_tests(&command, &line);
    let is_meant = |o: &Options| o.targets.contains(&Target::All) || runs_tests;
    let Some(options) = platform::options_of(text).filter(is_meant) else { return };
    let Some(agent) = wake(jvmti, options, command) else { return };
    // A virtual machine that runs no tests may start others that do.
    for why in platform::leave_environment(runs_tests.then_some(text)) {
        session::log(LogLevel::Warn, &why);
    }
    // Without its events the agent is inactive. Nothing was changed so far.
    let _told_by_the_missing_hello = agent.listen(&[Event::VmInit, Event::VmDeath, agent.class_event()]);
    match target::other_agent(&line, text) {
        // Only one agent may sample. Ours comes first, so a profiler of the build would be refused.
        Some(other) if agent.options.follow.classes.is_empty() => {
            agent.leaves_sampling_to.get_or_init(|| other);
        }
        _ => agent.sample(),
    }
}

/// Is the agent already in this virtual machine? If so, another load or attach changes nothing.
#[must_use]
pub fn is_awake() -> bool {
    AGENT.get().is_some_and(|_| {
        session::event("attached again", "it goes on with the options of the first time");
        true
    })
}

/// `Agent_OnAttach`: like [`on_load`], but this virtual machine was chosen explicitly, and already runs.
pub fn on_attach(env: &mut Env<'_>, jvmti: Jvmti<'static>, text: &str) {
    let Some(options) = platform::options_of(text).filter(|_| jvmti.is_live()) else { return };
    let Some(agent) = wake(jvmti, options, target::command(jvmti)) else { return };
    if !agent.is_art() {
        // Classes that are already loaded are sent through the hook again.
        let _only_what_is_loaded_later = jvmti.add_capabilities(&[raw::CAN_RETRANSFORM_CLASSES]);
    }
    let _told_by_the_missing_hello = agent.listen(&[Event::VmDeath]);
    agent.sample();
    agent.begin(env);
    session::event("attached", "");
    // This comes after the stream is open, because tests that wait for the agent go on as soon as its natives are
    // bound.
    let _told_by_missing_tests = jvmti.enable(agent.class_event());
    agent.look_at_loaded(env);
}

/// Puts the jars in place. Without a folder of jars, their classes come with the tests. `None`: the jars could not be
/// put in place, or another load was faster.
fn wake(jvmti: Jvmti<'static>, options: Options, command: String) -> Option<&'static Agent> {
    // The kind of virtual machine decides everything else.
    let found_art = options.as_art || jvmti.is_art().ok()?;
    let jar = |name: &str| CString::new(format!("{}/{name}", options.jars)).unwrap_or_default();
    let (hooks, listener) = (jar("memgate-agent-java.jar"), jar("memgate-junit-platform.jar"));
    let in_place =
        || jvmti.add_to_boot_search(&hooks).is_ok() && jvmti.add_to_system_search(&listener).is_ok();
    if !options.jars.is_empty() && !in_place() {
        return None;
    }
    let pace = Pace::new(pace::Plan::of(&options.windows), process::cpu_ns());
    let (vm, search, pace) = (OnceLock::new(), Lock::new(None), Lock::new(pace));
    let (sites, follow, exhausted) = (OnceLock::new(), OnceLock::new(), AtomicU32::new(0));
    let heap = HeapWatch::new(options.heap_limit);
    AGENT
        .set(Agent {
            jvmti,
            found_art,
            options,
            command,
            vm,
            search,
            pace,
            sites,
            follow,
            heap,
            jit_disabled: AtomicBool::new(false),
            dumped_a_failure: AtomicBool::new(false),
            exhausted,
            leaves_sampling_to: OnceLock::new(),
        })
        .ok()?;
    AGENT.get()
}

impl Agent {
    fn listen(&'static self, events: &[Event]) -> Result<(), memgate_jvmti::Error> {
        self.jvmti.listen(self)?;
        events.iter().try_for_each(|event| self.jvmti.enable(*event))
    }

    /// The event for new classes. On HotSpot it is used to patch JUnit's notifier, on Android to bind the natives.
    const fn class_event(&self) -> Event {
        if self.is_art() { Event::ClassPrepare } else { Event::ClassFileLoadHook }
    }

    /// The virtual machine runs: binds the natives and opens the stream.
    pub(super) fn begin(&'static self, env: &mut Env<'_>) {
        let work = |env: &mut Env<'_>| -> Result<(), Failure> {
            let vm = if self.is_art() { self.art(env)? } else { self.hotspot(env)? };
            let vm = self.vm.get_or_init(|| vm);
            session::open_late(self.options.clone(), None);
            if !self.is_art()
                && let Err(why) = vm::run_at_end(env)
            {
                let why = format!("nothing will be measured at the end: no shutdown hook was taken: {why}");
                session::log(LogLevel::Warn, &why);
            }
            self.heap.begin(env);
            self.watch_memory(env, &**vm);
            if let Some(other) =
                self.leaves_sampling_to.get().filter(|_| self.options.sampling.interval().is_some())
            {
                let why = format!("allocations are not sampled: that is left to {other}, only one agent may");
                session::log(LogLevel::Warn, &why);
            }
            Ok(())
        };
        if let Err(why) = work(env) {
            env.exception_clear();
            let why = format!("the virtual machine does not answer: {why}");
            session::open_late(self.options.clone(), Some(why));
        }
    }

    fn hotspot(&'static self, env: &mut Env<'_>) -> Result<Box<dyn Machine>, Failure> {
        let hooks = env.find_class(jni_str!("io/memgate/agent/Hooks"))?;
        memgate_jvmti::register(env, &hooks, self)?;
        let version = self.jvmti.system_property(c"java.vm.specification.version").unwrap_or_default();
        let vm = Vm::new(env, self.jvmti, version.trim_start_matches("1.").parse().unwrap_or(0))?;
        // The first call loads classes, which must not happen at a boundary.
        let _warm = (vm.histogram(env)?, vm.state(env));
        Ok(Box::new(vm))
    }

    /// The class with the natives comes with the tests and is bound when it is prepared.
    fn art(&self, env: &Env<'_>) -> Result<Box<dyn Machine>, Failure> {
        // A confirming run judges by the count. In the screening pass, a wrong suspect costs only time.
        let confirms = self.options.detail != Detail::Survivors;
        let art = Art::of(env, self.jvmti, confirms).ok_or(memgate_jvmti::Error::NotThere)?;
        Ok(Box::new(art))
    }

    /// Binds the natives, if this is the class that has them.
    pub(super) fn bind(&'static self, env: &mut Env<'_>, class: &JClass<'_>) {
        let Ok(signature) = self.jvmti.class_signature(class) else { return };
        if !self.options.dex.is_empty() && names::class_of(&signature) == self.options.runner {
            self.bring_listener(env, class);
        }
        let is_hooks = signature == HOOKS_SIGNATURE;
        // Another class loader may also have a class of this name, so the event stays on.
        if let Some(Err(why)) = is_hooks.then(|| memgate_jvmti::register(env, class, self)) {
            env.exception_clear();
            session::fails(&format!("the listener cannot reach the agent: {why}"));
        }
    }

    /// Makes the class loader of the tests' runner find memgate's listener, unless the tests bring it. Listeners are
    /// loaded after the runner.
    fn bring_listener(&self, env: &mut Env<'_>, runner: &JClass<'_>) {
        let brought = env.with_local_frame(16, |env| -> Result<(), Failure> {
            let get = jni_sig!("()Ljava/lang/ClassLoader;");
            let loader = env.call_method(runner, jni_str!("getClassLoader"), get, &[])?.l()?;
            let name = env.new_string(ANDROID_LISTENER)?;
            let load = jni_sig!("(Ljava/lang/String;)Ljava/lang/Class;");
            if env.call_method(&loader, jni_str!("loadClass"), load, &[JValue::Object(&name)]).is_ok() {
                return Ok(());
            }
            env.exception_clear();
            let dex = CString::new(self.options.dex.as_str()).unwrap_or_default();
            Ok(self.jvmti.add_to_dex_loader(&loader, &dex)?)
        });
        if let Err(why) = brought {
            env.exception_clear();
            session::fails(&format!("memgate's listener could not be put into the app: {why}"));
        }
    }

    /// Handles classes that are already loaded: JUnit 4's notifier, or on Android the class with the natives.
    fn look_at_loaded(&'static self, env: &mut Env<'_>) {
        let looked = env.with_local_frame(LOCAL_REFERENCES, |env| -> Result<(), Failure> {
            let loaded = self.jvmti.loaded_classes(env)?;
            if self.is_art() {
                loaded.iter().for_each(|class| self.bind(env, class));
                return Ok(());
            }
            let notifier = notifier::CLASS.replace('/', ".");
            for class in loaded.iter().filter(|class| names::name_of(self.jvmti, class) == notifier) {
                if let Err(why) = self.jvmti.retransform(class) {
                    session::log(LogLevel::Warn, &format!("tests of JUnit 4 are not seen: {why}"));
                }
            }
            Ok(())
        });
        if let Err(why) = looked {
            env.exception_clear();
            session::fails(&format!("tests may not be seen, what is loaded already is not known: {why}"));
        }
    }

    /// Begins to sample allocations, unless sampling is switched off. If classes are followed, every allocation is
    /// sampled.
    fn sample(&self) {
        let follow = &self.options.follow;
        let follows = !follow.classes.is_empty();
        // A confirming run looks at one window only, but at every allocation in it.
        let at_once = follows || self.options.detail == Detail::Survivors;
        // Android's runtime does not sample, and an event for every allocation slows each allocation. Only follow mode
        // accepts this all the time.
        let sampling = self.options.sampling.interval().filter(|_| !(self.is_art() && at_once));
        let Some(interval) = sampling.or(follows.then_some(0)) else { return };
        let (event, allocations) = if self.is_art() {
            (Event::VmObjectAlloc, raw::CAN_GENERATE_VM_OBJECT_ALLOC_EVENTS)
        } else {
            (Event::SampledObjectAlloc, raw::CAN_GENERATE_SAMPLED_OBJECT_ALLOC_EVENTS)
        };
        // HotSpot always knows file names and lines. On other runtimes this needs capabilities.
        let named = [raw::CAN_GET_SOURCE_FILE_NAME, raw::CAN_GET_LINE_NUMBERS];
        let _less_is_named = self.jvmti.add_capabilities(&named);
        let needed = [raw::CAN_TAG_OBJECTS, allocations, raw::CAN_GENERATE_OBJECT_FREE_EVENTS];
        let needed = if follows { &needed[..] } else { needed.get(..2).unwrap_or_default() };
        if !self.jvmti.add_capabilities(needed).is_ok_and(|refused| refused.is_empty()) {
            return;
        }
        let choice = follow.clone();
        let classes = SampledClasses::new(move |class| choice.chooses(class));
        let interval = if follows { 0 } else { interval };
        self.sites.get_or_init(|| Sites::new(self.jvmti, event, interval, at_once, classes));
        if follows {
            self.follow.get_or_init(|| Follow::new(follow.clone()));
            // Without this event all objects seem to live until the end, and the harness learns of no ends.
            let _no_ends = self.jvmti.enable(Event::ObjectFree);
        }
    }

    /// Listens for out-of-memory errors, and makes the virtual machine write a dump on such an error if requested.
    fn watch_memory(&self, env: &mut Env<'_>, vm: &dyn Machine) {
        let wanted = [raw::CAN_GENERATE_RESOURCE_EXHAUSTION_HEAP_EVENTS];
        if self.jvmti.add_capabilities(&wanted).is_ok_and(|refused| refused.is_empty()) {
            // Without this event such an error is not reported.
            let _untold = self.jvmti.enable(Event::ResourceExhausted);
        }
        let dump = if self.options.heap_dump.is_empty() { String::new() } else { self.heap_dump() };
        if let Err(why) = vm.watch_memory(env, &dump) {
            session::log(LogLevel::Warn, &format!("no heap dump will be written: {why}"));
        }
    }

    pub(super) fn heap_dump(&self) -> String {
        format!("{}/java_pid{}.hprof", self.options.heap_dump, process::pid())
    }
}
