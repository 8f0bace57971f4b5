//! Without an agent: the build runs unchanged, its own result files list the tests, and memgate inspects its
//! own JVMs from outside.

use memgate_e2e::is_long;
use memgate_e2e::jvm::{self, Truth};
use memgate_model::{BoundaryQuality, Runner, TestReport, Verdict};

use crate::java::verdicts::suites::{MVN, run};

const CONFIGURATION: &str = "version: 1\nmeasure: { java: { agent: none } }\n";

/// One leak of each kind that is distinguished here, a cache, and clean tests.
const CHOSEN: &str = "-Dtest=TileCacheTest,SessionsTest,WatcherTest,CachesTest,CleanTest";

#[test]
fn without_the_agent_leaks_are_still_found_and_counted() {
    let most = if is_long() { 2 } else { 1 };
    for (jdk, junit) in jvm::jdks().iter().zip(["junit4", "junit5"]).take(most) {
        let project = jvm::sample(&format!("agentless-{}", jdk.release), junit);
        project.write("memgate.yaml", CONFIGURATION);
        // The long form runs all classes: each leaking one takes seconds.
        let chosen: &[&str] = if is_long() { &[] } else { &[CHOSEN] };
        let run = run(&project, jdk, &[&MVN, chosen].concat());
        run.ends_with(1);
        assert!(!run.stderr.contains("-agentpath") && !run.stdout.contains("-agentpath"), "{run}");
        let suite = run.suite();
        assert_eq!((suite.runner, suite.boundary), (Runner::Junit, BoundaryQuality::Observed), "{run}");
        assert_eq!(run.report().errors, [], "{run}");
        // Without an agent nobody reports direct buffers and the place of a thread-local.
        let truth = Truth::of(junit, jdk.release);
        let leaking: Vec<&str> = truth.leaking().collect();
        let wrong: Vec<String> = suite.tests.iter().filter_map(|test| differs(test, &leaking)).collect();
        assert!(wrong.is_empty(), "JDK {}: {wrong:#?}\n{run}", jdk.release);
        let tiles = run.test("com.example.TileCacheTest.evicts");
        let leak = &tiles.leaks[0];
        assert_eq!(
            (leak.title.as_str(), leak.bytes_per_iteration),
            ("12 × com.example.Registry$Tile", 768.0)
        );
        assert!(leak.holder.is_empty() && leak.frames.is_empty(), "{leak:?}");
        let again = project.memgate(&["gate", "--format", "json", ".memgate/latest"]);
        assert_eq!(again.suite().tests, suite.tests, "judged again, it is the same");
    }
}

fn differs(test: &TestReport, leaking: &[&str]) -> Option<String> {
    // Without holders, objects that the JVM keeps for itself (for example lambda forms) may leave a class
    // undecided: a warning, never a failure.
    let fails = test.verdict == Verdict::Fail;
    (fails != leaking.contains(&test.id.as_str()))
        .then(|| format!("{}: {:?} ({})", test.id, test.verdict, test.reason))
}
