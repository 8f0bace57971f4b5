//! How the agent comes into a virtual machine: loaded with it, or attached to it while it runs.
//!
//! Data flow: `Agent_OnLoad` reads the options file and looks at the command line ([`target`]); in a test worker it puts the jars in
//! place, asks for its events and begins to sample. When the virtual machine is ready the natives are bound and the session begins
//! ([`Agent::begin`]). `Agent_OnAttach` does all of it at once, and sends JUnit 4's notifier through the hook again where it is loaded
//! already. Whatever comes later changes nothing.

use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

use jni::{Env, jni_str};
use memgate_classfile::{Call, Place, insert_calls};
use memgate_ffi::lock::Lock;
use memgate_ffi::process;
use memgate_jvmti::{Event, Jvmti, raw};
use memgate_wire::LogLevel;

use super::classes::SampledClasses;
use super::follow::Follow;
use super::pace::{self, Pace};
use super::sites::Sites;
use super::vm::{self, Vm};
use super::{AGENT, Agent, names, target};
use crate::options::{Detail, Options};
use crate::session;

/// The class that listeners and patches call, in the jar on the boot class path.
const HOOKS: &str = "io/memgate/agent/Hooks";
/// Room for a reference to every class.
const LOCAL_REFERENCES: usize = 1 << 16;
const NOTIFIER: &str = "org/junit/runner/notification/RunNotifier";
const NOTIFIER_CALLS: [Call<'static>; 2] = [
    // Behind all other listeners at the start, before them at the end: the window is tight.
    Call {
        method: "fireTestStarted",
        descriptor: "(Lorg/junit/runner/Description;)V",
        place: Place::End,
        class: HOOKS,
        callee: "junit4Started",
    },
    Call {
        method: "fireTestFinished",
        descriptor: "(Lorg/junit/runner/Description;)V",
        place: Place::Start,
        class: HOOKS,
        callee: "junit4Finished",
    },
];
/// `Agent_OnLoad`: `text` names the options file. What goes wrong here goes unnoticed by the guest: the harness misses the hello.
pub(crate) fn on_load(jvmti: Jvmti, text: &str) {
    let command = target::command(jvmti);
    let Some(options) = options(text).filter(|_| target::runs_tests(&command)) else { return };
    let Some(agent) = wake(jvmti, options, command) else { return };
    // Without its events the agent is not there: nothing was changed so far.
    let _told_by_the_missing_hello = agent.listen(&[Event::VmInit, Event::VmDeath, Event::ClassFileLoadHook]);
    agent.sample();
}

/// Is the agent in this virtual machine already? Then another load or attach changes nothing.
pub(crate) fn is_awake() -> bool {
    AGENT.get().is_some_and(|_| {
        session::java_event("attached again", "it goes on with the options of the first time");
        true
    })
}

/// `Agent_OnAttach`: as [`on_load`], but somebody chose this virtual machine, and it runs already.
pub(crate) fn on_attach(env: &mut Env<'_>, jvmti: Jvmti, text: &str) {
    let Some(options) = options(text).filter(|_| jvmti.is_live()) else { return };
    let Some(agent) = wake(jvmti, options, target::command(jvmti)) else { return };
    // What is loaded already is sent through the hook again.
    let _only_what_is_loaded_later = jvmti.add_capabilities(&[raw::CAN_RETRANSFORM_CLASSES]);
    let _told_by_the_missing_hello = agent.listen(&[Event::VmDeath, Event::ClassFileLoadHook]);
    agent.sample();
    agent.begin(env);
    session::java_event("attached", "");
    agent.patch_loaded(env);
}

fn options(file: &str) -> Option<Options> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(Options::parse(text.trim_end())).filter(|options| options.java)
}

/// Puts the jars in place. `None`: they are not, or somebody was faster.
fn wake(jvmti: Jvmti, options: Options, command: String) -> Option<&'static Agent> {
    let jar = |name: &str| CString::new(format!("{}/{name}", options.jars)).unwrap_or_default();
    let (hooks, listener) = (jar("memgate-agent-java.jar"), jar("memgate-junit-platform.jar"));
    if jvmti.add_to_boot_search(&hooks).is_err() || jvmti.add_to_system_search(&listener).is_err() {
        return None;
    }
    let pace = Pace::new(pace::Plan::of(&options.windows), process::monotonic_ns());
    let (vm, hunt, pace) = (OnceLock::new(), Lock::new(None), Lock::new(pace));
    let (sites, follow, exhausted) = (OnceLock::new(), OnceLock::new(), AtomicU32::new(0));
    AGENT.set(Agent { jvmti, options, command, vm, hunt, pace, sites, follow, exhausted }).ok()?;
    AGENT.get()
}
/// The class with calls to [`HOOKS`] in it; `None`: it is not JUnit 4's notifier, or cannot be changed.
pub(super) fn patched(name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    if name != NOTIFIER {
        return None;
    }
    match insert_calls(bytes, &NOTIFIER_CALLS) {
        Ok(changed) => Some(changed),
        Err(why) => {
            session::log(LogLevel::Warn, &format!("JUnit 4's {NOTIFIER} is left alone: {why}"));
            None
        }
    }
}

impl Agent {
    fn listen(&'static self, events: &[Event]) -> Result<(), memgate_jvmti::Error> {
        self.jvmti.listen(self)?;
        events.iter().try_for_each(|event| self.jvmti.enable(*event, true))
    }

    /// The virtual machine runs: binds the natives and opens the stream.
    pub(super) fn begin(&'static self, env: &mut Env<'_>) {
        let work = |env: &mut Env<'_>| -> Result<(), vm::Failure> {
            let hooks = env.find_class(jni_str!("io/memgate/agent/Hooks"))?;
            memgate_jvmti::register(env, &hooks, self)?;
            let version = self.jvmti.system_property(c"java.vm.specification.version").unwrap_or_default();
            let vm = Vm::new(env, self.jvmti, version.trim_start_matches("1.").parse().unwrap_or(0))?;
            // The first call loads classes: not at a boundary.
            let _warm = (vm.histogram(env)?, vm.state(env));
            let vm = self.vm.get_or_init(|| vm);
            session::start_java(self.options.clone());
            self.watch_memory(env, vm);
            Ok(())
        };
        if let Err(why) = work(env) {
            env.exception_clear();
            let why = format!("the virtual machine does not answer: {why}");
            session::java_is_blind(self.options.clone(), &why);
        }
    }

    /// JUnit 4's notifier may be loaded already.
    fn patch_loaded(&self, env: &mut Env<'_>) {
        let patched = env.with_local_frame(LOCAL_REFERENCES, |env| -> Result<(), vm::Failure> {
            let loaded = self.jvmti.loaded_classes(env).unwrap_or_default();
            let notifier = NOTIFIER.replace('/', ".");
            for class in loaded.iter().filter(|class| names::name_of(self.jvmti, class) == notifier) {
                if let Err(why) = self.jvmti.retransform(class) {
                    session::log(LogLevel::Warn, &format!("tests of JUnit 4 are not seen: {why}"));
                }
            }
            Ok(())
        });
        if patched.is_err() {
            env.exception_clear();
        }
    }
    /// Begins to sample allocations, unless that is switched off; all of them where classes are followed.
    fn sample(&self) {
        let follow = &self.options.follow;
        let follows = !follow.classes.is_empty();
        let Some(interval) = self.options.sampling.or(follows.then_some(0)) else { return };
        // Names of files and lines are there on HotSpot in any case; elsewhere they are asked for.
        let named = [raw::CAN_GET_SOURCE_FILE_NAME, raw::CAN_GET_LINE_NUMBERS];
        let _less_is_named = self.jvmti.add_capabilities(&named);
        let needed = [
            raw::CAN_TAG_OBJECTS,
            raw::CAN_GENERATE_SAMPLED_OBJECT_ALLOC_EVENTS,
            raw::CAN_GENERATE_OBJECT_FREE_EVENTS,
        ];
        let needed = if follows { &needed[..] } else { needed.get(..2).unwrap_or_default() };
        if !self.jvmti.add_capabilities(needed).is_ok_and(|refused| refused.is_empty()) {
            return;
        }
        let choice = follow.clone();
        let classes = SampledClasses::new(move |class| choice.chooses(class));
        let interval = if follows { 0 } else { interval };
        // A confirming run looks at one window, but there at everything.
        let at_once = follows || self.options.detail == Detail::Survivors;
        self.sites.get_or_init(|| Sites::new(self.jvmti, interval, at_once, classes));
        if follows {
            self.follow.get_or_init(|| Follow::new(follow.clone()));
            // Without it everything seems to live to the end, and the harness is told that nothing ended.
            let _no_ends = self.jvmti.enable(Event::ObjectFree, true);
        }
    }

    /// Hears of errors for want of memory, and has the virtual machine write a dump then, where that was asked for.
    fn watch_memory(&self, env: &mut Env<'_>, vm: &Vm) {
        let wanted = [raw::CAN_GENERATE_RESOURCE_EXHAUSTION_HEAP_EVENTS];
        if self.jvmti.add_capabilities(&wanted).is_ok_and(|refused| refused.is_empty()) {
            // HotSpot writes a line of its own to stdout when it tells: the guest's output stays as it is without us.
            if !vm.arguments.iter().any(|argument| argument.contains("jvmti")) {
                let _one_line_more = vm.command(env, "VM.log output=stdout what=jvmti=off");
            }
            // Without it such an error is not told.
            let _untold = self.jvmti.enable(Event::ResourceExhausted, true);
        }
        let own = "HeapDumpOnOutOfMemoryError";
        if self.options.heap_dump.is_empty() || vm.arguments.iter().any(|argument| argument.contains(own)) {
            return;
        }
        let path = format!("VM.set_flag HeapDumpPath \"{}\"", self.heap_dump());
        let set = vm.command(env, &path).and_then(|_| vm.command(env, &format!("VM.set_flag {own} 1")));
        if let Err(why) = set {
            session::log(LogLevel::Warn, &format!("no heap dump will be written: {why}"));
        }
    }

    pub(super) fn heap_dump(&self) -> String {
        format!("{}/java_pid{}.hprof", self.options.heap_dump, process::pid())
    }
}
