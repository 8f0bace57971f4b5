//! The agent's reactions to calls of the virtual machine and of test listeners.
//!
//! Data flow: `start` makes the only [`Agent`]. The virtual machine calls [`Events`]: its start opens the session,
//! allocations and frees of objects go to `sites` and `follow`, out-of-memory errors to `exhausted`. Test listeners and
//! the launcher call [`Natives`]: starts and ends of tests become boundaries of the session. At the end of a window,
//! [`Agent::measure`] collects, counts and hands over the frames with the boundary. The agent obeys the orders in the
//! answer (settle, stop compiling, explain classes). At the end of the run it measures the last window, writes a heap
//! dump if requested, and closes the stream.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use jni::objects::{JClass, JObject};
use jni::{Env, EnvUnowned};
use memgate_ffi::lock::Lock;
use memgate_ffi::process;
use memgate_jvmti::{Events, Jvmti, Natives};
use memgate_session as session;
use memgate_wire::java::{JavaState, JvmInfo};
use memgate_wire::options::{Carrier, Detail, Options, Windows};
use memgate_wire::reply::{ClassNumbers, Reply};
use memgate_wire::spool::order;
use memgate_wire::{BoundaryKind, Frame, LogLevel, Outcome, hotspot};

use super::exhausted::{self, Exhausted};
use super::explain::Found;
use super::follow::Follow;
use super::frames::{Measured, window_ends};
use super::heap::HeapWatch;
use super::machine::{Failure, Live, Machine};
use super::notifier;
use super::pace::Pace;
use super::sites::{Alive, Sites};
use super::survivor_search::SurvivorSearch;

/// At most this many out-of-memory errors are reported: a test may provoke many.
const MOST_EXHAUSTIONS: u32 = 16;
/// Why nothing was measured at the end.
const HALTED: &str = "the virtual machine was halted, without its shutdown hooks";
/// `JVMTI_RESOURCE_EXHAUSTED_JAVA_HEAP`
const HEAP: u32 = 2;

pub(crate) struct Agent {
    pub(crate) jvmti: Jvmti<'static>,
    /// The runtime is Android's. See [`Agent::is_art`].
    pub(crate) found_art: bool,
    pub(crate) options: Options,
    pub(crate) command: String,
    pub(crate) vm: OnceLock<Box<dyn Machine>>,
    pub(crate) search: Lock<Option<SurvivorSearch>>,
    pub(crate) pace: Lock<Pace>,
    pub(crate) sites: OnceLock<Sites>,
    pub(crate) follow: OnceLock<Follow>,
    pub(crate) heap: HeapWatch,
    /// The JIT is disabled.
    pub(crate) jit_disabled: AtomicBool,
    /// A test has failed, and its heap was dumped.
    pub(crate) dumped_a_failure: AtomicBool,
    /// Number of out-of-memory errors so far.
    pub(crate) exhausted: AtomicU32,
    /// Another native agent of this virtual machine, which may want to sample.
    pub(crate) leaves_sampling_to: OnceLock<String>,
}

pub(crate) static AGENT: OnceLock<Agent> = OnceLock::new();

impl Events for Agent {
    fn vm_init(&self, env: &mut EnvUnowned<'_>) {
        let work = |env: &mut Env<'_>| {
            if let Some(agent) = AGENT.get() {
                agent.begin(env);
                let allocated = agent.machine().and_then(|vm| vm.state(env).allocated_bytes);
                agent.sites.get().zip(allocated).inspect(|(sites, allocated)| sites.begin(*allocated));
            }
            Ok::<(), Failure>(())
        };
        let _begun = env.with_env_no_catch(work).into_outcome();
    }

    /// The collector threads have ended by now: with ZGC and Shenandoah, a collection or heap walk here would wait
    /// forever. So the last shutdown hook ([`Natives::run_finished`]) makes the final measurements, unless it did not
    /// run.
    fn vm_death(&self, _: &mut EnvUnowned<'_>) {
        exhausted::catch_up();
        if let Some(class) = self.last_window() {
            let what = if class.is_empty() { "what is alive at its end" } else { "what its last tests left" };
            session::log(LogLevel::Warn, &format!("{what} was not measured: {HALTED}"));
        }
        if let (Some(follow), Some(sites)) = (self.follow.get(), self.sites.get())
            && session::is_active()
        {
            session::log(
                LogLevel::Warn,
                &format!("some followed objects may be gone that count as alive: {HALTED}"),
            );
            follow.write_down(sites);
        }
        session::ends(memgate_wire::GoodbyeReason::Exit, None);
    }

    fn class_loads(&self, name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
        notifier::patched(name, bytes)
    }

    fn class_prepared(&self, env: &mut Env<'_>, class: &JClass<'_>) {
        if let Some(agent) = AGENT.get() {
            agent.bind(env, class);
        }
    }

    fn exhausted(&self, env: &mut Env<'_>, flags: u32, what: &str) {
        let times = self.exhausted.fetch_add(1, Ordering::Relaxed);
        if times >= MOST_EXHAUSTIONS || !exhausted::has_room() {
            return;
        }
        let sites = self.sites.get();
        let mut exhausted = Exhausted::now(env, (flags, what), sites, times == 0 && flags & HEAP != 0);
        exhausted.dump = (!self.options.heap_dump.is_empty())
            .then(|| self.heap_dump())
            .filter(|path| std::path::Path::new(path).exists());
        exhausted.tell(sites);
    }

    fn sampled(&self, env: &mut Env<'_>, object: &JObject<'_>, class: &JObject<'_>, bytes: u64) {
        let Some(sites) = self.sites.get() else { return };
        self.heap_fills(env, sites, bytes);
        let Some(follow) = self.follow.get() else { return sites.sampled(env, object, class, bytes) };
        if !follow.goes_on(sites) {
            return;
        }
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
        exhausted::catch_up();
        if self.stands_at_tests() {
            session::test_begins(|| Some((suite, test)));
        } else {
            session::test_passes(BoundaryKind::TestStart, suite, test, None);
        }
    }

    fn test_finished(&self, env: &mut Env<'_>, suite: &str, test: &str, outcome: i32) {
        exhausted::catch_up();
        self.pace.lock().test_ended(suite);
        self.dump_if_failed(env, outcome);
        if self.stands_at_tests() {
            window_ends((suite, test), outcome_of(outcome), None);
        } else {
            session::test_passes(BoundaryKind::TestEnd, suite, test, outcome_of(outcome));
        }
    }

    fn iteration(&self, number: u32) {
        session::iteration_begins(number);
    }

    fn window(&self, env: &mut Env<'_>, suite: &str, test: &str, outcome: i32) -> u32 {
        exhausted::catch_up();
        let Some(vm) = self.machine() else {
            // The library is loaded, but JVMTI refused: only the native side is measured.
            return window_ends((suite, test), outcome_of(outcome), None).bits;
        };
        if !self.measures_each_window() {
            return self.class_ended(env, vm, suite);
        }
        let mut reply = self.measure(env, vm, (suite, test), outcome);
        if reply.has(order::SETTLE) {
            self.settle(env, vm);
            // The Java side is already measured.
            reply = window_ends((suite, test), outcome_of(outcome), None);
        }
        if reply.has(order::COMPILED) && !self.jit_disabled.swap(true, Ordering::Relaxed) {
            self.disable_jit(env, vm);
        }
        if reply.has(order::EXPLAIN) {
            self.begin_search(env, reply.classes.as_ref());
        }
        reply.bits
    }

    fn listener(&self, name: &str, properties: &str) {
        let mut words = properties.split('\0');
        let mut all = Vec::new();
        while let (Some(key), Some(value)) = (words.next(), words.next()) {
            all.push((key.to_owned(), value.to_owned()));
        }
        let info = Frame::JvmInfo(self.info(name, all));
        // The listener that reports the tests is known now, and so is their class path.
        let _untold_without_a_stream = session::write(|session| session.append(&info));
    }

    fn run_finished(&self, env: &mut Env<'_>) {
        self.say_last(env);
    }
}

impl Agent {
    /// Begins a survivor search, because the harness asks who holds the instances of these classes.
    fn begin_search(&self, env: &mut Env<'_>, classes: Option<&ClassNumbers>) {
        let search = SurvivorSearch::asked(env, classes);
        if let (Some(search), Some(sites), None) = (&search, self.sites.get(), self.follow.get()) {
            sites.look_closely(env, search.wanted());
        }
        let before = core::mem::replace(&mut *self.search.lock(), search);
        // Drop calls JVMTI; the lock is released first.
        drop(before);
    }

    /// Measures the window that is still open, and ends the stream.
    fn say_last(&self, env: &mut Env<'_>) {
        exhausted::catch_up();
        if let (Some(class), Some(vm)) = (self.last_window(), self.machine()) {
            // The build's own run repeats nothing, so there are no orders.
            let _no_orders = self.measure(env, vm, (&class, ""), 0);
        }
        if self.follow.get().is_some() {
            // Objects that are garbage by now did not live until the end.
            let _a_few_more_alive = self.jvmti.collect();
            self.catch_up();
        }
        self.dump_at_end(env);
        session::ends(memgate_wire::GoodbyeReason::Exit, None);
    }

    /// The tests are over: dumps the live objects, if this was requested.
    fn dump_at_end(&self, env: &mut Env<'_>) {
        // For an app, the harness asks the system for the dump.
        if self.options.carrier == Carrier::App {
            if !self.options.end_dump.is_empty() {
                session::tests_end();
            }
            return;
        }
        self.dump(env, &self.options.end_dump, "end");
    }

    /// Like [`Self::dump_at_end`], after the first failed test, before another test changes what it left.
    fn dump_if_failed(&self, env: &mut Env<'_>, outcome: i32) {
        let is_due = outcome_of(outcome) == Some(Outcome::Failed) && !self.options.failed_dump.is_empty();
        if is_due && !self.dumped_a_failure.swap(true, Ordering::Relaxed) {
            self.dump(env, &self.options.failed_dump, "failed");
        }
    }

    /// Dumps the live objects. Finalizers and cleaners may hold unused objects until they have run.
    fn dump(&self, env: &mut Env<'_>, folder: &str, when: &str) {
        let Some(vm) = self.machine().filter(|_| !folder.is_empty()) else { return };
        let _dumped_as_it_is = self.jvmti.collect();
        vm.wait_for_references(env);
        let path = format!("{folder}/java_pid{}_{when}.hprof", process::pid());
        if let Err(why) = vm.dump_heap(env, &path) {
            session::log(LogLevel::Warn, &format!("the heap dump was not written: {why}"));
        }
    }

    /// Lets garbage release native memory: its finalizers and cleaners run in threads of their own. They may hold
    /// further objects until then, hence the second round.
    fn settle(&self, env: &mut Env<'_>, vm: &dyn Machine) {
        for _ in 0..2 {
            let _counted_as_it_is = self.jvmti.collect();
            vm.wait_for_references(env);
            session::settle();
        }
    }

    /// The class whose window is open at the end. `None` if each window is measured: an additional, empty window would
    /// look as if the last round had left nothing.
    fn last_window(&self) -> Option<String> {
        self.pace.lock().last().filter(|_| !self.measures_each_window())
    }

    /// Hot methods are compiled; the JIT compiles no others.
    fn disable_jit(&self, env: &mut Env<'_>, vm: &dyn Machine) {
        let said = match vm.direct_compilers(env, &self.options.directives) {
            Ok(said) => said,
            Err(why) => why.to_string(),
        };
        // Without the directives a few strings may look like growth for longer.
        session::log(LogLevel::Debug, &format!("compiler directives: {}", said.trim()));
    }

    /// Is this Android's runtime, not HotSpot? On Android there is no other, and the library has no code for HotSpot.
    pub(crate) const fn is_art(&self) -> bool {
        cfg!(target_os = "android") || self.found_art
    }

    fn machine(&self) -> Option<&dyn Machine> {
        self.vm.get().map(|vm| &**vm)
    }

    /// Does the reporter of windows also decide where they end, as memgate's launcher does? Then each window is
    /// measured, whatever it costs.
    fn measures_each_window(&self) -> bool {
        self.options.windows == Windows::Each || self.command.starts_with(hotspot::LAUNCHER)
    }

    /// Does the harness look at the process at the start and end of each test? In the build's own run on HotSpot, this
    /// has no use and costs more than most tests.
    fn stands_at_tests(&self) -> bool {
        self.is_art() || self.measures_each_window()
    }

    /// A test class of the build's own run is over: its window ends here, or continues with the next class.
    fn class_ended(&self, env: &mut Env<'_>, vm: &dyn Machine, class: &str) -> u32 {
        // Uses processor time, because collectors use many threads, and because a busy machine does not change it.
        let began = process::cpu_ns();
        if !self.pace.lock().is_due(class, began) {
            return 0;
        }
        let reply = self.measure(env, vm, (class, ""), 0);
        let now = process::cpu_ns();
        self.pace.lock().measured(now, now.saturating_sub(began));
        reply.bits
    }

    /// Collects, counts, writes the boundary; returns the answer of the harness. No lock is held during calls to the
    /// virtual machine.
    fn measure(
        &self,
        env: &mut Env<'_>,
        vm: &dyn Machine,
        (suite, test): (&str, &str),
        outcome: i32,
    ) -> Reply {
        self.sites.get().inspect(|sites| sites.measuring(true));
        let measured = self.look(env, vm);
        self.sites.get().inspect(|sites| sites.measuring(false));
        match measured {
            Ok(measured) => window_ends((suite, test), outcome_of(outcome), Some(&measured)),
            Err(why) => {
                session::fails(&format!("the virtual machine gave no class histogram: {why}"));
                Reply::of(order::STOP)
            }
        }
    }

    fn look(&self, env: &mut Env<'_>, vm: &dyn Machine) -> Result<Measured, Failure> {
        let started = process::monotonic_ns();
        // In a repeated test, each iteration has the same number of objects that disappear by themselves.
        let is_round = self.options.detail == Detail::Survivors && self.measures_each_window();
        let live = if is_round { vm.settled_histogram(env)? } else { vm.histogram(env)? };
        if self.measures_each_window() {
            vm.wait_for_references(env);
        }
        self.catch_up();
        let search = self.search.lock().take();
        let (found, alive) = search.and_then(|search| self.explained(env, search, &live)).unwrap_or_default();
        let mut state = vm.state(env);
        let foreign = self.sites.get().and_then(|sites| sites.window_ends(state.allocated_bytes?));
        if let Some(foreign) = foreign {
            session::log(LogLevel::Warn, &foreign);
        }
        state.boundary_ns = process::monotonic_ns().saturating_sub(started);
        Ok(Measured { live, state, found, alive })
    }

    /// Finds who holds the grown objects, and where they were allocated. `None`: this is known only after the next
    /// window.
    fn explained(
        &self,
        env: &mut Env<'_>,
        mut search: SurvivorSearch,
        live: &[Live],
    ) -> Option<(Vec<Found>, Alive)> {
        let sites = self.sites.get().filter(|_| self.follow.get().is_none());
        if search.goes_on(env) {
            sites.inspect(|sites| sites.look_again());
            *self.search.lock() = Some(search);
            return None;
        }
        // The heap is walked for samples first: the search takes time, and objects that die meanwhile are of no
        // interest.
        sites.inspect(|sites| sites.look_as_usual());
        let alive = sites.map(|sites| sites.alive(search.wanted())).unwrap_or_default();
        if let Some(cut @ 1..) = sites.map(|sites| sites.stacks.cut()) {
            session::log(
                LogLevel::Warn,
                &format!("{cut} Java stacks are shorter than they were: there are too many"),
            );
        }
        Some((search.end(env, live), alive))
    }

    /// An allocation was sampled: adds a point to the heap's curve if one is due, and checks the limit.
    fn heap_fills(&self, env: &mut Env<'_>, sites: &Sites, bytes: u64) {
        if sites.is_measuring() {
            return;
        }
        let Some(used) = self.heap.look(env, sites.stands_for(bytes)) else { return };
        tell_used(used);
        if !self.heap.is_above(used) {
            return;
        }
        let Some(used) = self.heap.collected(env, self.jvmti) else { return };
        tell_used(used);
        if let Some(what) = Some(()).filter(|()| self.heap.is_above(used)).and_then(|()| self.heap.tells()) {
            let max = self.heap.max();
            Exhausted::told(&what, used, max).tell(None);
            let look = move |env: &mut Env<'_>| {
                AGENT.get().into_iter().for_each(|agent| agent.looks_beside(env, &what))
            };
            if !exhausted::look_beside(env, look) {
                session::log(
                    LogLevel::Warn,
                    "nobody could look what fills the heap: there is no thread for it",
                );
            }
        }
    }

    /// Runs in a separate thread: writes a dump if requested, and reports what fills the heap.
    fn looks_beside(&self, env: &mut Env<'_>, what: &str) {
        let folder = &self.options.heap_limit_dump;
        let path = format!("{folder}/java_pid{}_limit.hprof", process::pid());
        let dump = self.machine().filter(|_| !folder.is_empty()).and_then(|vm| {
            let said = match vm.dump_heap(env, &path) {
                Ok(_) if std::path::Path::new(&path).exists() => return Some(path.clone()),
                Ok(said) => said,
                Err(why) => why.to_string(),
            };
            session::log(LogLevel::Warn, &format!("the heap dump was not written: {}", said.trim()));
            None
        });
        let exhausted = Exhausted::now(env, (0, what), self.sites.get(), true);
        Exhausted { dump, ..exhausted }.tell(self.sites.get());
    }

    /// Writes all events of followed objects to the stream.
    fn catch_up(&self) {
        if let (Some(follow), Some(sites)) = (self.follow.get(), self.sites.get()) {
            follow.catch_up(self.jvmti, sites);
        }
    }

    /// The data that the harness needs to start this virtual machine again, as the tests see it.
    fn info(&self, listener: &str, properties: Vec<(String, String)>) -> JvmInfo {
        let property = |name: &str| {
            properties.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let paths = |text: String| text.split(':').filter(|p| !p.is_empty()).map(str::to_owned).collect();
        JvmInfo {
            vm: format!("{} {}", property("java.vm.name"), property("java.vm.version")),
            version: property("java.specification.version"),
            home: property("java.home"),
            collector: self.machine().map_or("", Machine::collector).to_owned(),
            command: self.command.clone(),
            vm_arguments: self.machine().map_or(&[][..], Machine::arguments).to_vec(),
            class_path: paths(property("java.class.path")),
            module_path: paths(property("jdk.module.path")),
            listener: listener.to_owned(),
            properties,
        }
    }
}

/// Writes the used bytes of the heap between boundaries. Runs in a thread of the guest, so the point is left out if
/// another thread is writing.
fn tell_used(used: u64) {
    let state = JavaState { heap_used: Some(used), ..JavaState::default() };
    let _left_out = session::try_write(|session| session.append(&Frame::JavaState(state)));
}

pub(crate) const fn outcome_of(number: i32) -> Option<Outcome> {
    match number {
        0 => Some(Outcome::Passed),
        1 => Some(Outcome::Failed),
        2 => Some(Outcome::Skipped),
        _ => None,
    }
}
