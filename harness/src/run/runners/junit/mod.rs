//! JUnit suites: the build runs as it always does, then memgate runs the same tests in virtual
//! machines of its own.
//!
//! Data flow: the build's own run with the agent in every virtual machine that tests ([`screen`]) →
//! workers, grouped into suites, compared with the results that the build wrote ([`results`]) →
//! which of them load libraries of their own, so that native memory is judged too
//! ([`choose_native`]) → [`windows`] (which test classes left more than an accepted run) →
//! [`rounds`] (all test classes, several times over in one virtual machine) → suspect classes →
//! [`confirm`] (a class, then its tests, each repeated alone) → facts of the suite. What runs, and
//! with which options of the agent, stands in files of the session.

mod hunt;
mod observed;
mod process;
mod repeat;
mod results;
mod rounds;
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use memgate_analysis::{ClassWindow, JavaSuspect, Window, base_of, class_windows, left_out, own_libraries};
use memgate_config::{HeapDump, JavaAgent, JavaNative, MeasureJava, Screen};
use memgate_launch::{Exit, Launch};
use memgate_wire::Outcome;
use memgate_wire::java::JvmInfo;

pub(super) use self::hunt::{candidates, hunt};
use self::observed::Lookout;
pub(super) use self::process::screen as screen_program;
pub(super) use self::repeat::confirm;
use super::board::{Clocked, Finished, Limit};
use super::facts::{Facts, JavaFacts, Kind, ProcessFacts, SuiteFacts};
use super::label::Label;
use super::screen::{self, Screened, Setting, ran_tests};
use super::supervise::{Done, Job, Stopped, Surroundings, supervise};
use super::watch::Settle;
use super::{naming, problem};
use crate::device::agentless::{self, Agentless, AgentlessError};
use crate::device::java::{self, TOOL_OPTIONS};
use crate::device::{AgentOptions, JavaLook, OPTIONS_VARIABLE, PRELOAD_VARIABLE, Target, preload};
use crate::embedded::{HOOKS_JAR, LAUNCHER_JAR, LISTENER_JAR};
use crate::exit::{ExpectedError, chain};
use crate::output::{Console, Progress};
use crate::plan::PlannedSuite;
use crate::suite::junit::{self, JvmSuiteId, Selection, Worker};

/// Folder of plans and options in the session.
const FOLDER: &str = "java";
/// Times that the whole build took which a window of ours may take.
const BUILDS: u32 = 4;
/// How long a virtual machine of our own waits for us at a boundary: what it is told decides the
/// verdict, however busy the machine is. As long as the agent waits at most.
const WAIT: Duration = Duration::from_secs(60);

/// How the tests of a JVM suite run again.
#[derive(Debug)]
pub(super) struct JavaSuite {
    /// What the build's virtual machines had in their environment because of us.
    our_option: OsString,
    /// Its tests by class, both in the order they ran.
    classes: Vec<(String, Vec<String>)>,
    /// What the windows of the build's own run left.
    windows: Vec<ClassWindow>,
    /// The agent is preloaded where its tests run again: native memory of libraries that are not
    /// the JDK's is judged.
    native: bool,
    /// Classes that grew in the rounds.
    suspects: Vec<JavaSuspect>,
    /// The processes of the rounds.
    pub(super) rounds: Vec<Finished>,
}

impl JavaSuite {
    /// Tests that failed in the rounds and were left out there are not confirmed either.
    fn leave_out_failed(&mut self) {
        let failed: BTreeSet<(String, String)> =
            self.rounds.iter().flat_map(|process| left_out(&process.record)).collect();
        for (class, tests) in &mut self.classes {
            tests.retain(|test| !failed.contains(&(class.clone(), base_of(test).to_owned())));
        }
    }
}

/// A launcher about to be started, and what has to be there as long as it runs.
struct Ours {
    launch: Launch,
    _arguments: Temporary,
    /// Speaks for it, where no agent does.
    speaker: Option<Agentless>,
}

/// The build's own run, and the rounds of every suite in it.
pub(super) async fn screen(
    around: &mut Surroundings<'_>,
    setting: Setting<'_>,
    planned: &PlannedSuite,
    facts: &mut Facts,
) -> Result<Vec<Screened>, Stopped> {
    let files = Files::new(setting)?;
    let label = Label::Screen { suite: planned.name.clone().unwrap_or_default() };
    let windows = windows::where_to_measure(setting.plan, |list| files.write("windows", list))?;
    let suite = planned.name.as_deref().unwrap_or_default();
    let follow = around.names.renamed(suite, files.look.follow.clone());
    let (options, our_option) = files.options(around, &label, |options| {
        options.windows = windows;
        options.look = Some(JavaLook { follow, ..files.look.clone() });
    })?;
    let planned_now = filtered(setting, planned)?;
    let launch = match setting.plan.java.agent {
        JavaAgent::Loaded => with_agent(&files, planned_now, &our_option)?,
        JavaAgent::None => screen::launch(&planned_now, None),
    };
    let lookout = match setting.plan.java.agent {
        JavaAgent::Loaded => None,
        JavaAgent::None => Some(Lookout::begin().map_err(|why| failed(&why))?),
    };
    let since = SystemTime::now();
    let job = Job {
        launch,
        options,
        preload: false,
        orders: Box::new(|_| Box::new(Settle::new(false))),
        clocked: Clocked::Test,
        limit: Limit::Tells(planned.timeout),
    };
    let mut progress = Progress::beside_tests(around.console, "screening", None);
    let mut done =
        supervise(around, job, &mut |board| progress.update(board.tests(), &board.status())).await?;
    drop(progress);
    facts.command_ended(screen::status(done.ended.exit));
    facts.errors.extend(done.problems.drain(..).map(|what| problem("recorder", what, "")));
    if let Some(lookout) = lookout {
        let frames = setting.session.frames();
        let (seen, problems) = lookout.end(&frames, &label.to_text()).map_err(|why| failed(&why))?;
        facts.errors.extend(problems.into_iter().map(|what| problem("test results", what, "")));
        done.finished.extend(seen);
    }
    if done.finished.is_empty() {
        facts.errors.push(nothing_seen(planned, done.ended.exit));
        return Ok(Vec::new());
    }
    let kind = match setting.plan.java.agent {
        JavaAgent::Loaded => Kind::Junit,
        JavaAgent::None => Kind::JunitObserved,
    };
    let mut suites = suites(planned, &our_option, kind, done);
    let root = results::root(planned);
    let (modules, problems) = results::modules(&root, since);
    // Without the agent the same files were read before.
    let problems = problems.into_iter().filter(|_| kind == Kind::Junit);
    facts.errors.extend(problems.map(|what| problem("test results", what, "")));
    let measured = suites.iter().flat_map(|suite| &suite.processes);
    facts.errors.extend(results::unmeasured(&root, &modules, measured));
    let mut kept = BTreeMap::new();
    for suite in &mut suites {
        choose_native(around.console, setting, suite);
        rounds::rounds(around, setting, suite).await?;
        let java = suite.java.as_ref().filter(|_| setting.plan.screen != Screen::Off);
        kept.extend(
            java.map(|java| (suite.facts.name.clone(), windows::to_accept(setting, &suite.facts.name, java))),
        );
    }
    windows::keep(setting.session, &kept)?;
    Ok(suites)
}

/// Whether native memory of this suite is judged.
fn choose_native(console: &Console, setting: Setting<'_>, suite: &mut Screened) {
    let Some(java) = suite.java.as_mut() else { return };
    let loaded: BTreeSet<&str> =
        suite.processes.iter().flat_map(|process| own_libraries(&process.record)).collect();
    let MeasureJava { agent, native, .. } = &setting.plan.java;
    java.native = match native {
        _ if *agent == JavaAgent::None => false,
        JavaNative::Auto => !loaded.is_empty(),
        JavaNative::On => true,
        JavaNative::Off => false,
    };
    suite.facts.java.get_or_insert_with(JavaFacts::default).native_is_off = *native == JavaNative::Off;
    let shown: Vec<&str> = loaded.iter().map(|path| path.rsplit('/').next().unwrap_or(path)).collect();
    if java.native && !shown.is_empty() {
        console.line(&format!("{}: native memory is judged too, of {}", suite.facts.name, shown.join(", ")));
    }
}

/// The command, and the way of the agent into the virtual machines it starts: the environment, or
/// for Gradle an init script. A daemon keeps the environment it was started with, be it ours or
/// not.
fn with_agent(files: &Files, mut planned: PlannedSuite, our_option: &OsStr) -> Result<Launch, ExpectedError> {
    if junit::is_gradle(&planned.command) {
        let options = java::with_option(None, our_option).map_err(|why| failed(&why))?;
        let script = files.write("gradle", &junit::gradle_script(&options.to_string_lossy()))?;
        planned.command = junit::with_gradle_script(&planned.command, &script);
        return Ok(screen::launch(&planned, None));
    }
    let mut launch = screen::launch(&planned, None);
    let existing = launch.environment.get(OsStr::new(TOOL_OPTIONS));
    let value = java::with_option(existing.as_deref(), our_option).map_err(|why| failed(&why))?;
    launch.environment.set(TOOL_OPTIONS.into(), value);
    Ok(launch)
}

/// The command with the filter that was asked for.
fn filtered(setting: Setting<'_>, planned: &PlannedSuite) -> Result<PlannedSuite, ExpectedError> {
    let Some(filter) = &setting.plan.filter else { return Ok(planned.clone()) };
    let usage = |why: String| ExpectedError::Usage { what: format!("failed to {why}"), hint: String::new() };
    let command = junit::filtered(&planned.command, filter).map_err(usage)?;
    Ok(PlannedSuite { command, ..planned.clone() })
}

fn nothing_seen(planned: &PlannedSuite, exit: Exit) -> memgate_model::Problem {
    let typed = screen::typed(planned);
    let name = planned.name.clone().unwrap_or_else(|| typed.clone());
    let what = format!("not measured: no Java virtual machine below `{typed}` ran JUnit tests ({exit})");
    let hint = if junit::is_java(&typed) {
        "a Java program without JUnit is the test as a whole: name the argument that repeats its work, as {n}, so that what each repetition \
         leaves can be told; HotSpot 17 or later is needed"
    } else {
        "were its tests up to date, or skipped? Surefire with forkCount=0 tests in Maven itself, which is not measured; \
         HotSpot 17 or later is needed"
    };
    problem(&name, what, hint)
}

/// Groups the virtual machines that ran tests.
fn suites(planned: &PlannedSuite, our_option: &OsStr, kind: Kind, done: Done) -> Vec<Screened> {
    let Done { finished, elapsed, .. } = done;
    let mut groups: Vec<(JvmSuiteId, Vec<Finished>)> = Vec::new();
    for process in finished.into_iter().filter(Finished::is_main) {
        let id = match jvm(&process) {
            Some(jvm) => JvmSuiteId::of(process.hello(), jvm),
            None => {
                JvmSuiteId { directory: process.hello().working_directory.clone(), class_path: Vec::new() }
            }
        };
        match groups.iter_mut().find(|(known, _)| *known == id) {
            Some((_, processes)) => processes.push(process),
            None => groups.push((id, vec![process])),
        }
    }
    // A worker that was given no test, beside others that were.
    let idle =
        |processes: &[Finished]| processes.iter().all(|p| !ran_tests(&p.record) && p.hello().blind.is_none());
    if groups.iter().any(|(_, processes)| !idle(processes)) {
        groups.retain(|(_, processes)| !idle(processes));
    }
    let ids: Vec<JvmSuiteId> = groups.iter().map(|(id, _)| id.clone()).collect();
    let names = naming::jvm_suite_names(planned.name.as_deref(), &ids);
    let suite = |(name, (_, processes)): (String, (JvmSuiteId, Vec<Finished>))| {
        suite(planned, our_option, kind, (name, processes), elapsed)
    };
    names.into_iter().zip(groups).map(suite).collect()
}

fn suite(
    planned: &PlannedSuite,
    our_option: &OsStr,
    kind: Kind,
    (name, processes): (String, Vec<Finished>),
    elapsed: Duration,
) -> Screened {
    let mut problems = Vec::new();
    let classes = classes(&processes);
    if !processes.iter().any(|process| process.record.windows.iter().any(is_test)) {
        problems.push(problem(&name, "it ran no test whose boundaries could be seen".to_owned(), ""));
    }
    let screen = processes.iter().map(ProcessFacts::of).collect();
    let facts =
        SuiteFacts { screened_s: elapsed.as_secs_f64(), problems, ..SuiteFacts::new(name, kind, screen) };
    let java = JavaSuite {
        our_option: our_option.to_owned(),
        classes,
        windows: processes.iter().flat_map(|process| class_windows(&process.record)).collect(),
        native: false,
        suspects: Vec::new(),
        rounds: Vec::new(),
    };
    Screened {
        facts,
        processes,
        repeating: None,
        one_by_one: false,
        java: Some(java),
        timeout: planned.timeout,
    }
}

fn is_test(window: &Window) -> bool {
    !window.suite.is_empty() && !window.test.is_empty()
}

/// Test classes with their tests, in the order they ran, without tests that failed: a class with
/// one could not be repeated.
fn classes(processes: &[Finished]) -> Vec<(String, Vec<String>)> {
    let mut classes: Vec<(String, Vec<String>)> = Vec::new();
    let windows = || processes.iter().flat_map(|process| &process.record.windows).filter(|w| is_test(w));
    let failed = windows().filter(|window| window.outcome == Some(Outcome::Failed));
    let failed: BTreeSet<(&str, &str)> =
        failed.map(|window| (window.suite.as_str(), window.test.as_str())).collect();
    let passed = |window: &&Window| !failed.contains(&(window.suite.as_str(), window.test.as_str()));
    for window in windows().filter(passed) {
        let tests = match classes.iter_mut().find(|(class, _)| *class == window.suite) {
            Some((_, tests)) => tests,
            None => {
                classes.push((window.suite.clone(), Vec::new()));
                let Some((_, tests)) = classes.last_mut() else { continue };
                tests
            }
        };
        if !tests.contains(&window.test) {
            tests.push(window.test.clone());
        }
    }
    classes
}

/// How long so many tests of a suite may take in a virtual machine of ours, its start included: as
/// long as each may by itself, and on a machine that is busy no less than the whole build took,
/// several times over.
fn patience(suite: &Screened, tests: usize) -> Duration {
    let each = suite.timeout.saturating_mul(u32::try_from(tests).unwrap_or(u32::MAX));
    let build = Duration::try_from_secs_f64(suite.facts.screened_s).unwrap_or_default();
    each.max(build.saturating_mul(BUILDS))
}

fn jvm(process: &Finished) -> Option<&JvmInfo> {
    process.record.java.as_ref()?.jvm.as_ref()
}

/// The virtual machine of a suite that is started again, or why none can be.
fn worker<'a>(suite: &'a Screened, java: &'a JavaSuite) -> Result<Worker<'a>, String> {
    let told = suite.processes.iter().find_map(|process| Some((process, jvm(process)?)));
    let Some((process, jvm)) = told else {
        return Err("no virtual machine of it told how it was started".to_owned());
    };
    if let Some(why) = junit::obstacle(jvm) {
        return Err(why);
    }
    let Some(environment) = process.environment() else {
        return Err("the environment it ran in cannot be read (another process namespace?)".to_owned());
    };
    Ok(Worker { hello: process.hello(), jvm, environment, our_option: &java.our_option })
}

/// Plans and options in the session, numbered: a virtual machine that comes late still finds its
/// own.
struct Files {
    folder: PathBuf,
    frames: PathBuf,
    number: usize,
    /// What is looked at beside the heap's classes.
    look: JavaLook,
    agent: JavaAgent,
}

impl Files {
    fn new(setting: Setting<'_>) -> Result<Self, ExpectedError> {
        let folder = setting.session.folder().join(FOLDER);
        fs::create_dir_all(&folder).map_err(ExpectedError::file("create", &folder))?;
        let number = fs::read_dir(&folder).map_err(ExpectedError::file("list", &folder))?.count() + 1;
        let java = &setting.plan.java;
        let look = JavaLook {
            sampling: java.sampling,
            follow: java.follow.clone(),
            follow_at_least: java.follow_at_least,
            follow_every: java.follow_every,
            follow_at_most: java.follow_at_most,
            heap_limit: java
                .heap_limit
                .map(|percent| (percent, (java.heap_dump == HeapDump::HeapLimit).then(|| folder.clone()))),
            heap_dump: (java.heap_dump == HeapDump::OutOfMemory).then(|| folder.clone()),
        };
        Ok(Self { folder, frames: setting.session.frames(), number, look, agent: java.agent })
    }

    /// The agent's options, and the option of a virtual machine that loads it with them.
    fn options(
        &self,
        around: &Surroundings<'_>,
        label: &Label,
        change: impl FnOnce(&mut AgentOptions),
    ) -> Result<(AgentOptions, OsString), ExpectedError> {
        let mut options = AgentOptions::of_java(&self.frames, around.jars.unwrap_or(Path::new("")));
        options.label = label.to_text();
        // Objects are followed in the build's own run alone, and the heap is watched there.
        options.look = Some(JavaLook { follow: Vec::new(), heap_limit: None, ..self.look.clone() });
        change(&mut options);
        let path = self.folder.join(format!("{:04}.options", self.number));
        java::write_options(&path, &options).map_err(ExpectedError::file("write", &path))?;
        let option = java::agent_option(around.agent, &path).map_err(|why| failed(&why))?;
        Ok((options, option))
    }

    /// Writes what is for our eyes only.
    fn write(&self, kind: &str, text: &str) -> Result<PathBuf, ExpectedError> {
        let path = self.folder.join(format!("{:04}.{kind}", self.number));
        java::write_private(&path, text.as_bytes()).map_err(ExpectedError::file("write", &path))?;
        Ok(path)
    }

    /// The launcher, like `worker`, with a plan: with the agent in it, or somebody who speaks for
    /// it. `native`: the agent is preloaded as well.
    fn launcher(
        &self,
        around: &Surroundings<'_>,
        (worker, native): (Worker<'_>, bool),
        (options, option): (&AgentOptions, &OsStr),
        plan: &str,
    ) -> Result<Ours, ExpectedError> {
        let plan = self.write("plan", plan)?;
        let jar = |name: &str| around.jars.unwrap_or(Path::new("")).join(name);
        let (speaker, ours, jars) = match self.agent {
            JavaAgent::Loaded => (None, vec![option.to_string_lossy().into_owned()], vec![jar(LAUNCHER_JAR)]),
            JavaAgent::None => {
                let speaker = Agentless::listen(agentless::Settings {
                    frames: self.frames.clone(),
                    label: options.label.clone(),
                    executable: Path::new(&worker.jvm.home).join("bin/java").display().to_string(),
                    directory: worker.hello.working_directory.clone(),
                    wait: options.wait,
                })
                .map_err(|why| failed(&why))?;
                let ours = vec![agentless::OPTION.to_owned(), agentless::property(&speaker.socket())];
                (Some(speaker), ours, [LAUNCHER_JAR, LISTENER_JAR, HOOKS_JAR].map(jar).to_vec())
            }
        };
        let file = self.folder.join(format!("{:04}.arguments", self.number));
        let mut again = junit::launcher(worker, &ours, &jars, &plan, &file);
        if native {
            preloaded(&mut again.launch, around, options);
        }
        let file = Temporary(self.write("arguments", &again.options)?);
        Ok(Ours { launch: super::confirm::silent(again.launch), _arguments: file, speaker })
    }
}

/// Preloads the agent into a virtual machine that loads it as well. Where the path cannot be
/// preloaded, Java's side is measured all the same.
fn preloaded(launch: &mut Launch, around: &Surroundings<'_>, options: &AgentOptions) {
    let existing = launch.environment.get(OsStr::new(PRELOAD_VARIABLE));
    match preload(around.agent, existing.as_deref()) {
        Ok(value) => {
            // The agent compares with what /proc/self/exe says.
            let program = fs::canonicalize(&launch.program).unwrap_or_else(|_| launch.program.clone());
            let options = AgentOptions { targets: vec![Target::Executable(program)], ..options.clone() };
            launch.environment.set(PRELOAD_VARIABLE.into(), value);
            launch.environment.set(OPTIONS_VARIABLE.into(), options.to_env());
        }
        Err(why) => around.console.warning(&format!("native memory is not judged: failed to {why}")),
    }
}

/// Ends what spoke for a launcher; what it could not do is in the answer.
fn silenced(speaker: Option<Agentless>) -> Result<(), AgentlessError> {
    speaker.map_or(Ok(()), Agentless::end)
}

/// A file that is removed in the end: it holds system properties of the build, which may be secret.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be removed is still for our eyes only.
        drop(fs::remove_file(&self.0));
    }
}

/// A test class, with those of its tests that the build ran.
fn whole_class((class, tests): &(String, Vec<String>)) -> Selection {
    Selection::class(class, tests)
}

fn failed(why: &dyn std::error::Error) -> ExpectedError {
    ExpectedError::Machinery { what: format!("failed to {}", chain(why)), hint: String::new() }
}
