//! Runs the tests once, as they are: their results, and what the agent saw of them. The runner's results and the
//! agent's are compared, so that no test passes that was not measured.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use memgate_analysis::{ProcessRecord, SeenError, Window};
use memgate_formats::instrumentation::{Ending, Status, TestResult};
use memgate_model::{AppMemory, HeapCheck, format_number_of};
use memgate_wire::options::Detail;
use memgate_wire::{ErrorCode, Outcome};

use super::drive::Done;
use super::heap::SuiteDump;
use super::memory::Memory;
use super::on_device::{Broken, OnDevice, Run};
use crate::output::Progress;
use crate::run::engine::{Clocked, Context, Finished, RunState, Settle, Stopped};
use crate::run::runners::java::{Classes, by_class, is_test};
use crate::run::runners::missing;
use crate::session::label::Label;
use crate::suite::instrumentation::{Mode, Selection};

/// The result of the run.
#[derive(Default)]
pub(super) struct Once {
    pub(super) elapsed: Duration,
    /// Processes that were measured, in the order they began.
    pub(super) finished: Vec<Finished>,
    /// The tests that the agent saw, without those that failed.
    pub(super) seen: Classes,
    /// The classes of those that failed.
    pub(super) failing: BTreeSet<String>,
    /// Classes with a test that had another name when the runner listed it (a parameter without a name of its own).
    pub(super) unsteady: BTreeSet<String>,
    /// Whether a test failed, or the run as a whole.
    pub(super) failed: bool,
    /// Whether the tests that ran can be screened: the runner reached its end, with the agent inside.
    pub(super) complete: bool,
    /// Whether the runner has a result of each test that it listed, and reached its end.
    pub(super) whole: bool,
    /// Descriptions of everything that was not measured.
    pub(super) problems: Vec<String>,
    /// Failures that no test explains, though all ran.
    pub(super) failures: BTreeSet<String>,
    /// Android's answer about the app's memory.
    pub(super) memory: Option<AppMemory>,
    /// Checks of its heap dump.
    pub(super) heap: Vec<HeapCheck>,
}

/// Runs the tests; `named` are those that the runner listed.
pub(super) async fn once(
    context: &mut Context<'_>,
    suite: &mut OnDevice<'_>,
    named: &[Selection],
) -> Result<Once, Broken> {
    let console = context.console;
    let mut progress = Progress::beside_tests(console, "testing", Some(named.len() as u64));
    let memory = Memory::of_run(named.len());
    let mut show = |state: &RunState| progress.update(state.tests(), &state.status());
    let mut run = run(suite, Mode::Once, &memory);
    let heap = suite.planned.suite.heap.as_ref();
    let dump = heap.map(|heap| SuiteDump::of(context.session, &suite.name, heap)).transpose();
    let dump = dump.map_err(Stopped::from)?;
    if let Some(dump) = &dump {
        run.held = run.held.map(|asked| dump.order(suite, asked));
    }
    let (done, output) = suite.run(context, run, &mut show).await?;
    drop(progress);
    let heap = dump.map(|dump| dump.look(context, suite, &done.finished)).transpose();
    let heap = heap.map_err(Stopped::from)?.unwrap_or_default();
    let retraced = |trace: &str| context.names.retraced(&suite.planned.suite.name, trace);
    let named: BTreeSet<String> = named.iter().map(Selection::id).collect();
    let results = done.run.tests().to_vec();
    let mut once = look(done, &named, &suite.tried, &output);
    let of = (!once.whole).then_some(named.len());
    console.text(&shown(&results, of, retraced)).map_err(Stopped::from)?;
    once.heap = heap;
    once.memory = memory.tell(console, &suite.name, &once.finished);
    Ok(once)
}

/// A run of tests as they are.
pub(super) fn run(suite: &OnDevice<'_>, mode: Mode, memory: &Memory) -> Run<'static> {
    Run {
        mode,
        label: Label::Screen { suite: suite.name.clone() },
        detail: Detail::Survivors,
        orders: Box::new(|_| Box::new(Settle::new(false))),
        held: Some(memory.question(suite)),
        clocked: Clocked::Test,
        timeout: suite.planned.timeout,
        log: "run",
    }
}

/// Compares the runner's results with what the agent saw, for the tests that the runner listed (`named`). `tried`: the
/// ways in which the agent did not get into the app. `output`: where the runner's output is.
pub(super) fn look(done: Done, named: &BTreeSet<String>, tried: &[String], output: &str) -> Once {
    let tests = done.run.tests();
    let results: BTreeMap<String, Status> = tests.iter().map(|test| (id(test), test.status)).collect();
    let missing = missing(named, &results);
    let whole = done.incomplete().is_none() && missing.is_empty();
    let mut unmeasured = Unmeasured { of_all: done.problems.clone(), of_some: Vec::new() };
    if let Some(why) = done.incomplete() {
        unmeasured.ended_early(&done, &format!("{why} (what was printed: {output})"), &missing);
    } else {
        // The number of results may be right only because other tests have several, or unknown because a class has only
        // one.
        let what = match tests.len() > results.len() {
            true => "did not run, while others ran more than once",
            false => "did not run",
        };
        unmeasured.of_some.extend(missing::told(what, &missing).map(|what| not_measured(&what)));
    }
    unmeasured.of_all.extend(unseen_by_the_agent(&done, tried));
    let Repeatable { seen, failing } = Repeatable::of(done.finished.iter().map(|process| &process.record));
    let has_other_name = |class: &str, test: &String| !named.contains(&format!("{class}.{test}"));
    let unsteady = seen.iter().filter(|(class, tests)| tests.iter().any(|test| has_other_name(class, test)));
    let unsteady = unsteady.map(|(class, _)| class.clone()).collect();
    // If a test did not end because the device was lost, that is not the user's failure.
    let theirs = |test: &TestResult| {
        !test.status.is_good() && (test.status != Status::NotEnded || done.lost.is_none())
    };
    let failed = tests.iter().any(theirs) || failed_as_a_whole(&done.ending);
    let mut failures = BTreeSet::new();
    for (class, left) in failed_outside(named, tests) {
        let what =
            format!("{class} failed outside of its tests (@BeforeClass, @AfterClass or a rule of the class)");
        match left {
            0 => drop(failures.insert(what)),
            _ => unmeasured
                .of_some
                .push(not_measured(&format!("{what}, and {} did not run", format_number_of(left, "test")))),
        }
    }
    Once {
        seen,
        failing,
        unsteady,
        failed,
        complete: !done.finished.is_empty() && unmeasured.of_all.is_empty(),
        whole,
        problems: [unmeasured.of_all, unmeasured.of_some].concat(),
        failures,
        elapsed: done.elapsed,
        finished: done.finished,
        ..Once::default()
    }
}

/// Descriptions of what was not measured.
struct Unmeasured {
    /// No test can be screened.
    of_all: Vec<String>,
    /// The other tests can be screened.
    of_some: Vec<String>,
}

impl Unmeasured {
    /// The runner ended early (`why`), or reached its end without the results of these tests.
    fn ended_early(&mut self, done: &Done, why: &str, missing: &[&str]) {
        let tests = done.run.tests();
        let is_of_app = matches!(done.ending, Ending::Crashed(_) | Ending::RunnerFailed(_));
        let lacks_only_these = done.lost.is_none()
            && matches!(done.ending, Ending::Incomplete { .. })
            && tests.iter().all(|test| test.status != Status::NotEnded)
            && !missing.is_empty();
        let is_of_silent_class = |id: &&str| tests.iter().all(|test| test.class != class_of(id));
        let hint = if is_of_app && tests.is_empty() {
            ": is memgate's listener in the test APK (`memgate docs android`)? `adb logcat` says more"
        } else if lacks_only_these && missing.iter().all(is_of_silent_class) {
            ": the runner does not report a class in which an assumption fails before its tests (@BeforeClass): leave such a class out (`arguments: { notClass: … }`)"
        } else {
            ""
        };
        let told = if lacks_only_these { &mut self.of_some } else { &mut self.of_all };
        told.push(not_measured(&format!("{why}{hint}")));
        told.extend(missing::told("did not run", missing));
    }
}

fn not_measured(what: &str) -> String {
    format!("not measured: {what}")
}

/// What the agent should have seen and did not.
fn unseen_by_the_agent(done: &Done, tried: &[String]) -> Option<String> {
    if done.finished.is_empty() {
        let before = match tried {
            [] => String::new(),
            tried => format!(" (before, {})", tried.join("; ")),
        };
        return Some(not_measured(&format!(
            "the agent did not report from the app{before}: `adb logcat` around its start says why"
        )));
    }
    let ran = ran(&done.finished);
    let why = match done.finished.iter().find_map(|process| broken_off(&process.record)) {
        Some(why) => format!("ran, but what the agent sent of it is not whole: {why}"),
        None if ran.is_empty() => {
            "ran, but the agent saw nothing of it: is memgate's listener in the test APK?".to_owned()
        }
        None => "ran, but the agent, which saw others, saw nothing of it".to_owned(),
    };
    let unseen = unseen(done.run.tests(), &ran);
    let unseen: Vec<&str> = unseen.iter().map(String::as_str).collect();
    missing::told(&why, &unseen).map(|what| not_measured(&what))
}

/// Tests that the runner listed but that have no result. A class that failed as a whole has no results of its tests,
/// and the name of a parameter may differ between runs.
fn missing<'a>(named: &'a BTreeSet<String>, results: &BTreeMap<String, Status>) -> Vec<&'a str> {
    let method = |test: &str| test.split_once('[').map(|(method, _)| method.to_owned());
    let unnamed: BTreeSet<String> =
        results.keys().filter(|test| !named.contains(*test)).filter_map(|test| method(test)).collect();
    let has_result = |test: &&str| {
        results.contains_key(*test)
            || results.contains_key(class_of(test))
            || method(test).is_some_and(|method| unnamed.contains(&method))
    };
    named.iter().map(String::as_str).filter(|test| !has_result(test)).collect()
}

/// Classes that failed before or after their tests, so that no test explains why the run failed; each with the number
/// of its tests that did not run.
fn failed_outside(named: &BTreeSet<String>, tests: &[TestResult]) -> BTreeMap<String, usize> {
    let (failed, own): (Vec<&TestResult>, Vec<&TestResult>) = tests
        .iter()
        .filter(|test| !test.class.is_empty())
        .partition(|test| test.method.is_none() && matches!(test.status, Status::Failed | Status::Error));
    let own = own.into_iter().map(|test| (id(test), test.status)).collect();
    let missing = missing(named, &own);
    let left = |class: &str| missing.iter().filter(|test| class_of(test) == class).count();
    failed.into_iter().map(|test| (test.class.clone(), left(&test.class))).collect()
}

/// The class of a test with this name.
fn class_of(id: &str) -> &str {
    let plain = id.split_once('[').map_or(id, |(method, _)| method);
    plain.rsplit_once('.').map_or("", |(class, _)| class)
}

/// Tests that ran but that the agent did not see. A failure before or after the tests of a class is not a test, and the
/// agent does not see it.
fn unseen(tests: &[TestResult], ran: &BTreeSet<String>) -> BTreeSet<String> {
    let has_run = |test: &&TestResult| {
        test.method.is_some() && !matches!(test.status, Status::Ignored | Status::AssumptionFailed)
    };
    tests.iter().filter(has_run).map(id).filter(|test| !ran.contains(test)).collect()
}

/// Why a stream may lack tests.
fn broken_off(record: &ProcessRecord) -> Option<String> {
    let lost = || {
        let is_lost = |seen: &&SeenError| seen.error.code == ErrorCode::Carrier;
        record.errors.iter().find(is_lost).map(|seen| seen.error.text.clone())
    };
    let cut = || record.goodbye.is_none().then(|| "its connection ended before the run did".to_owned());
    record.damaged.clone().or_else(lost).or_else(cut)
}

/// Whether the runner reports a failure of the user's own; errors around the run are not theirs.
const fn failed_as_a_whole(ending: &Ending) -> bool {
    matches!(ending, Ending::Crashed(_) | Ending::NotResponding(_) | Ending::RunnerFailed(_))
}

/// The test's name as the agent writes it.
fn id(test: &TestResult) -> String {
    match &test.method {
        Some(method) => format!("{}.{method}", test.class),
        None => test.class.clone(),
    }
}

/// The ids of the tests that the agent saw.
fn ran(finished: &[Finished]) -> BTreeSet<String> {
    let records = || finished.iter().map(|process| &process.record);
    let windows = records().flat_map(|record| &record.windows).filter(|window| is_test(window));
    let open = records().flat_map(|record| &record.open).map(|open| open.id.clone());
    open.chain(windows.map(Window::id)).collect()
}

/// The tests that can be repeated. A class with a failed test is still screened: its other tests may leak.
struct Repeatable {
    seen: Classes,
    failing: BTreeSet<String>,
}

impl Repeatable {
    fn of<'a>(records: impl Iterator<Item = &'a ProcessRecord>) -> Self {
        let windows: Vec<&Window> =
            records.flat_map(|record| &record.windows).filter(|window| is_test(window)).collect();
        // If a test ran again because it had failed, its last result counts.
        let mut outcomes = BTreeMap::new();
        for window in &windows {
            outcomes.insert((&window.suite, &window.test), window.outcome);
        }
        let fails = |window: &Window| outcomes[&(&window.suite, &window.test)] == Some(Outcome::Failed);
        let failing = windows.iter().filter(|window| fails(window)).map(|window| window.suite.clone());
        Self {
            failing: failing.collect(),
            seen: by_class(windows.iter().copied().filter(|window| !fails(window))),
        }
    }
}

/// The tests' own result, as their runner would show it: the failures with stacks in their original names (`retraced`),
/// and a total. `of`: how many there are, if not all have run.
pub(super) fn shown(tests: &[TestResult], of: Option<usize>, retraced: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    let failures: Vec<&TestResult> = tests.iter().filter(|test| !test.status.is_good()).collect();
    for test in &failures {
        let how = match test.status {
            Status::Crashed => "the process crashed in",
            Status::NotEnded => "did not end:",
            _ => "failed:",
        };
        text.push_str(&format!(
            "{how} {}\n{}\n",
            id(test),
            retraced(test.trace.as_deref().unwrap_or_default().trim_end()).trim_end()
        ));
    }
    let ran = tests.iter().filter(|test| test.status != Status::Ignored).count();
    let part = of.filter(|of| *of != ran).map(|of| format!(" of {of}")).unwrap_or_default();
    text.push_str(&match (of, failures.len()) {
        (None, 0) => format!("OK ({})\n", format_number_of(ran, "test")),
        (_, failures) => format!("Tests run: {ran}{part},  Failures: {failures}\n"),
    });
    text
}

#[cfg(test)]
mod tests {
    use memgate_formats::instrumentation::{InstrumentationRun, RawStream};
    use memgate_wire::{ErrorFrame, Goodbye, GoodbyeReason};

    use super::*;

    fn test(class: &str, method: &str, status: Status) -> TestResult {
        let metrics = Default::default();
        TestResult {
            class: class.into(),
            method: Some(method.into()),
            number: None,
            status,
            trace: Some("at x".into()),
            metrics,
        }
    }

    #[test]
    fn failures_are_shown_with_their_stacks_and_ignored_tests_did_not_run() {
        let passed = [test("A", "a", Status::Passed), test("A", "b", Status::Ignored)];
        assert_eq!(shown(&passed, None, str::to_owned), "OK (1 test)\n");
        assert_eq!(shown(&passed, Some(3), str::to_owned), "Tests run: 1 of 3,  Failures: 0\n");
        let failed =
            [test("A", "a", Status::Failed), test("A", "b", Status::Crashed), test("A", "c", Status::Passed)];
        let want = "failed: A.a\nat x\nthe process crashed in A.b\nat x\nTests run: 3,  Failures: 2\n";
        assert_eq!(shown(&failed, None, str::to_owned), want);
        let named = shown(&failed[..1], None, |trace| trace.replace('x', "com.example.Tile"));
        assert_eq!(named, "failed: A.a\nat com.example.Tile\nTests run: 1,  Failures: 1\n");
    }

    #[test]
    fn a_stream_that_is_not_whole_says_why_it_does_not_tell_of_a_test() {
        let mut record = ProcessRecord::default();
        assert_eq!(broken_off(&record).unwrap(), "its connection ended before the run did");
        let (counters, cost) = Default::default();
        record.goodbye = Some(Goodbye { reason: GoodbyeReason::Exit, status: None, counters, cost });
        assert_eq!(broken_off(&record), None);
        let error = ErrorFrame { code: ErrorCode::Carrier, text: "the connection was lost".to_owned() };
        record.errors = vec![SeenError { error, t_ns: 0 }];
        assert_eq!(broken_off(&record).unwrap(), "the connection was lost");
        record.damaged = Some("after 9 frames: not a frame".to_owned());
        assert_eq!(broken_off(&record).unwrap(), "after 9 frames: not a frame");
    }

    /// A run of three tests of class `A`, each with the code of its end; `null`: the class itself.
    fn done(tests: &[(&str, i32)]) -> Done {
        done_of(tests, &Ending::Complete)
    }

    fn done_of(tests: &[(&str, i32)], ends: &Ending) -> Done {
        let (mut run, mut stream) = (InstrumentationRun::new(), RawStream::new());
        let mut said = String::new();
        for (number, (test, end)) in (1..).zip(tests) {
            for code in [1, *end] {
                for value in ["class=A", &format!("test={test}"), "numtests=3", &format!("current={number}")]
                {
                    said.push_str(&format!("INSTRUMENTATION_STATUS: {value}\n"));
                }
                said.push_str(&format!("INSTRUMENTATION_STATUS_CODE: {code}\n"));
            }
        }
        said.push_str("INSTRUMENTATION_CODE: -1\n");
        stream.push(said.as_bytes(), |item| run.apply(item));
        let ending = run.end();
        assert_eq!(&ending, ends);
        let (lost, finished, output, problems) = Default::default();
        Done { run, ending, lost, finished, elapsed: Duration::ZERO, output, problems }
    }

    #[test]
    fn an_app_without_the_agent_or_without_the_listener_is_told_what_to_look_at() {
        let named = ["A.a", "A.b", "A.c"].map(str::to_owned).into();
        let tried = ["startup_agents: it did not answer".to_owned()];
        let silent = look(done(&["a", "b", "c"].map(|test| (test, 0))), &named, &tried, "run.log");
        let told = "not measured: the agent did not report from the app (before, startup_agents: it did not answer): `adb logcat` around its start says why";
        assert!(silent.whole);
        assert_eq!(silent.problems, [told]);
        let (mut crashed, mut stream) = (InstrumentationRun::new(), RawStream::new());
        let said = "INSTRUMENTATION_RESULT: shortMsg=Process crashed.\nINSTRUMENTATION_CODE: 0\n";
        stream.push(said.as_bytes(), |item| crashed.apply(item));
        let ending = crashed.end();
        let crashed =
            look(Done { run: crashed, ending, ..done(&[("a", 0), ("b", 0), ("c", 0)]) }, &named, &[], "");
        assert!(!crashed.whole);
        assert!(crashed.problems[0].contains("listener in the test APK"), "{:?}", crashed.problems);
    }

    #[test]
    fn a_failed_test_is_not_repeated_with_the_others_of_its_class() {
        let mut record = ProcessRecord::default();
        for (suite, test, outcome) in [
            ("A", "fails", Outcome::Failed),
            ("A", "leaks", Outcome::Passed),
            ("B", "again", Outcome::Failed),
            ("B", "again", Outcome::Passed),
            ("C", "fails", Outcome::Failed),
        ] {
            let (suite, test) = (suite.to_owned(), test.to_owned());
            record.windows.push(Window { suite, test, outcome: Some(outcome), ..Window::default() });
        }
        let Repeatable { seen, failing } = Repeatable::of([&record].into_iter());
        let tests = |class: &str, test: &str| (class.to_owned(), vec![test.to_owned()]);
        assert_eq!(seen, [tests("A", "leaks"), tests("B", "again")]);
        assert_eq!(failing, ["A", "C"].map(str::to_owned).into());
    }

    #[test]
    fn a_class_that_fails_as_a_whole_fails_the_run_and_is_no_test_that_nobody_saw() {
        let named = ["A.a", "B.b"].map(str::to_owned).into();
        let done = done(&[("null", -2)]);
        let mut class = done.run.tests().to_vec();
        class.push(test("A", "a", Status::Passed));
        assert_eq!(unseen(&class, &BTreeSet::new()), BTreeSet::from(["A.a".to_owned()]));
        let once = look(done, &named, &[], "run.log");
        assert!(once.failed && !once.whole);
        assert!(once.problems.contains(&"not measured: B.b did not run".to_owned()), "{:?}", once.problems);
        let told = "not measured: A failed outside of its tests (@BeforeClass, @AfterClass or a rule of the class), and 1 test did not run";
        assert!(once.problems.iter().any(|problem| problem == told), "{:?}", once.problems);
    }

    #[test]
    fn a_class_that_fails_after_its_tests_says_so_although_all_of_them_passed() {
        let named = ["A.a", "A.b"].map(str::to_owned).into();
        let once = look(done(&[("a", 0), ("b", 0), ("null", -2)]), &named, &[], "run.log");
        assert!(once.failed);
        let told = "A failed outside of its tests (@BeforeClass, @AfterClass or a rule of the class)";
        assert_eq!(once.failures, BTreeSet::from([told.to_owned()]));
        assert!(!once.problems.iter().any(|problem| problem.contains(told)), "{:?}", once.problems);
    }

    #[test]
    fn a_class_of_which_the_runner_says_nothing_comes_with_what_may_have_happened() {
        let told = |named: [&str; 3]| {
            let named = named.map(str::to_owned).into();
            look(
                done_of(&[("a", 0), ("b", 0)], &Ending::Incomplete { expected: 3, ended: 2 }),
                &named,
                &[],
                "",
            )
            .problems
            .iter()
            .any(|problem| problem.contains("an assumption fails before its tests"))
        };
        assert!(told(["A.a", "A.b", "B.c"]));
        assert!(!told(["A.a", "A.b", "A.c"]), "others of its class ran");
    }

    #[test]
    fn a_test_that_is_left_out_while_another_runs_twice_is_not_measured() {
        let named = ["A.a", "A.b", "A.c"].map(str::to_owned).into();
        let problems =
            |tests: [&str; 3]| look(done(&tests.map(|test| (test, 0))), &named, &[], "run.log").problems;
        let left_out = "not measured: A.c did not run, while others ran more than once";
        assert!(problems(["a", "a", "b"]).iter().any(|problem| problem == left_out));
        assert!(!problems(["a", "b", "c"]).iter().any(|problem| problem.contains("did not run")));
    }

    #[test]
    fn a_test_without_a_result_is_missing_unless_its_own_class_has_one() {
        let named = ["a.B.x", "a.C.y", "a.C.z[1.5]", "a.D.p[T@1]", "a.D.p[T@2]"].map(str::to_owned).into();
        let missing = |ran: &[&str]| {
            let results = ran.iter().map(|id| ((*id).to_owned(), Status::Failed)).collect();
            missing(&named, &results)
        };
        assert_eq!(missing(&["a.B.x", "a.C", "a.D.p[T@1]"]), ["a.D.p[T@2]"]);
        assert_eq!(missing(&["a.B", "a.Old", "a.D.p[T@3]", "a.D.p[T@4]"]), ["a.C.y", "a.C.z[1.5]"]);
    }
}
