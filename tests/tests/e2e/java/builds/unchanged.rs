//! The build belongs to the user: whatever its JVMs look like and however long its tests take, memgate does
//! not change it.

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::{Project, Run, junit};
use memgate_model::Verdict;

/// A class that leaves nothing behind. With the system property `takes`, it takes that long in the build.
const CLEAN: &str = "import org.junit.jupiter.api.Test;

class CleanTest {
    @Test
    void isClean() throws Exception {
        boolean inTheBuild = System.getProperty(\"sun.java.command\").startsWith(\"org.junit\");
        Thread.sleep(inTheBuild ? Long.getLong(\"takes\", 0) : 0);
    }
}
";

fn run(project: &Project, jdk: &Jdk, options: &[&str], sources: &[(&str, &str)]) -> Run {
    let classes = junit::compile(jdk, project.folder(), sources);
    let java = junit::java(jdk, options, &classes);
    project.run_command(&java)
}

/// When the agent is notified of the JVM's end, the threads of these collectors are gone: a collection would
/// then wait forever.
#[test]
fn a_worker_ends_with_any_collector() {
    for (jdk, collector) in jvm::jdks().iter().zip(["-XX:+UseZGC", "-XX:+UseShenandoahGC"]) {
        let project = Project::new(&format!("junit-collector-{}", jdk.release));
        let run = run(&project, jdk, &[collector], &[("CleanTest", CLEAN)]);
        run.ends_with(0);
        assert_eq!(run.suite().verdict, Verdict::Pass, "{run}");
        assert!(!run.stderr.contains("has not ended"), "{run}");
    }
}

#[test]
fn a_test_that_takes_longer_than_the_limit_is_not_ended_in_the_build() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let project = Project::new("junit-slow");
    project.write("memgate.yaml", "version: 1\nmeasure: { timeout: 1s }\n");
    let run = run(&project, &jdk, &["-Dtakes=3000"], &[("CleanTest", CLEAN)]);
    run.ends_with(0).says("CleanTest.isClean has not ended after 1 s; its threads: ").says("; it goes on: ");
    assert_eq!(run.test("CleanTest.isClean").verdict, Verdict::Pass, "{run}");
}
