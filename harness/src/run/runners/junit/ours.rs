//! Our own virtual machines: how the tests of a suite run again, with the plans, options and files that they need in
//! the session.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use memgate_analysis::{ClassWindow, JavaSuspect, base_of, left_out};
use memgate_config::{HeapDump, HeapTime, JavaAgent, MeasureJava, SuiteHeap};
use memgate_launch::Launch;
use memgate_wire::java::JvmInfo;
use memgate_wire::options::{Options, Target};
use rustix::fs::{FlockOperation, fcntl_lock};

use crate::agent::embedded::{HOOKS_JAR, LAUNCHER_JAR, LISTENER_JAR};
use crate::agent::{OPTIONS_VARIABLE, PRELOAD_VARIABLE, look, of_java, preload, text};
use crate::exit::ExpectedError;
use crate::hotspot::agentless::{self, Agentless, AgentlessError};
use crate::hotspot::options::{self as loading, TOOL_OPTIONS};
use crate::plan::PlannedSuite;
use crate::run::engine::{Context, Finished, launch, silent};
use crate::run::runners::framework::Suite;
use crate::run::runners::java::Classes;
use crate::session::label::Label;
use crate::suite::junit::{self, Selection, Worker};

/// Folder of plans and options in the session.
const FOLDER: &str = "java";
/// A window of ours may always take this multiple of the build's time (`BUILDS`). Its maximum is `MOST_BUILDS` times
/// the build's time, or the time limit of one test if that is longer.
const BUILDS: u32 = 4;
const MOST_BUILDS: u32 = 20;
/// How long our own virtual machine waits for us at a boundary: our reply decides the verdict, however busy the machine
/// is. This is the longest wait that the agent allows.
pub(super) const WAIT: Duration = Duration::from_secs(60);

/// How the tests of a JVM suite run again.
#[derive(Debug)]
pub(in crate::run::runners) struct Junit {
    /// The option of ours in the environment of the build's virtual machines.
    pub(super) our_option: OsString,
    /// Its tests by class, both in the order they ran.
    pub(super) classes: Classes,
    /// The survivors of the windows in the build's own run.
    pub(super) windows: Vec<ClassWindow>,
    /// The agent is preloaded in repeated runs: native memory of libraries outside the JDK is judged.
    pub(super) native: bool,
    /// Classes that grew in the rounds.
    pub(super) suspects: Vec<JavaSuspect>,
    /// The processes of the rounds.
    pub(super) rounds: Vec<Finished>,
}

impl Junit {
    /// Removes tests that failed in the rounds and were left out there: they are not confirmed either.
    pub(super) fn leave_out_failed(&mut self) {
        let failed: BTreeSet<(String, String)> =
            self.rounds.iter().flat_map(|process| left_out(&process.record)).collect();
        for (class, tests) in &mut self.classes {
            tests.retain(|test| !failed.contains(&(class.clone(), base_of(test).to_owned())));
        }
    }
}

/// A launcher about to be started, with the files it needs while it runs.
pub(super) struct Ours {
    pub(super) launch: Launch,
    _arguments: Temporary,
    _alive: Option<Alive>,
    /// Records for the launcher if it has no agent.
    pub(super) speaker: Option<Agentless>,
}

/// The command, with the agent for the virtual machines that it starts: through the environment, or for Gradle through
/// an init script. A Gradle daemon keeps the environment it was started with, ours or not.
pub(super) fn with_agent(
    files: &Files,
    mut planned: PlannedSuite,
    our_option: &OsStr,
) -> Result<Launch, ExpectedError> {
    if junit::is_gradle(&planned.command) {
        let options = loading::with_option(None, our_option).map_err(|why| ExpectedError::failed(&why))?;
        let script = files.write("gradle", &junit::gradle_script(&options.to_string_lossy()))?;
        planned.command = junit::with_gradle_script(&planned.command, &script);
        return Ok(launch(&planned, None));
    }
    let mut launch = launch(&planned, None);
    let existing = launch.environment.get(OsStr::new(TOOL_OPTIONS));
    let value =
        loading::with_option(existing.as_deref(), our_option).map_err(|why| ExpectedError::failed(&why))?;
    launch.environment.set(TOOL_OPTIONS.into(), value);
    Ok(launch)
}

/// Time limit for `tests` tests of a suite in our own virtual machine, including its start: the sum of their own
/// limits. It has a maximum (`MOST_BUILDS`), so that a class with hundreds of tests does not hang for hours. It is at
/// least `BUILDS` times the whole build's time, because the machine may be busy.
pub(super) fn patience(suite: &Suite, tests: usize) -> Duration {
    patience_of(suite.timeout, suite.facts.screened_s, tests)
}

fn patience_of(timeout: Duration, screened_s: f64, tests: usize) -> Duration {
    let each = timeout.saturating_mul(u32::try_from(tests).unwrap_or(u32::MAX));
    let build = Duration::try_from_secs_f64(screened_s.ceil()).unwrap_or_default();
    let most = timeout.max(build.saturating_mul(MOST_BUILDS));
    each.min(most).max(build.saturating_mul(BUILDS))
}

pub(super) fn jvm(process: &Finished) -> Option<&JvmInfo> {
    process.record.java.as_ref()?.jvm.as_ref()
}

/// The virtual machine of a suite to start again, or why there is none.
pub(super) fn worker<'a>(suite: &'a Suite, junit: &'a Junit) -> Result<Worker<'a>, String> {
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
    Ok(Worker {
        hello: process.hello(),
        jvm,
        environment,
        our_option: &junit.our_option,
        native: junit.native,
    })
}

/// Plans and options in the session, numbered: a virtual machine that starts late still finds its own.
pub(super) struct Files {
    folder: PathBuf,
    frames: PathBuf,
    number: usize,
    agent: JavaAgent,
}

impl Files {
    pub(super) fn new(context: &Context<'_>) -> Result<Self, ExpectedError> {
        let folder = context.session.folder().join(FOLDER);
        fs::create_dir_all(&folder).map_err(ExpectedError::file("create", &folder))?;
        let number = fs::read_dir(&folder).map_err(ExpectedError::file("list", &folder))?.count() + 1;
        Ok(Self { folder, frames: context.session.frames(), number, agent: context.plan.java.agent })
    }

    /// The agent's options, and the virtual machine option that loads the agent with them.
    pub(super) fn options(
        &self,
        context: &Context<'_>,
        label: &Label,
        change: impl FnOnce(&mut Options),
    ) -> Result<(Options, OsString), ExpectedError> {
        let mut options = of_java(&self.frames, context.jars.unwrap_or(Path::new("")));
        options.label = label.to_text();
        // Only in the build's own run are objects followed and the heap watched.
        let java = &context.plan.java;
        look(&mut options, java, Vec::new());
        if java.heap_dump == HeapDump::OutOfMemory {
            options.heap_dump = text(&self.folder);
        }
        change(&mut options);
        let path = self.folder.join(format!("{:04}.options", self.number));
        loading::write_options(&path, &options).map_err(ExpectedError::file("write", &path))?;
        let option =
            loading::agent_option(context.agent, &path).map_err(|why| ExpectedError::failed(&why))?;
        Ok((options, option))
    }

    /// Reports a heap that is nearly full, and dumps it if requested.
    pub(super) fn watch_heap(&self, options: &mut Options, java: &MeasureJava) {
        options.heap_limit = java.heap_limit.map(u64::from);
        if java.heap_limit.is_some() && java.heap_dump == HeapDump::HeapLimit {
            options.heap_limit_dump = text(&self.folder);
        }
    }

    /// Sets the heap dump that the suite requests, for the build's own run.
    pub(super) fn dump_heap(&self, options: &mut Options, heap: Option<&SuiteHeap>) {
        match heap.map(|heap| heap.at) {
            Some(HeapTime::SuiteEnd) => options.end_dump = text(&self.folder),
            Some(HeapTime::TestFailed) => options.failed_dump = text(&self.folder),
            Some(HeapTime::OutOfMemory) => options.heap_dump = text(&self.folder),
            Some(HeapTime::Limit) => options.heap_limit_dump = text(&self.folder),
            None => {}
        }
    }

    /// Folder of the dumps.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a file that only we can read.
    pub(super) fn write(&self, kind: &str, text: &str) -> Result<PathBuf, ExpectedError> {
        let path = self.folder.join(format!("{:04}.{kind}", self.number));
        loading::write_private(&path, text.as_bytes()).map_err(ExpectedError::file("write", &path))?;
        Ok(path)
    }

    /// The launcher, like `worker`, with a plan. Either it contains the agent, or a speaker records for it.
    pub(super) fn launcher(
        &self,
        context: &Context<'_>,
        worker: Worker<'_>,
        (options, option): (&Options, &OsStr),
        plan: &str,
    ) -> Result<Ours, ExpectedError> {
        let alive = Alive::at(self.write("alive", "")?);
        let with = alive.as_ref().map(|alive| format!("with {}\n", alive.file.0.display()));
        let plan = self.write("plan", &format!("{}{plan}", with.unwrap_or_default()))?;
        let jar = |name: &str| context.jars.unwrap_or(Path::new("")).join(name);
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
                .map_err(|why| ExpectedError::failed(&why))?;
                let ours = vec![agentless::OPTION.to_owned(), agentless::property(&speaker.socket())];
                (Some(speaker), ours, [LAUNCHER_JAR, LISTENER_JAR, HOOKS_JAR].map(jar).to_vec())
            }
        };
        let file = self.folder.join(format!("{:04}.arguments", self.number));
        let mut again = junit::launcher(worker, &ours, &jars, &plan, &file);
        if worker.native {
            preloaded(&mut again.launch, context, options);
        }
        let file = Temporary(self.write("arguments", &again.options)?);
        Ok(Ours { launch: silent(again.launch), _arguments: file, _alive: alive, speaker })
    }
}

/// Preloads the agent into a virtual machine that also loads it. If that fails, the Java side is still measured.
fn preloaded(launch: &mut Launch, context: &Context<'_>, options: &Options) {
    let existing = launch.environment.get(OsStr::new(PRELOAD_VARIABLE));
    match preload(context.agent, existing.as_deref()) {
        Ok(value) => {
            // The agent compares the path with /proc/self/exe.
            let program = fs::canonicalize(&launch.program).unwrap_or_else(|_| launch.program.clone());
            let options = Options { targets: vec![Target::Executable(text(&program))], ..options.clone() };
            launch.environment.set(PRELOAD_VARIABLE.into(), value);
            launch.environment.set(OPTIONS_VARIABLE.into(), options.to_string().into());
        }
        Err(why) => context.console.warning(&format!("native memory is not judged: failed to {why}")),
    }
}

/// Ends the speaker of a launcher; its errors are in the result.
pub(super) fn silenced(speaker: Option<Agentless>) -> Result<(), AgentlessError> {
    speaker.map_or(Ok(()), Agentless::end)
}

/// A file that is removed at the end: it contains system properties of the build, which may be secret.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // If it cannot be removed, still only we can read it.
        drop(fs::remove_file(&self.0));
    }
}

/// A file that is locked as long as memgate lives, however it ends: the launcher waits for the lock, and ends when it
/// gets it. Nothing else may open the file here, because closing it would unlock it.
struct Alive {
    file: Temporary,
    _lock: File,
}

impl Alive {
    /// `None`: the file system has no locks.
    fn at(path: PathBuf) -> Option<Self> {
        let file = Temporary(path);
        let lock = File::options().write(true).open(&file.0).ok()?;
        fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Self { file, _lock: lock })
    }
}

/// A test class, with its tests that the build ran.
pub(super) fn whole_class((class, tests): &(String, Vec<String>)) -> Selection {
    Selection::class(class, tests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_may_take_as_long_as_its_tests_and_no_longer_than_the_build_many_times_over() {
        for (timeout_s, screened_s, tests, want) in [
            (60, 1.0, 1, 60),
            (60, 20.0, 1, 80),
            (60, 20.0, 3, 180),
            (60, 20.0, 500, 400),
            (60, 1.5, 500, 60),
            (2, 0.2, 2, 4),
        ] {
            let patience = patience_of(Duration::from_secs(timeout_s), screened_s, tests);
            assert_eq!(patience.as_secs(), want, "{timeout_s} s, {screened_s} s, {tests} tests");
        }
    }
}
