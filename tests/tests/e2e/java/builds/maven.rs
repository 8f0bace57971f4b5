//! Maven beyond a single plain module: a reactor, several forks, the module path, class paths longer than a
//! command line, selected tests.

use std::fs;

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::{Project, Run};
use memgate_model::{Outcome, RunReport, SuiteReport, Verdict};

const SESSIONS: &str = "com.example.api.SessionsTest";

fn run(project: &Project, jdk: &Jdk, arguments: &[&str]) -> Run {
    project.finish(project.command(arguments).env("JAVA_HOME", &jdk.home))
}

fn suite<'a>(report: &'a RunReport, name: &str) -> &'a SuiteReport {
    report.suites.iter().find(|suite| suite.name == name).unwrap_or_else(|| panic!("no {name}: {report:?}"))
}

#[test]
fn each_module_is_a_suite_with_its_own_forks_and_modules() {
    for jdk in jvm::jdks_in_turn(1) {
        let project = jvm::project(&format!("reactor {}", jdk.release), "jvm-reactor");
        let tests = "-Dtest=FirstTest,SecondTest,SessionsTest#opens+runsInItsModule";
        let none = "-Dsurefire.failIfNoSpecifiedTests=false";
        let run = run(&project, &jdk, &["run", "--", "mvn", "-q", "-B", "test", tests, none]);
        run.ends_with(1);
        let report = run.report();
        let core = suite(&report, "core");
        assert_eq!((core.verdict, core.tests.len()), (Verdict::Pass, 2), "{}", core.reason);
        let api = suite(&report, "api");
        let verdicts: Vec<_> = api.tests.iter().map(|t| (t.id.as_str(), t.verdict)).collect();
        let opens = format!("{SESSIONS}.opens");
        let in_module = format!("{SESSIONS}.runsInItsModule");
        assert!(verdicts.contains(&(opens.as_str(), Verdict::Fail)), "{verdicts:?}\n{run}");
        assert!(verdicts.contains(&(in_module.as_str(), Verdict::Pass)), "{verdicts:?}\n{run}");
        assert_eq!(verdicts.len(), 2, "what was left out stays out: {verdicts:?}");
        assert_eq!(run.test(&opens).leaks[0].title, "3 × com.example.api.Sessions$Session");
    }
}

/// Leaks if the store is on disk, and has a test that fails at first.
const STORE: &str = "package com.example;
import java.nio.file.*;
import java.util.*;
import org.junit.*;
public class StoreTest {
    static final List<byte[]> OPEN = new ArrayList<>();
    static final class Page {}
    static final List<Page> PAGES = new ArrayList<>();
    @Test public void opens() {
        if (System.getProperty(\"store\").equals(\"disk\")) PAGES.add(new Page());
    }
    @Test public void isFlaky() throws Exception {
        Path ran = Path.of(System.getProperty(\"basedir\"), System.getProperty(\"store\"));
        if (!Files.exists(ran)) {
            Files.createFile(ran);
            Assert.fail(\"for the first time\");
        }
        OPEN.add(new byte[4001]);
    }
}
";

/// Two executions of the same tests, each with forks that differ by their number.
const EXECUTIONS: &str = "<executions>
<execution><id>default-test</id><configuration><reportNameSuffix>memory</reportNameSuffix>
<systemPropertyVariables><store>memory</store></systemPropertyVariables></configuration></execution>
<execution><id>disk</id><goals><goal>test</goal></goals><configuration><reportNameSuffix>disk</reportNameSuffix>
<systemPropertyVariables><store>disk</store></systemPropertyVariables></configuration></execution>
</executions><configuration><rerunFailingTestsCount>1</rerunFailingTestsCount>
<argLine>-Ddatabase=tiles${surefire.forkNumber}</argLine>
<workingDirectory>${project.build.directory}/fork_${surefire.forkNumber}</workingDirectory>";

#[test]
fn each_execution_of_a_module_is_repeated_as_it_was_configured() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let project = jvm::project("reactor-executions", "jvm-reactor");
    project.write("core/src/test/java/com/example/StoreTest.java", STORE);
    project.write("core/pom.xml", project.read("core/pom.xml").replacen("<configuration>", EXECUTIONS, 1));
    let run = run(&project, &jdk, &["run", "--", "mvn", "-q", "-B", "test", "-pl", "core"]);
    run.ends_with(1).says("core (2) ran with other values of ");
    let report = run.report();
    assert_eq!((report.suites.len(), &report.errors), (2, &Vec::new()), "{run}");
    let flaky = "com.example.StoreTest.isFlaky";
    let opens = "com.example.StoreTest.opens";
    for (name, leaking) in [("core", &[flaky][..]), ("core (2)", &[flaky, opens])] {
        let suite = suite(&report, name);
        assert_eq!(suite.tests.len(), 4, "{run}");
        let failed = suite.tests.iter().filter(|test| test.verdict == Verdict::Fail);
        let mut failed: Vec<&str> = failed.map(|test| test.id.as_str()).collect();
        failed.sort_unstable();
        assert_eq!(failed, leaking, "{name}\n{run}");
        assert!(suite.tests.iter().all(|test| test.outcome == Outcome::Passed), "{run}");
    }
}

#[test]
fn shards_of_a_reactor_are_named_as_the_whole_is() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let project = jvm::project("reactor-shards", "jvm-reactor");
    for index in 1..=2 {
        let (part, folder) = (format!("{index}/2"), format!("shards/{index}"));
        let typed = ["run", "--partition", &part, "--output-dir", &folder, "--", "mvn", "-q", "-B", "test"];
        run(&project, &jdk, &typed).says("of 3 classes of the test sources fall to shard");
    }
    let run = run(&project, &jdk, &["merge", "shards"]);
    run.ends_with(1);
    let report = run.report();
    let tests = |name| suite(&report, name).tests.len();
    assert_eq!(
        (report.suites.len(), tests("core"), tests("api"), &report.errors),
        (2, 2, 3, &Vec::new()),
        "{run}"
    );
    assert_eq!(run.test(&format!("{SESSIONS}.opens")).leaks[0].title, "3 × com.example.api.Sessions$Session");
}

#[test]
fn a_filter_is_told_to_maven() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let project = jvm::project("reactor-filter", "jvm-reactor");
    let filter = format!("{SESSIONS}.runsInItsModule");
    project
        .write("memgate.yaml", "version: 1\nsuites: { unit: { run: [mvn, -q, -B, test], runner: junit } }\n");
    let run = run(&project, &jdk, &["run", "--filter", &filter, "--suite", "unit"]);
    run.ends_with(0);
    let suite = run.suite();
    assert_eq!(
        (suite.name.as_str(), suite.tests.len()),
        ("unit/api", 1),
        "named as in the whole run:\n{run}"
    );
    for (filter, says) in [
        (format!("{SESSIONS}.isNone"), "selects none of its classes and methods"),
        ("com.example.Nobody".to_owned(), "does the filter \"com.example.Nobody\" select one of its classes"),
    ] {
        let typed = ["run", "--filter", &filter, "--", "mvn", "-q", "-B", "test", "-pl", "api"];
        self::run(&project, &jdk, &typed).ends_with(2).says(says);
    }
}

#[test]
fn a_class_path_may_be_longer_than_a_command_line() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let project = jvm::project("long-class-path", "jvm-reactor");
    let folder = project.folder().join("more").join("a".repeat(200)).join("b".repeat(200));
    let mut paths = String::new();
    for i in 0..400 {
        let entry = folder.join(format!("folder {i}"));
        fs::create_dir_all(&entry).unwrap();
        let entry = entry.display();
        paths.push_str(&format!("<additionalClasspathElement>{entry}</additionalClasspathElement>"));
    }
    assert!(paths.len() > 128 << 10);
    let longer = format!("<configuration><additionalClasspathElements>{paths}</additionalClasspathElements>");
    let pom = project.read("core/pom.xml").replacen("<configuration>", &longer, 1);
    project.write("core/pom.xml", pom);
    let run = run(&project, &jdk, &["run", "--", "mvn", "-q", "-B", "test", "-pl", "core"]);
    run.ends_with(0);
    assert_eq!((run.suite().verdict, run.suite().tests.len()), (Verdict::Pass, 2), "{run}");
    let left = fs::read_dir(project.session().join("java")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!left.iter().any(|name| name.ends_with(".arguments")), "system properties do not stay: {left:?}");
}
