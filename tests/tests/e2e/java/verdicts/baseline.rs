//! `screen: baseline`: what an accepted run left behind is not screened again, and a new leak is still found.

use memgate_e2e::Project;
use memgate_e2e::jvm::{self, Jdk};
use memgate_model::Verdict;

const TEST: &str = "src/test/java/com/example/FirstTest.java";

fn run(project: &Project, jdk: &Jdk, arguments: &[&str]) -> memgate_e2e::Run {
    project.finish(project.command(arguments).env("JAVA_HOME", &jdk.home))
}

/// A project with one fork for all classes, so that windows may hold several classes.
fn project(jdk: &Jdk) -> Project {
    let project = jvm::project(&format!("baseline-{}", jdk.release), "jvm-reactor");
    let pom = project.read("core/pom.xml").replace("<reuseForks>false</reuseForks>", "");
    project
        .write("core/pom.xml", pom.replace("<forkCount>2</forkCount>", "<runOrder>alphabetical</runOrder>"));
    project
}

#[test]
fn only_what_changed_since_the_accepted_run_is_screened() {
    for jdk in jvm::jdks_in_turn(0) {
        let project = project(&jdk);
        let mvn = ["run", "--", "mvn", "-q", "-B", "test", "-pl", "core"];
        let first = run(&project, &jdk, &mvn);
        first.ends_with(0).says("4 rounds over 2 test classes");
        project.memgate(&["baseline", "accept"]).ends_with(0);

        let same = run(&project, &jdk, &mvn);
        same.ends_with(0).says("2 of 2 test classes left no more than the baseline says");
        assert!(!same.stderr.contains("rounds over"), "{same}");
        assert!(same.suite().reason.contains("2 of 2 test classes left no more"), "{}", same.suite().reason);
        let accepted = project.memgate(&["baseline", "accept"]);
        accepted.ends_with(0).says("accepted the figures of 0 tests").says("not measured again: 2;");

        // A merged run of shards can be accepted, too.
        let shard = [&["run", "--partition", "1/1"], &mvn[1..]].concat();
        run(&project, &jdk, &shard).ends_with(0);
        project.memgate(&["merge", ".memgate/latest"]).ends_with(0);
        project.memgate(&["baseline", "accept"]).ends_with(0).says("not measured again: 2;");

        let source = format!("core/{TEST}");
        let leaks = project.read(&source).replace(
            "    @Test\n",
            "    static final java.util.List<Object> KEPT = new java.util.ArrayList<>();\n\n    static final class Tile {}\n\n    @Test\n    public void keeps() {\n        for (int i = 0; i < 7; i++) {\n            KEPT.add(new Tile());\n        }\n    }\n\n    @Test\n",
        );
        project.write(&source, leaks);
        let leaking = run(&project, &jdk, &mvn);
        leaking.ends_with(1).says("com.example.FirstTest$Tile");
        let test = leaking.test("com.example.FirstTest.keeps");
        assert_eq!(
            (test.verdict, test.leaks[0].title.as_str()),
            (Verdict::Fail, "7 × com.example.FirstTest$Tile")
        );

        // A leak is never accepted.
        project.memgate(&["baseline", "accept"]).ends_with(0);
        let again = run(&project, &jdk, &mvn);
        again.ends_with(1);
        assert_eq!(again.test("com.example.FirstTest.keeps").verdict, Verdict::Fail);
    }
}
