//! The Java part: in a virtual machine that runs tests, windows are measured by collecting and counting.
//!
//! Data flow: `Agent_OnLoad` reads the options file and looks at the command line ([`target`]); in a test worker it puts the jars in
//! place and asks for three events. When the virtual machine is ready ([`Events::vm_init`]) the natives of `io.memgate.agent.Hooks`
//! are bound and the session begins. Test listeners (put into JUnit 4's notifier as it is loaded, found by JUnit Platform's launcher
//! through the jar) call [`Natives`]; each test becomes two boundaries. A window of memgate's launcher ends with [`vm::Vm::histogram`],
//! whose differences are frames before its boundary.
//!
//! No lock of ours is held across a call into the virtual machine: measuring is done before the session is asked for its lock.

mod explain;
mod target;
mod vm;

use std::ffi::CString;
use std::sync::OnceLock;

use jni::{Env, EnvUnowned, jni_str};
use memgate_classfile::{Call, Place, insert_calls};
use memgate_ffi::lock::Lock;
use memgate_ffi::process;
use memgate_jvmti::{Event, Events, Jvmti, Natives};
use memgate_wire::java::{JavaState, JvmInfo};
use memgate_wire::spool::order;
use memgate_wire::{LogLevel, Outcome};

use self::explain::{Found, Hunt};
pub(crate) use self::vm::Live;
use self::vm::Vm;
use crate::options::Options;
use crate::session;

/// The class that listeners and patches call, in the jar on the boot class path.
const HOOKS: &str = "io/memgate/agent/Hooks";
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
}

struct Agent {
    jvmti: Jvmti,
    options: Options,
    command: String,
    vm: OnceLock<Vm>,
    hunt: Lock<Option<Hunt>>,
}

static AGENT: OnceLock<Agent> = OnceLock::new();

/// `Agent_OnLoad`: `text` names the options file. What goes wrong here goes unnoticed by the guest: the harness misses the hello.
pub(crate) fn on_load(jvmti: Jvmti, text: &str) {
    let Ok(options) = std::fs::read_to_string(text) else { return };
    let options = Options::parse(options.trim_end());
    let command = target::command(jvmti);
    if !options.java || !target::runs_tests(&command) {
        return;
    }
    let jar = |name: &str| CString::new(format!("{}/{name}", options.jars)).unwrap_or_default();
    let (hooks, listener) = (jar("memgate-agent-java.jar"), jar("memgate-junit-platform.jar"));
    if jvmti.add_to_boot_search(&hooks).is_err() || jvmti.add_to_system_search(&listener).is_err() {
        return;
    }
    let agent =
        AGENT.get_or_init(|| Agent { jvmti, options, command, vm: OnceLock::new(), hunt: Lock::new(None) });
    let listening = jvmti.listen(agent).and_then(|()| {
        [Event::VmInit, Event::VmDeath, Event::ClassFileLoadHook]
            .into_iter()
            .try_for_each(|event| jvmti.enable(event, true))
    });
    // Without its events the agent is not there: nothing was changed so far.
    let _told_by_the_missing_hello = listening;
}

impl Events for Agent {
    fn vm_init(&self, env: &mut EnvUnowned<'_>) {
        let work = |env: &mut Env<'_>| -> Result<(), vm::Failure> {
            let hooks = env.find_class(jni_str!("io/memgate/agent/Hooks"))?;
            let Some(natives) = AGENT.get() else { return Ok(()) };
            memgate_jvmti::register(env, &hooks, natives)?;
            let version = self.jvmti.system_property(c"java.vm.specification.version").unwrap_or_default();
            let vm = Vm::new(env, self.jvmti, version.trim_start_matches("1.").parse().unwrap_or(0))?;
            // The first call loads classes: not at a boundary.
            let _warm = (vm.histogram(env)?, vm.state(env));
            self.vm.get_or_init(|| vm);
            session::start_java(self.options.clone());
            Ok(())
        };
        if let jni::Outcome::Err(why) = env.with_env_no_catch(work).into_outcome() {
            session::java_is_blind(
                self.options.clone(),
                &format!("the virtual machine does not answer: {why}"),
            );
        }
    }

    fn vm_death(&self, _: &mut EnvUnowned<'_>) {
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

    fn exhausted(&self, _: u32, _: &str) {}

    fn sampled(
        &self,
        _: &mut EnvUnowned<'_>,
        _: &jni::objects::JObject<'_>,
        _: &jni::objects::JObject<'_>,
        _: u64,
    ) {
    }

    fn freed(&self, _: i64) {}
}

impl Natives for Agent {
    fn active(&self) -> bool {
        session::is_active()
    }

    fn test_started(&self, suite: &str, test: &str) {
        session::test_begins(suite, test);
    }

    fn test_finished(&self, suite: &str, test: &str, outcome: i32) {
        session::java_test_ends(suite, test, outcome_of(outcome), None);
    }

    fn iteration(&self, number: u32) {
        session::iteration_begins(number);
    }

    fn window(&self, env: &mut Env<'_>, suite: &str, test: &str, outcome: i32) -> u32 {
        let Some(vm) = self.vm.get() else { return 0 };
        let mut orders = self.measure(env, vm, (suite, test), outcome);
        if orders & order::SETTLE != 0 {
            // What waits for a finalizer or a cleaner is gone after a second collection.
            let _counted_as_it_is = vm.run_finalizers(env);
            orders = self.measure(env, vm, (suite, test), outcome);
        }
        if orders & order::EXPLAIN != 0 {
            let hunt = Hunt::begin(env, self.jvmti, session::java_growing(explain::MAX_CLASSES));
            *self.hunt.lock() = Some(hunt);
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
        session::java_info(self.info(vm.collector, name, all));
    }
}

impl Agent {
    /// Collects, counts, writes the boundary; returns the orders of the harness. No lock is held while the virtual machine is asked.
    fn measure(&self, env: &mut Env<'_>, vm: &Vm, (suite, test): (&str, &str), outcome: i32) -> u32 {
        let started = process::monotonic_ns();
        let live = match vm.histogram(env) {
            Ok(live) => live,
            Err(why) => {
                session::fails(&format!("the virtual machine gave no class histogram: {why}"));
                return order::STOP;
            }
        };
        let hunt = self.hunt.lock().take();
        let found = hunt.map(|hunt| hunt.end(env, self.jvmti)).unwrap_or_default();
        let mut state = vm.state(env);
        state.boundary_ns = process::monotonic_ns().saturating_sub(started);
        let measured = Measured { live, state, found };
        session::java_test_ends(suite, test, outcome_of(outcome), Some(&measured))
    }

    /// What the harness needs to start such a virtual machine again, as the tests see it.
    fn info(&self, collector: &str, listener: &str, properties: Vec<(String, String)>) -> JvmInfo {
        let property = |name: &str| {
            properties.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let paths = |text: String| text.split(':').filter(|p| !p.is_empty()).map(str::to_owned).collect();
        JvmInfo {
            vm: format!("{} {}", property("java.vm.name"), property("java.vm.version")),
            version: property("java.specification.version"),
            home: property("java.home"),
            collector: collector.to_owned(),
            command: self.command.clone(),
            vm_arguments: Vec::new(),
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
