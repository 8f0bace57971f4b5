//! A build that starts several JVMs, one for each test class: they are one suite.

use memgate_e2e::jvm::{self, Truth};
use memgate_model::Verdict;

use crate::java::verdicts::suites::run;

#[test]
fn tests_in_several_forks_are_one_suite_with_the_same_leaks() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let project = jvm::sample("jvm-forks", "junit5");
    let chosen = "-Dtest=TileCacheTest,CleanTest,TitlesTest";
    let run = run(&project, &jdk, &["run", "--", "mvn", "-q", "-B", "-Pforked", chosen, "test"]);
    run.ends_with(1);
    let suite = run.suite();
    assert_eq!(suite.tests.len(), 5, "{run}");
    let truth = Truth::of("junit5", jdk.release);
    let failed = |id: &str| suite.tests.iter().any(|test| test.id == id && test.verdict == Verdict::Fail);
    let chosen = ["com.example.TileCacheTest.evicts", "com.example.TitlesTest.remembers"];
    assert!(chosen.iter().all(|id| truth.leaking().any(|leaking| leaking == *id) && failed(id)), "{run}");
    let unplanned = truth.differences(&suite).into_iter().filter(|line| !line.ends_with("not in the report"));
    assert_eq!(unplanned.collect::<Vec<_>>(), Vec::<String>::new(), "{run}");
    let workers = project.streams().len();
    assert!(workers >= 3 + 1 + 2, "three forks, the rounds, two or more that confirm: {workers}");
}
