//! Every planted Java leak is named by class, count, bytes and holder, and no other test fails.

use std::collections::BTreeMap;
use std::fs;

use memgate_e2e::jvm::{self, Jdk, Truth};
use memgate_e2e::{Project, Run, say};
use memgate_model::{BoundaryQuality, LeakKind, Runner, SuiteReport};

use crate::java::verdicts::suites::{MVN, Session, run, sessions};

/// How often [`every_run_finds_the_same`] runs everything.
const RUNS: &str = "MEMGATE_TRUTH_RUNS";
/// If set, it runs only these of `junit4`, `junit5` and `demo`, separated by spaces.
const ONLY: &str = "MEMGATE_TRUTH_ONLY";

/// Differences come first, because the log of a CI job is cut.
#[track_caller]
fn matches_truth(junit: &str) {
    for Session { jdk, run, project, .. } in sessions().filter(|session| session.junit == junit) {
        let mut wrong = differences(run, &Truth::of(junit, jdk.release));
        let kind = jvm_suite(run).map(|suite| (suite.runner, suite.boundary));
        wrong.extend(
            (kind != Some((Runner::Junit, BoundaryQuality::Class))).then(|| format!("suite {kind:?}")),
        );
        let folder = project.folder().display();
        assert!(wrong.is_empty(), "JDK {}, {junit}:\n{}\nin {folder}\n{run}", jdk.release, wrong.join("\n"));
    }
}

#[test]
fn every_planted_leak_under_junit_4_is_named_counted_and_held_and_no_other_test_fails() {
    matches_truth("junit4");
}

#[test]
fn every_planted_leak_under_junit_5_is_named_counted_and_held_and_no_other_test_fails() {
    matches_truth("junit5");
}

#[test]
#[ignore = "takes minutes for each run: tests/prove jvm-truth"]
fn every_run_finds_the_same() {
    let runs = std::env::var(RUNS).unwrap_or_else(|_| "1".to_owned());
    let only = std::env::var(ONLY).unwrap_or_else(|_| "junit4 junit5 demo".to_owned());
    let (mut all, mut wrong) = (0, 0);
    for n in 1..=runs.parse::<u32>().unwrap() {
        for jdk in jvm::jdks() {
            for what in only.split_whitespace() {
                let (project, run, truth) = match what {
                    "demo" => demo(n, &jdk),
                    junit => {
                        let project = jvm::sample(&format!("truth-{n}-{}", jdk.release), junit);
                        let run = run(&project, &jdk, &MVN);
                        (project, run, Truth::of(junit, jdk.release))
                    }
                };
                let differences = differences(&run, &truth);
                all += 1;
                wrong += u32::from(!differences.is_empty());
                say(&format!(
                    "run {n}, {what}, JDK {}: {} differ{}",
                    jdk.release,
                    differences.len(),
                    cost(&run)
                ));
                differences.iter().for_each(|line| say(&format!("  {line}")));
                if differences.is_empty() {
                    fs::remove_dir_all(project.folder()).unwrap();
                }
            }
        }
    }
    say(&format!("{} of {all} as the truth says", all - wrong));
    assert_eq!(wrong, 0, "what differed lies in e2e-projects/truth-*");
}

/// Runs the JUnit suite of `memgate demo`.
fn demo(n: u32, jdk: &Jdk) -> (Project, Run, Truth) {
    let project = Project::new(&format!("truth-{n}-{}/demo", jdk.release));
    let run = project.finish(project.command(&["demo"]).env("JAVA_HOME", &jdk.home));
    let truth = Truth::of("junit4", jdk.release);
    let truth = match jvm_suite(&run) {
        Some(suite) => truth.within(suite),
        None => truth,
    };
    (project, run, truth)
}

fn jvm_suite(run: &Run) -> Option<&SuiteReport> {
    run.report.as_ref()?.suites.iter().find(|suite| suite.runner == Runner::Junit)
}

/// Errors of a run, as readable lines.
fn differences(run: &Run, truth: &Truth) -> Vec<String> {
    let Some(suite) = jvm_suite(run) else { return vec![format!("no suite was measured:\n{run}")] };
    let mut wrong = truth.differences(suite);
    wrong.extend((run.code != Some(1)).then(|| format!("exit code {:?}", run.code)));
    wrong.extend(run.report().errors.iter().map(|error| format!("{}: {}", error.r#where, error.what)));
    wrong
}

fn cost(run: &Run) -> String {
    let cost = jvm_suite(run).and_then(|suite| suite.screen_cost.as_ref());
    cost.map_or_else(String::new, |cost| format!(", screened in {:.1} × the suite", cost.ratio))
}

#[test]
fn a_java_leak_is_told_with_its_holder_and_what_to_do_about_it() {
    for Session { run, .. } in sessions() {
        let id = &run.test("com.example.TileCacheTest.evicts").leaks[0].id;
        run.says("FAIL  com.example.TileCacheTest.evicts").says("12 × com.example.Registry$Tile");
        run.says("static com.example.Registry.cache").says(&format!("memgate waive {id}"));
    }
}

#[test]
fn the_same_leak_has_the_same_id_in_every_test_under_both_junits_and_every_jdk() {
    let mut ids = BTreeMap::<String, BTreeMap<String, Vec<String>>>::new();
    for Session { junit, jdk, run, .. } in sessions() {
        let truth = Truth::of(junit, jdk.release);
        for test in run.suite().tests {
            let Some(leak) = truth.leak_of(&test.id) else { continue };
            let java = test.leaks.iter().filter(|leak| leak.kind == LeakKind::Java);
            let told = java.map(|leak| leak.id.clone()).collect::<Vec<_>>().join(" ");
            let place = format!("{junit}, JDK {}, {}", jdk.release, test.id);
            ids.entry(leak.to_owned()).or_default().entry(told).or_default().push(place);
        }
    }
    assert!(sessions().count() == 0 || ids.len() > 10, "{ids:#?}");
    ids.retain(|_, told| told.len() != 1 || !told.keys().all(|id| id.starts_with("j1-")));
    assert!(ids.is_empty(), "{ids:#?}");
}
