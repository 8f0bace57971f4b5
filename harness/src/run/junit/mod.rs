//! JUnit suites: the build runs as it always does, then memgate runs the same tests in virtual machines of its own.
//!
//! Data flow: the build's own run with the agent in every virtual machine that tests ([`screen`]) → workers, grouped into suites →
//! [`windows`] (which test classes left more than an accepted run) → [`rounds`] (all test classes, six times over in one virtual machine) → suspect classes → [`confirm`] (a class, then its tests, each
//! repeated alone) → facts of the suite. What runs, and with which options of the agent, stands in files of the session.

mod repeat;
mod rounds;
mod windows;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memgate_analysis::{ClassWindow, JavaSuspect, class_windows};
use memgate_config::{HeapDump, Screen};
use memgate_model::BoundaryQuality;
use memgate_wire::java::JvmInfo;

pub(super) use self::repeat::confirm;
use super::board::{Clocked, Finished};
use super::facts::{Facts, JavaFacts, ProcessFacts, SuiteFacts};
use super::label::Label;
use super::screen::{self, Screened, Setting, ran_tests};
use super::supervise::{Done, Job, Stopped, Surroundings, supervise};
use super::watch::Settle;
use super::{naming, problem};
use crate::device::java::{self, TOOL_OPTIONS};
use crate::device::local::{Exit, Launch};
use crate::device::{AgentOptions, JavaLook};
use crate::embedded::LAUNCHER_JAR;
use crate::exit::ExpectedError;
use crate::output::Progress;
use crate::plan::PlannedSuite;
use crate::recorder::chain;
use crate::suite::junit::{self, JvmSuiteId, Selection, Worker};

/// Folder of plans and options in the session.
const FOLDER: &str = "java";

/// How the tests of a JVM suite run again.
#[derive(Debug)]
pub(super) struct JavaSuite {
    /// What the build's virtual machines had in their environment because of us.
    our_option: OsString,
    /// Its tests by class, both in the order they ran.
    classes: Vec<(String, Vec<String>)>,
    /// What the windows of the build's own run left.
    windows: Vec<ClassWindow>,
    /// Classes that grew in the rounds.
    suspects: Vec<JavaSuspect>,
    /// The processes of the rounds.
    pub(super) rounds: Vec<Finished>,
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
    let (options, our_option) = files.options(around, &label, |options| {
        options.windows = windows;
        options.look = Some(files.look.clone());
    })?;
    let launch = with_agent(&files, filtered(setting, planned)?, &our_option)?;
    let job = Job {
        launch,
        options,
        preload: false,
        orders: Box::new(|_| Box::new(Settle::new(false))),
        clocked: Clocked::Test,
        timeout: planned.timeout,
    };
    let mut progress = Progress::beside_tests(around.console, "screening", None);
    let mut done =
        supervise(around, job, &mut |board| progress.update(board.tests(), &board.status())).await?;
    drop(progress);
    facts.command_ended(screen::status(done.ended.exit));
    facts.errors.extend(done.problems.drain(..).map(|what| problem("recorder", what, "")));
    if done.finished.is_empty() {
        facts.errors.push(nothing_seen(planned, done.ended.exit));
        return Ok(Vec::new());
    }
    let mut suites = suites(planned, &our_option, done);
    let mut kept = BTreeMap::new();
    for suite in &mut suites {
        rounds::rounds(around, setting, suite).await?;
        let java = suite.java.as_ref().filter(|_| setting.plan.screen != Screen::Off);
        kept.extend(
            java.map(|java| (suite.facts.name.clone(), windows::to_accept(setting, &suite.facts.name, java))),
        );
    }
    windows::keep(setting.session, &kept)?;
    Ok(suites)
}

/// The command, and the way of the agent into the virtual machines it starts: the environment, or for Gradle an init script. A daemon
/// keeps the environment it was started with, be it ours or not.
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
    let hint = "were its tests up to date, or skipped? Surefire with forkCount=0 tests in Maven itself, which is not measured; \
                HotSpot 17 or later is needed";
    problem(&name, what, hint)
}

/// Groups the virtual machines that ran tests.
fn suites(planned: &PlannedSuite, our_option: &OsStr, done: Done) -> Vec<Screened> {
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
        suite(planned, our_option, name, processes, elapsed)
    };
    names.into_iter().zip(groups).map(suite).collect()
}

fn suite(
    planned: &PlannedSuite,
    our_option: &OsStr,
    name: String,
    processes: Vec<Finished>,
    elapsed: Duration,
) -> Screened {
    let mut problems = Vec::new();
    let classes = classes(&processes);
    if classes.is_empty() {
        problems.push(problem(&name, "it ran no test whose boundaries could be seen".to_owned(), ""));
    }
    let facts = SuiteFacts {
        runner: "junit".to_owned(),
        boundary: BoundaryQuality::Class,
        screened_s: elapsed.as_secs_f64(),
        screen: processes.iter().map(ProcessFacts::of).collect(),
        java: Some(JavaFacts::default()),
        confirmations: BTreeMap::new(),
        problems,
        name,
    };
    let java = JavaSuite {
        our_option: our_option.to_owned(),
        classes,
        windows: processes.iter().flat_map(|process| class_windows(&process.record)).collect(),
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

/// Test classes with their tests, in the order they ran.
fn classes(processes: &[Finished]) -> Vec<(String, Vec<String>)> {
    let mut classes: Vec<(String, Vec<String>)> = Vec::new();
    let windows = processes.iter().flat_map(|process| &process.record.windows);
    for window in windows.filter(|window| !window.suite.is_empty() && !window.test.is_empty()) {
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

/// Plans and options in the session, numbered: a virtual machine that comes late still finds its own.
struct Files {
    folder: PathBuf,
    frames: PathBuf,
    number: usize,
    /// What is looked at beside the heap's classes.
    look: JavaLook,
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
            heap_dump: (java.heap_dump == HeapDump::OutOfMemory).then(|| folder.clone()),
        };
        Ok(Self { folder, frames: setting.session.frames(), number, look })
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
        // Objects are followed in the build's own run alone.
        options.look = Some(JavaLook { follow: Vec::new(), ..self.look.clone() });
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

    /// The launcher, like `worker`, with a plan; and the file that has to be there as long as it runs.
    fn launcher(
        &self,
        around: &Surroundings<'_>,
        worker: Worker<'_>,
        option: &OsStr,
        plan: &str,
    ) -> Result<(Launch, Temporary), ExpectedError> {
        let plan = self.write("plan", plan)?;
        let jar = around.jars.unwrap_or(Path::new("")).join(LAUNCHER_JAR);
        let file = self.folder.join(format!("{:04}.arguments", self.number));
        let again = junit::launcher(worker, option, &jar, &plan, &file);
        let file = Temporary(self.write("arguments", &again.options)?);
        Ok((super::confirm::silent(again.launch), file))
    }
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
