//! The Java part: in a virtual machine that runs tests, windows are measured by collecting and counting.
//!
//! Data flow: `Agent_OnLoad` reads the options file and looks at the command line ([`target`]); in a test worker it puts the jars in
//! place and asks for three events. When the virtual machine is ready ([`Events::vm_init`]) the natives of `io.memgate.agent.Hooks`
//! are bound and the session begins. Test listeners (put into JUnit 4's notifier as it is loaded, found by JUnit Platform's launcher
//! through the jar) call [`Natives`]; each test becomes two boundaries. A window of memgate's launcher ends with [`vm::Vm::histogram`],
//! whose differences are frames before its boundary; in the build's own run [`pace`] decides behind which test classes one ends.
//!
//! No lock of ours is held across a call into the virtual machine: measuring is done before the session is asked for its lock.

mod chosen;
mod classes;
mod exhausted;
mod explain;
mod follow;
mod names;
mod pace;
mod ring;
mod sites;
mod stacks;
mod target;
mod vm;
mod ways;

use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use jni::objects::JObject;
use jni::{Env, EnvUnowned, jni_str};
use memgate_classfile::{Call, Place, insert_calls};
use memgate_ffi::lock::Lock;
use memgate_ffi::process;
use memgate_jvmti::{Event, Events, Jvmti, Natives, raw};
use memgate_wire::java::{JavaState, JvmInfo};
use memgate_wire::spool::order;
use memgate_wire::{LogLevel, Outcome};

pub(crate) use self::classes::ClassNumber;
use self::classes::SampledClasses;
pub(crate) use self::exhausted::Exhausted;
use self::explain::{Found, Hunt};
pub(crate) use self::follow::{Follow, Happened};
use self::pace::Pace;
pub(crate) use self::sites::{Alive, Site, Sites};
pub(crate) use self::vm::Live;
use self::vm::Vm;
use crate::options::{Detail, Options};
use crate::session;

/// The class that listeners and patches call, in the jar on the boot class path.
const HOOKS: &str = "io/memgate/agent/Hooks";
/// Main class of memgate's launcher, which tells itself where windows end.
const LAUNCHER: &str = "io.memgate.launcher.Main";
/// Errors for want of memory that are told: a test may provoke many.
const MOST_EXHAUSTIONS: u32 = 16;
/// `JVMTI_RESOURCE_EXHAUSTED_JAVA_HEAP`
const HEAP: u32 = 2;
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

/// What a window left behind, as measured.
pub(crate) struct Measured {
    pub(crate) live: Vec<Live>,
    pub(crate) state: JavaState,
    /// Who holds what grew, in the window behind an order to explain.
    pub(crate) found: Vec<Found>,
    /// Where it was allocated.
    pub(crate) alive: Alive,
}

struct Agent {
    jvmti: Jvmti,
    options: Options,
    command: String,
    vm: OnceLock<Vm>,
    hunt: Lock<Option<Hunt>>,
    pace: Lock<Pace>,
    sites: OnceLock<Sites>,
    follow: OnceLock<Follow>,
    /// Out of memory so many times.
    exhausted: AtomicU32,
}

static AGENT: OnceLock<Agent> = OnceLock::new();

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

impl Events for Agent {
    fn vm_init(&self, env: &mut EnvUnowned<'_>) {
        let work = |env: &mut Env<'_>| {
            if let Some(agent) = AGENT.get() {
                agent.begin(env);
                let allocated = agent.vm.get().and_then(|vm| vm.state(env).allocated_bytes);
                agent.sites.get().zip(allocated).inspect(|(sites, allocated)| sites.begin(*allocated));
            }
            Ok::<(), vm::Failure>(())
        };
        let _begun = env.with_env_no_catch(work).into_outcome();
    }

    fn vm_death(&self, env: &mut EnvUnowned<'_>) {
        let last = self.pace.lock().last();
        if let (Some(class), Some(vm)) = (last, self.vm.get()) {
            let work = |env: &mut Env<'_>| Ok::<u32, vm::Failure>(self.measure(env, vm, (&class, ""), 0));
            // Nothing is repeated in the build's own run: there are no orders.
            let _no_orders = env.with_env_no_catch(work).into_outcome();
        }
        if self.follow.get().is_some() {
            // What is garbage by now did not live to the end.
            let _a_few_more_alive = self.jvmti.collect();
            self.catch_up();
        }
        session::ends(memgate_wire::GoodbyeReason::Exit, None);
    }

    fn class_loads(&self, name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
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

    fn exhausted(&self, env: &mut Env<'_>, flags: u32, what: &str) {
        let times = self.exhausted.fetch_add(1, Ordering::Relaxed);
        if times >= MOST_EXHAUSTIONS {
            return;
        }
        let sites = self.sites.get();
        let mut exhausted = Exhausted::now(env, (flags, what), sites, times == 0 && flags & HEAP != 0);
        exhausted.dump = Some(self.heap_dump()).filter(|path| std::path::Path::new(path).exists());
        session::java_exhausted(&exhausted);
    }

    fn sampled(&self, env: &mut Env<'_>, object: &JObject<'_>, class: &JObject<'_>, bytes: u64) {
        let Some(sites) = self.sites.get() else { return };
        let Some(follow) = self.follow.get() else { return sites.sampled(env, object, class, bytes) };
        if let Some(class) = sites.classes.number(self.jvmti, class).filter(|&c| sites.classes.is_chosen(c)) {
            follow.born(env, (sites, self.jvmti), object, class, bytes);
        }
    }

    fn freed(&self, tag: i64) {
        if let (Some(follow), Some(sites)) = (self.follow.get(), self.sites.get()) {
            follow.freed(tag, sites);
        }
    }
}

impl Natives for Agent {
    fn active(&self) -> bool {
        session::is_active()
    }

    fn test_started(&self, suite: &str, test: &str) {
        session::test_begins(suite, test);
    }

    fn test_finished(&self, suite: &str, test: &str, outcome: i32) {
        self.pace.lock().test_ended(suite);
        session::java_test_ends(suite, test, outcome_of(outcome), None);
    }

    fn iteration(&self, number: u32) {
        session::iteration_begins(number);
    }

    fn window(&self, env: &mut Env<'_>, suite: &str, test: &str, outcome: i32) -> u32 {
        let Some(vm) = self.vm.get() else { return 0 };
        if !self.is_launcher() {
            return self.class_ended(env, vm, suite);
        }
        if self.options.detail == Detail::Survivors {
            // Rounds: softly held values of this window (what reflection caches, say) go with a second collection only, and would seem
            // to grow wherever a class has more of them than the one before. A repeated test has the same in each iteration.
            let _counted_anyway = self.jvmti.collect();
        }
        let mut orders = self.measure(env, vm, (suite, test), outcome);
        if orders & order::SETTLE != 0 {
            // What waits for a finalizer or a cleaner is gone after a second collection.
            let _counted_as_it_is = vm.run_finalizers(env);
            orders = self.measure(env, vm, (suite, test), outcome);
        }
        if orders & order::EXPLAIN != 0 {
            let hunt =
                Hunt::begin(env, session::java_growing(explain::MAX_CLASSES, explain::MAX_OWN_CLASSES));
            if let (Some(hunt), Some(sites), None) = (&hunt, self.sites.get(), self.follow.get()) {
                sites.look_closely(env, hunt.wanted());
            }
            *self.hunt.lock() = hunt;
        }
        orders
    }

    fn listener(&self, name: &str, properties: &str) {
        let Some(vm) = self.vm.get() else { return };
        let mut words = properties.split('\0');
        let mut all = Vec::new();
        while let (Some(key), Some(value)) = (words.next(), words.next()) {
            all.push((key.to_owned(), value.to_owned()));
        }
        session::java_info(self.info(vm, name, all));
    }
}

impl Agent {
    fn listen(&'static self, events: &[Event]) -> Result<(), memgate_jvmti::Error> {
        self.jvmti.listen(self)?;
        events.iter().try_for_each(|event| self.jvmti.enable(*event, true))
    }

    /// The virtual machine runs: binds the natives and opens the stream.
    fn begin(&'static self, env: &mut Env<'_>) {
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

    fn is_launcher(&self) -> bool {
        self.command.starts_with(LAUNCHER)
    }

    /// A test class of the build's own run is over: its window ends here, or goes on with the next class.
    fn class_ended(&self, env: &mut Env<'_>, vm: &Vm, class: &str) -> u32 {
        let began = process::monotonic_ns();
        if !self.pace.lock().is_due(class, began) {
            return 0;
        }
        let orders = self.measure(env, vm, (class, ""), 0);
        let now = process::monotonic_ns();
        self.pace.lock().measured(now, now.saturating_sub(began));
        orders
    }

    /// Collects, counts, writes the boundary; returns the orders of the harness. No lock is held while the virtual machine is asked.
    fn measure(&self, env: &mut Env<'_>, vm: &Vm, (suite, test): (&str, &str), outcome: i32) -> u32 {
        self.sites.get().inspect(|sites| sites.measuring(true));
        let measured = self.look(env, vm);
        self.sites.get().inspect(|sites| sites.measuring(false));
        match measured {
            Ok(measured) => session::java_test_ends(suite, test, outcome_of(outcome), Some(&measured)),
            Err(why) => {
                session::fails(&format!("the virtual machine gave no class histogram: {why}"));
                order::STOP
            }
        }
    }

    fn look(&self, env: &mut Env<'_>, vm: &Vm) -> Result<Measured, vm::Failure> {
        let started = process::monotonic_ns();
        let live = vm.histogram(env)?;
        self.catch_up();
        let hunt = self.hunt.lock().take();
        let (found, alive) = hunt.map(|hunt| self.explained(env, hunt)).unwrap_or_default();
        let mut state = vm.state(env);
        let foreign = self.sites.get().and_then(|sites| sites.window_ends(state.allocated_bytes?));
        if let Some(foreign) = foreign {
            session::log(LogLevel::Warn, &foreign);
        }
        state.boundary_ns = process::monotonic_ns().saturating_sub(started);
        Ok(Measured { live, state, found, alive })
    }

    /// Who holds what grew, and where it was allocated.
    fn explained(&self, env: &mut Env<'_>, hunt: Hunt) -> (Vec<Found>, Alive) {
        let wanted = hunt.wanted().to_vec();
        // The heap is walked for samples first: the hunt takes its time, and what dies meanwhile is of no interest.
        let sites = self.sites.get().filter(|_| self.follow.get().is_none());
        sites.inspect(|sites| sites.look_as_usual());
        let alive = sites.map(|sites| sites.alive(&wanted)).unwrap_or_default();
        if let Some(cut @ 1..) = sites.map(|sites| sites.stacks.cut()) {
            session::log(
                LogLevel::Warn,
                &format!("{cut} Java stacks are shorter than they were: there are too many"),
            );
        }
        (hunt.end(env), alive)
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

    fn heap_dump(&self) -> String {
        format!("{}/java_pid{}.hprof", self.options.heap_dump, process::pid())
    }

    /// What happened to followed objects is in the stream behind this.
    fn catch_up(&self) {
        if let (Some(follow), Some(sites)) = (self.follow.get(), self.sites.get()) {
            follow.catch_up(self.jvmti, sites);
        }
    }

    /// What the harness needs to start such a virtual machine again, as the tests see it.
    fn info(&self, vm: &Vm, listener: &str, properties: Vec<(String, String)>) -> JvmInfo {
        let property = |name: &str| {
            properties.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let paths = |text: String| text.split(':').filter(|p| !p.is_empty()).map(str::to_owned).collect();
        JvmInfo {
            vm: format!("{} {}", property("java.vm.name"), property("java.vm.version")),
            version: property("java.specification.version"),
            home: property("java.home"),
            collector: vm.collector.to_owned(),
            command: self.command.clone(),
            vm_arguments: vm.arguments.clone(),
            class_path: paths(property("java.class.path")),
            module_path: paths(property("jdk.module.path")),
            listener: listener.to_owned(),
            properties,
        }
    }
}

const fn outcome_of(number: i32) -> Option<Outcome> {
    match number {
        0 => Some(Outcome::Passed),
        1 => Some(Outcome::Failed),
        2 => Some(Outcome::Skipped),
        _ => None,
    }
}
