//! JUnit suites: the build runs as it always does, then memgate runs the same tests in virtual
//! machines of its own.
//!
//! Data flow: the build's own run with the agent in every virtual machine that runs tests ([`screen`]) → workers,
//! grouped into suites, compared with the results that the build wrote ([`results`]) → suites that load native
//! libraries of their own: native memory is judged too ([`choose_native`]) → [`windows`] (test classes that left more
//! than an accepted run) → [`rounds`] (all test classes, several times in one virtual machine) → suspect classes →
//! [`repeat`] (a class, then its tests, each repeated alone) → facts of the suite. Files of the session contain what
//! runs, and the options of the agent.

mod hunt;
mod observed;
mod ours;
mod process;
mod repeat;
mod results;
mod rounds;
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use memgate_analysis::{ProcessRecord, Window, class_windows, own_libraries};
use memgate_config::{JavaAgent, JavaNative, MeasureJava, Screen};
use memgate_launch::Exit;
use memgate_model::Problem;
use memgate_wire::Outcome;

use self::observed::Lookout;
pub(super) use self::ours::Junit;
use self::ours::{Files, jvm, with_agent};
pub(super) use self::process::screen as screen_program;
pub(super) use self::results::root;
use super::framework::{Framework, Ran, Share, Suite, Unit};
use super::java::{Classes, by_class, is_test};
use crate::agent::look;
use crate::exit::ExpectedError;
use crate::output::{Console, Progress};
use crate::plan::PlannedSuite;
use crate::run::engine::{
    Clocked, Context, Done, Finished, Job, Limit, RunState, Stopped, launch, ran_tests, status, supervise,
    typed,
};
use crate::run::heap;
use crate::session::facts::{Facts, JavaFacts, Kind, problem};
use crate::session::label::Label;
use crate::session::naming;
use crate::suite::junit::{self, Configured, JvmSuiteId, configurations};

impl Framework for Junit {
    const HUNTS_CLASSES: bool = true;

    async fn confirm(
        context: &mut Context<'_>,
        suites: Vec<(&mut Suite, &mut Self)>,
    ) -> Result<Vec<Finished>, Stopped> {
        let mut finished = Vec::new();
        for (suite, junit) in suites {
            repeat::confirm(context, suite, junit, &mut finished).await?;
            finished.append(&mut junit.rounds);
        }
        Ok(finished)
    }

    fn candidates(&self, context: &Context<'_>, suite: &Suite) -> Result<Vec<Unit>, String> {
        hunt::candidates(context, suite, self)
    }

    async fn hunt(
        &mut self,
        context: &mut Context<'_>,
        suite: &mut Suite,
        unit: &Unit,
        share: Share,
        finished: &mut Vec<Finished>,
        show: &mut dyn FnMut(&RunState),
    ) -> Result<Ran, Stopped> {
        hunt::of_class(context, suite, self, &unit.id, share, finished, show).await
    }
}

/// The build's own run, and the rounds of every suite in it.
pub(super) async fn screen(
    context: &mut Context<'_>,
    (planned, modules): (&PlannedSuite, &[PathBuf]),
    facts: &mut Facts,
) -> Result<Vec<(Suite, Junit)>, Stopped> {
    let files = Files::new(context)?;
    let since = SystemTime::now();
    let (done, our_option) = build(context, &files, planned, facts).await?;
    let root = results::root(planned);
    let (found, problems) = results::modules(&root, since);
    if done.finished.is_empty() {
        // All classes of this shard may contain no tests: then no virtual machine ran tests.
        let is_clear = done.ended.exit.is_success() && found.is_empty() && problems.is_empty();
        if context.this_shard.is_none() || !is_clear {
            let (name, filter) = (planned.name.as_deref(), context.plan.filter.as_deref());
            // A build that wrote results ran its tests elsewhere.
            let failed = found.is_empty() && !done.ended.exit.is_success();
            facts.errors.push(nothing_seen((&typed(planned), name), (done.ended.exit, failed), filter));
            facts.errors.extend(results::on_devices(&root, &found));
        }
        return Ok(Vec::new());
    }
    let kind = match context.plan.java.agent {
        JavaAgent::Loaded => Kind::Junit,
        JavaAgent::None => Kind::JunitObserved,
    };
    let is_shard = context.this_shard.is_some();
    let mut suites = suites(context.console, (planned, modules), (&our_option, kind), done, is_shard);
    let filter = context.plan.filter.as_deref();
    let began = |suite: &Suite| suite.processes.iter().any(|process| began_any(&process.record));
    for (suite, _) in suites.iter_mut().filter(|(suite, _)| !began(suite)) {
        let problem = no_test(&suite.facts.name, filter);
        suite.facts.problems.push(problem);
    }
    // Without the agent, the same files were already read.
    let problems = problems.into_iter().filter(|_| kind == Kind::Junit);
    facts.errors.extend(problems.map(|what| problem("test results", what, "")));
    let measured = suites.iter().flat_map(|(suite, _)| &suite.processes);
    facts.errors.extend(results::unmeasured(&root, &found, measured));
    let mut kept = BTreeMap::new();
    for (suite, junit) in &mut suites {
        let of_suite = (suite.facts.name.as_str(), suite.processes.as_slice());
        suite.facts.heap = heap::look(context, files.folder(), planned.heap.as_ref(), of_suite)?;
        choose_native(context, suite, junit);
        rounds::rounds(context, suite, junit).await?;
        if context.plan.screen != Screen::Off {
            let name = suite.facts.name.clone();
            let breaking = suite.facts.java.as_ref().map(|java| &java.breaking);
            let mut windows = windows::to_accept(context, &name, junit);
            windows
                .retain(|w| !w.classes.iter().any(|class| breaking.is_some_and(|b| b.contains_key(class))));
            kept.insert(name, windows);
        }
    }
    windows::keep(context.session, &kept)?;
    Ok(suites)
}

/// Runs the command as the user would; returns the recordings of its virtual machines, and the option that loads the
/// agent into them.
async fn build(
    context: &mut Context<'_>,
    files: &Files,
    planned: &PlannedSuite,
    facts: &mut Facts,
) -> Result<(Done, OsString), Stopped> {
    let label = Label::Screen { suite: planned.name.clone().unwrap_or_default() };
    let windows = windows::where_to_measure(context.plan, |list| files.write("windows", list))?;
    let suite = planned.name.as_deref().unwrap_or_default();
    let java = &context.plan.java;
    let follow = context.names.renamed(suite, java.follow.clone());
    let (options, our_option) = files.options(context, &label, |options| {
        options.windows = windows;
        look(options, java, follow);
        files.watch_heap(options, java);
        files.dump_heap(options, planned.heap.as_ref());
    })?;
    let planned_now = filtered(context, files, planned)?;
    let launch = match context.plan.java.agent {
        JavaAgent::Loaded => with_agent(files, planned_now, &our_option)?,
        JavaAgent::None => launch(&planned_now, None),
    };
    let lookout = match context.plan.java.agent {
        JavaAgent::Loaded => None,
        JavaAgent::None => Some(Lookout::begin().map_err(|why| ExpectedError::failed(&why))?),
    };
    let job = Job::new(launch, options, Clocked::Test, Limit::Tells(planned.timeout)).loaded();
    let mut progress = Progress::beside_tests(context.console, "screening", None);
    let mut done =
        supervise(context, job, &mut |state| progress.update(state.tests(), &state.status())).await?;
    drop(progress);
    facts.command_ended(status(done.ended.exit));
    facts.errors.extend(done.problems.drain(..).map(|what| problem("recorder", what, "")));
    if let Some(lookout) = lookout {
        let frames = context.session.frames();
        let (seen, problems) =
            lookout.end(&frames, &label.to_text()).map_err(|why| ExpectedError::failed(&why))?;
        facts.errors.extend(problems.into_iter().map(|what| problem("test results", what, "")));
        done.finished.extend(seen);
    }
    Ok((done, our_option))
}

/// Whether native memory of this suite is judged.
fn choose_native(context: &Context<'_>, suite: &mut Suite, junit: &mut Junit) {
    let loaded: BTreeSet<&str> =
        suite.processes.iter().flat_map(|process| own_libraries(&process.record)).collect();
    let MeasureJava { agent, native, .. } = &context.plan.java;
    junit.native = match native {
        _ if *agent == JavaAgent::None => false,
        JavaNative::Auto => !loaded.is_empty(),
        JavaNative::On => true,
        JavaNative::Off => false,
    };
    suite.facts.java.get_or_insert_with(JavaFacts::default).native_is_off = *native == JavaNative::Off;
    let shown: Vec<&str> = loaded.iter().map(|path| path.rsplit('/').next().unwrap_or(path)).collect();
    if junit.native && !shown.is_empty() {
        context.console.line(&format!(
            "{}: native memory is judged too, of {}",
            suite.facts.name,
            shown.join(", ")
        ));
    }
}

/// The command with the requested filter.
fn filtered(
    context: &Context<'_>,
    files: &Files,
    planned: &PlannedSuite,
) -> Result<PlannedSuite, ExpectedError> {
    let Some(filter) = &context.plan.filter else { return Ok(planned.clone()) };
    let usage = |why: String| ExpectedError::Usage { what: format!("failed to {why}"), hint: String::new() };
    let command = if junit::is_gradle(&planned.command) {
        let script = files.write("filter.gradle", &junit::gradle_selects(filter))?;
        junit::with_gradle_script(&planned.command, &script)
    } else {
        junit::filtered(&planned.command, filter).map_err(usage)?
    };
    Ok(PlannedSuite { command, ..planned.clone() })
}

/// `failed`: the command failed, maybe before its tests.
fn nothing_seen(
    (typed, name): (&str, Option<&str>),
    (exit, failed): (Exit, bool),
    filter: Option<&str>,
) -> Problem {
    let name = name.unwrap_or(typed);
    let what = format!("not measured: no Java virtual machine below `{typed}` ran JUnit tests ({exit})");
    if let Some(filter) = filter {
        return problem(
            name,
            what,
            &format!("does the filter {filter:?} select one of its classes or methods?"),
        );
    }
    let hint = if junit::is_java(typed) {
        "a Java program without JUnit is the test as a whole: name the argument that repeats its work, as {n}, so that what each repetition \
         leaves can be told; HotSpot 17 or later is needed"
    } else if failed {
        "did it fail before its tests? its own output says why"
    } else {
        "were its tests up to date, or skipped? Surefire with forkCount=0 tests in Maven itself, which is not measured; \
         HotSpot 17 or later is needed"
    };
    problem(name, what, hint)
}

/// Groups the virtual machines that ran tests.
fn suites(
    console: &Console,
    (planned, modules): (&PlannedSuite, &[PathBuf]),
    (our_option, kind): (&OsStr, Kind),
    done: Done,
    is_shard: bool,
) -> Vec<(Suite, Junit)> {
    let Done { finished, elapsed, .. } = done;
    let id = |process: &Finished| match jvm(process) {
        Some(jvm) => JvmSuiteId::of(process.hello(), jvm),
        None => JvmSuiteId::of_folder(process.hello().working_directory.clone()),
    };
    let of_suites = finished.into_iter().filter(Finished::is_main);
    let mut groups = naming::grouped(of_suites.map(|process| (id(&process), process)));
    // Drops workers without tests if other workers, perhaps in other shards, have tests.
    let idle =
        |processes: &[Finished]| processes.iter().all(|p| !ran_tests(&p.record) && p.hello().blind.is_none());
    if is_shard || groups.iter().any(|(_, processes)| !idle(processes)) {
        groups.retain(|(_, processes)| !idle(processes));
    }
    let groups: Vec<(JvmSuiteId, Configured<Finished>)> = groups.into_iter().flat_map(configured).collect();
    let mut ids: Vec<JvmSuiteId> = groups.iter().map(|(id, _)| id.clone()).collect();
    // Modules whose tests run in other shards, or that a filter leaves out, affect the names of these.
    let folders: BTreeSet<PathBuf> = ids.iter().map(|id| PathBuf::from(&id.directory)).collect();
    let elsewhere = modules.iter().filter(|module| !folders.contains(*module));
    ids.extend(elsewhere.map(|module| JvmSuiteId::of_folder(module.to_string_lossy().into_owned())));
    let names = naming::jvm_suite_names(planned.name.as_deref(), &ids);
    let suite =
        |(name, (_, Configured { others, workers })): (String, (JvmSuiteId, Configured<Finished>))| {
            if !others.is_empty() {
                console.line(&format!("{name} ran with other values of {}", others.join(", ")));
            }
            suite(planned, our_option, kind, (name, workers), elapsed)
        };
    names.into_iter().zip(groups).map(suite).collect()
}

/// The configurations in which the build ran tests of one class path.
fn configured((id, processes): (JvmSuiteId, Vec<Finished>)) -> Vec<(JvmSuiteId, Configured<Finished>)> {
    let of = |process: Finished| (naming::configuration(&process.record), process);
    let found = configurations(processes.into_iter().map(of).collect());
    found.into_iter().map(|configured| (id.clone(), configured)).collect()
}

fn suite(
    planned: &PlannedSuite,
    our_option: &OsStr,
    kind: Kind,
    (name, processes): (String, Vec<Finished>),
    elapsed: Duration,
) -> (Suite, Junit) {
    let junit = Junit {
        our_option: our_option.to_owned(),
        classes: classes(&processes),
        windows: processes.iter().flat_map(|process| class_windows(&process.record)).collect(),
        native: false,
        suspects: Vec::new(),
        rounds: Vec::new(),
    };
    (Suite::new(kind, name, processes, (elapsed, planned.timeout)), junit)
}

/// A test that did not end has an error of its own.
fn began_any(record: &ProcessRecord) -> bool {
    record.windows.iter().chain(record.open.iter().map(|open| &open.window)).any(is_test)
}

fn no_test(suite: &str, filter: Option<&str>) -> Problem {
    let what = match filter {
        Some(filter) => format!("the filter {filter:?} selects none of its classes and methods"),
        None => "it ran no test of JUnit; below Maven, JUnit 5 needs Surefire 2.22 or later, and TestNG Surefire 3.6"
            .to_owned(),
    };
    problem(suite, what, "")
}

/// Test classes with their tests, in the order they ran. Tests whose last execution failed are left out: a class with
/// one could not be repeated.
fn classes(processes: &[Finished]) -> Classes {
    let windows = || processes.iter().flat_map(|process| &process.record.windows).filter(|w| is_test(w));
    let name = |window: &Window| (window.suite.clone(), window.test.clone());
    let mut last = BTreeMap::<(String, String), &Window>::new();
    for window in windows() {
        let known = last.entry(name(window)).or_insert(window);
        if window.end_ns >= known.end_ns {
            *known = window;
        }
    }
    by_class(windows().filter(|w| last.get(&name(w)).is_none_or(|l| l.outcome != Some(Outcome::Failed))))
}

#[cfg(test)]
mod tests {
    use memgate_analysis::OpenTest;

    use super::*;

    #[test]
    fn a_build_that_fails_before_its_tests_is_not_asked_whether_they_were_up_to_date() {
        let hint = |exit| nothing_seen(("mvn test", None), (Exit::Code(exit), exit != 0), None).hint;
        assert_eq!(hint(1), "did it fail before its tests? its own output says why");
        assert!(hint(0).contains("up to date"), "{}", hint(0));
    }

    #[test]
    fn a_suite_whose_test_did_not_end_began_tests() {
        let mut record = ProcessRecord::default();
        assert!(!began_any(&record));
        let window = Window { suite: "a.B".to_owned(), test: "exits".to_owned(), ..Window::default() };
        record.open.push(OpenTest { id: "a.B.exits".to_owned(), window });
        assert!(began_any(&record));
    }
}
