//! A leak belongs to the test that was running when it was allocated: background threads, pools,
//! late frees, reallocs and tests that overlap.

use std::sync::OnceLock;

use memgate_e2e::{Project, Run, repository, samples, truth};
use memgate_model::{LeakKind, Metric, Verdict};

/// The sample `epochs`, run once.
fn session() -> &'static Run {
    static SESSION: OnceLock<Run> = OnceLock::new();
    SESSION.get_or_init(|| Project::new("epochs").run(&samples::suite("epochs")))
}

/// The tests of `class` have the expected results, and none is missing.
#[track_caller]
fn as_told(suite: &str, class: &str, run: &Run) {
    let all = truth::of(suite);
    let of_class: Vec<_> = all.iter().filter(|test| test.id.starts_with(class)).collect();
    assert!(!of_class.is_empty());
    let wrong: Vec<String> = of_class.iter().flat_map(|test| test.differences(&run.test(&test.id))).collect();
    assert!(wrong.is_empty(), "{}\n{run}", wrong.join("\n"));
    assert_eq!(run.suite().tests.len(), all.len(), "{run}");
}

/// Nothing of these tests was alive at their end: the screen had no reason to repeat them.
#[track_caller]
fn left_nothing(ids: &[&str]) {
    for id in ids {
        let test = session().test(id);
        assert_eq!((test.verdict, test.confirmed), (Verdict::Pass, false), "{id}: {}", test.reason);
        assert_eq!(test.metrics[&Metric::NativeLiveBytes].value, 0.0, "{id}");
        assert!(test.one_time.is_empty(), "{id}: {:?}", test.one_time);
    }
}

/// The one-time allocation: its bytes, and the function that allocated it.
#[track_caller]
fn one_time(id: &str) -> (f64, String) {
    let test = session().test(id);
    let native: Vec<_> = test.one_time.iter().filter(|leak| leak.kind == LeakKind::Native).collect();
    let [leak] = native.as_slice() else { panic!("{id}: {:?}", test.one_time) };
    (leak.bytes_per_iteration, leak.frames[0].function.clone().unwrap_or_default())
}

#[test]
fn a_background_thread_allocates_for_the_test_that_runs_not_for_the_one_that_started_it() {
    as_told("epochs", "Background.", session());
    left_nothing(&["Background.IsIdle"]);
    let (_, function) = one_time("Background.Starts");
    assert_eq!(function, "epochs::Pool::Pool(int)", "the thread is of the test that started it");
}

#[test]
fn a_pool_that_serves_several_tests_allocates_for_each_of_them() {
    as_told("epochs", "Pool.", session());
    left_nothing(&["Pool.Counts"]);
}

#[test]
fn a_late_free_is_no_credit_for_the_test_in_which_it_happens() {
    as_told("epochs", "LateFree.", session());
    left_nothing(&["LateFree.Waits", "LateFree.Frees"]);
    assert_eq!(one_time("LateFree.Writes"), (163.0, "epochs::write_letter()".to_owned()));
}

#[test]
fn a_block_belongs_to_the_test_that_reallocated_it() {
    as_told("epochs", "Realloc.", session());
    left_nothing(&["Realloc.Reads"]);
    assert_eq!(one_time("Realloc.Opens"), (173.0, "epochs::Log::open()".to_owned()));
}

#[test]
fn work_that_is_ordered_in_one_test_and_done_in_another_belongs_to_the_other() {
    as_told("epochs", "Postponed.", session());
    left_nothing(&["Postponed.Orders"]);
}

#[test]
fn what_a_suite_allocates_between_two_tests_belongs_to_neither() {
    as_told("epochs", "Between", session());
    left_nothing(&["Between.Comes", "Between2.Follows"]);
    let tests = session().suite().tests;
    let has_it = |title: &str| title.contains("191 B");
    let of_tests = tests.iter().filter(|test| test.id != "Between.TearDownTestSuite()");
    assert!(of_tests.flat_map(|t| t.leaks.iter().chain(&t.one_time)).all(|leak| !has_it(&leak.title)));
}

#[test]
fn the_suite_ends_as_its_leaks_demand() {
    session().ends_with(1).says("7 of 19 tests leak");
}

/// Tests that overlap are not judged, whatever they leak, because nobody can know what each one left. Tests that
/// run alone are judged.
#[test]
fn tests_that_overlap_are_never_blamed_for_each_other() {
    let source = samples::sources().join("overlap.c");
    let include = format!("-I{}", repository().join("device-agent/include").display());
    let arguments = ["-std=gnu11", "-O1", "-g", &include, source.to_str().unwrap(), "-lpthread"];
    let program = samples::compile("overlap", "cc", &arguments, &[]);
    let run = Project::new("overlap").memgate(&["run", "--", program.to_str().unwrap(), "--count=30"]);
    run.ends_with(1);
    as_told("overlap", "", &run);
    for id in ["left", "right", "twin", "third"] {
        let test = run.test(&format!("Overlap.{id}"));
        let why = "not measured: 2 tests ran at the same time, what each left cannot be told apart";
        assert_eq!(test.reason, why, "{id}");
        assert!(
            test.leaks.is_empty() && test.metrics.is_empty(),
            "{id}: no figure is better than a wrong one"
        );
    }
}
