//! Leaks of real libraries: found in the version that leaked, not in the version with the fix.

use memgate_e2e::jvm;
use memgate_model::{RunReport, Verdict};

const TESTS: [(&str, &str, &str); 2] = [
    (
        "com.example.RepeatTest.aDisposedSubscriptionIsForgotten",
        "io.reactivex.subjects.PublishSubject$PublishDisposable",
        "static com.example.RepeatTest.REFRESH",
    ),
    (
        "com.example.ObjectIdTest.aDocumentThatWasReadIsForgotten",
        "com.example.ObjectIdTest$Tile",
        "static com.example.ObjectIdTest.MAPPER",
    ),
];

#[test]
fn leaks_that_were_real_are_found_and_their_mends_pass() {
    for jdk in jvm::jdks_in_turn(1) {
        let project = jvm::project(&format!("historic-{}", jdk.release), "jvm-historic");
        let run = |more: &[&str]| {
            let all = [&["run", "--", "mvn", "-q", "-B", "test"], more].concat();
            project.finish(project.command(&all).env("JAVA_HOME", &jdk.home))
        };
        let leaking = run(&[]);
        leaking.ends_with(1);
        for (test, class, root) in TESTS {
            let test = leaking.test(test);
            assert_eq!(test.verdict, Verdict::Fail, "{}: {}", test.id, test.reason);
            let named = test.leaks.iter().find(|leak| leak.class.as_deref() == Some(class));
            let leak = named.unwrap_or_else(|| panic!("{class}: {:?}", test.leaks));
            assert!((leak.count_per_iteration - 1.0).abs() < 0.01, "{}", leak.count_per_iteration);
            let from = &leak.holder[0];
            assert_eq!(format!("{} {}.{}", from.kind, from.owner, from.name), root);
        }
        let mended = run(&["-Pmended"]);
        mended.ends_with(0);
        assert!(passes(&mended.report()), "{mended}");
    }
}

fn passes(report: &RunReport) -> bool {
    report.suites.iter().flat_map(|suite| &suite.tests).all(|test| test.verdict == Verdict::Pass)
}
