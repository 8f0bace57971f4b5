//! Tests that fail, or pass only once, are not judged; the other tests of their class are screened.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::{Project, Run, junit};
use memgate_model::{Outcome, Verdict};

const MIXED: &str = "import java.util.*;
import org.junit.jupiter.api.*;

class MixedTest {
    static final List<Object> kept = new ArrayList<>();
    static int times, skips, made;

    static final class Page {}

    @Test
    void fails() {
        Assertions.fail(\"on purpose\");
    }

    @Test
    void isClean() {}

    @Test
    void keeps() {
        if (Boolean.getBoolean(\"leaks\")) {
            kept.add(new Page());
        }
    }

    @Test
    void passesOnce() {
        Assertions.assertEquals(0, times++);
    }

    @Test
    void runsOnce() {
        Assumptions.assumeTrue(skips++ == 0);
    }

    @TestFactory
    List<DynamicTest> shrinks() {
        return Collections.nCopies(made++ == 0 ? 2 : 1, DynamicTest.dynamicTest(\"one\", () -> {}));
    }
}
";

/// Stands for Quarkus's own, which a class path of these tests does not have.
const QUARKUS: &str = "package io.quarkus.test.junit;

@java.lang.annotation.Retention(java.lang.annotation.RetentionPolicy.RUNTIME)
public @interface QuarkusTest {}
";

const SERVICE: &str = "import java.util.*;
import org.junit.jupiter.api.*;

@io.quarkus.test.junit.QuarkusTest
class ServiceTest {
    static final List<Object> kept = new ArrayList<>();

    @Test
    void keeps() {
        kept.add(new int[100]);
    }
}
";

/// A thread that a project starts once for all tests and never ends.
const SESSION: &str = "import org.junit.platform.launcher.*;

public class Session implements LauncherSessionListener {
    @Override
    public void launcherSessionOpened(LauncherSession session) {
        Thread server = new Thread(() -> {
            try {
                Thread.sleep(Long.MAX_VALUE);
            } catch (InterruptedException over) {
            }
        });
        server.setDaemon(true);
        server.start();
    }
}
";

/// A build that succeeds whatever its tests do, as with Surefire's `testFailureIgnore`.
fn run(name: &str, jdk: &Jdk, options: &[&str], arguments: &[&str]) -> Run {
    let project = Project::new(name);
    let sources = [
        ("MixedTest", MIXED),
        ("Session", SESSION),
        ("io/quarkus/test/junit/QuarkusTest", QUARKUS),
        ("ServiceTest", SERVICE),
    ];
    let classes = junit::compile(jdk, project.folder(), &sources);
    project
        .write("classes/META-INF/services/org.junit.platform.launcher.LauncherSessionListener", "Session\n");
    let words: String = junit::java(jdk, options, &classes).iter().map(|word| format!("'{word}' ")).collect();
    let script = project.write("build.sh", format!("#!/bin/sh\n{words}\nexit 0\n"));
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    project.write("memgate.yaml", "version: 1\nsuites:\n  all: { run: [./build.sh], runner: junit }\n");
    project.memgate(&[&["run"], arguments].concat())
}

#[test]
fn the_rest_of_a_class_is_screened_beside_tests_that_fail() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let run = run("junit-failing", &jdk, &["-Dleaks=true"], &["--ignore-test-failures"]);
    run.ends_with(1);
    let leak = run.test("MixedTest.keeps");
    assert_eq!(leak.verdict, Verdict::Fail, "{}\n{run}", leak.reason);
    assert_eq!(leak.leaks[0].title, "1 × MixedTest$Page");
    assert_eq!(run.test("MixedTest.isClean").verdict, Verdict::Pass, "{run}");
}

#[test]
fn what_cannot_be_repeated_is_not_judged_and_the_exit_code_says_why_it_is_1() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let run = run("junit-not-judged", &jdk, &[], &[]);
    run.ends_with(1).says("exit code 1: 1 test failed, though the command ended with 0");
    let suite = run.suite();
    assert_eq!(suite.verdict, Verdict::Warn, "{run}");
    assert!(
        suite.reason.contains("1 test not judged") && suite.reason.contains("passesOnce"),
        "{}",
        suite.reason
    );
    let once = run.test("MixedTest.passesOnce");
    assert_eq!((once.outcome, once.verdict), (Outcome::Passed, Verdict::NotJudged), "{run}");
    assert_eq!(once.reason, "not screened: it fails when it is repeated");
    let skipped = run.test("MixedTest.runsOnce");
    assert_eq!((skipped.outcome, skipped.verdict), (Outcome::Passed, Verdict::NotJudged), "{run}");
    assert_eq!(skipped.reason, "not screened: it is skipped when it is repeated");
    let missing = run.test("MixedTest.shrinks()[2]");
    assert_eq!(missing.reason, skipped.reason, "{run}");
    assert_eq!(run.test("MixedTest.shrinks()[1]").verdict, Verdict::Pass, "{run}");
    let of_quarkus = run.test("ServiceTest.keeps");
    assert_eq!((of_quarkus.verdict, &of_quarkus.reason), (Verdict::NotJudged, &skipped.reason), "{run}");
    assert!(suite.reason.contains("3 tests not judged, for they are skipped"), "{}", suite.reason);
    assert_eq!(run.test("MixedTest.fails").verdict, Verdict::NotJudged, "{run}");
    for clean in ["isClean", "keeps"] {
        assert_eq!(run.test(&format!("MixedTest.{clean}")).verdict, Verdict::Pass, "{run}");
    }
}

const FOUR: &str = "import org.junit.*;

public class FourTest {
    @Test public void fails() { Assert.fail(\"on purpose\"); }
    @Test public void isSkipped() { Assume.assumeTrue(false); }
    @Test public void passes() {}
    static int times;
    @Test public void runsOnce() { Assume.assumeTrue(times++ == 0); }
}
";

/// The names of these tests differ between runs.
const CODEC: &str = "import java.util.*;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.Parameterized;

@RunWith(Parameterized.class)
public class CodecTest {
    static final List<Object> kept = new ArrayList<>();
    @Parameterized.Parameters(name = \"{0}\") public static Object[] codecs() { return new Object[] { \"plain\", new Object() }; }
    @Parameterized.Parameter public Object codec;
    @Test public void decodes() { if (!codec.equals(\"plain\")) kept.add(new int[100]); }
}
";

/// Stands for PowerMock's own, which loads the tested classes anew for each execution.
const POWERMOCK: &str = "package org.powermock.modules.junit4;

public class PowerMockRunner extends org.junit.runners.BlockJUnit4ClassRunner {
    public PowerMockRunner(Class<?> tests) throws org.junit.runners.model.InitializationError { super(tests); }
}
";

const MOCKED: &str = "import java.util.*;

@org.junit.runner.RunWith(org.powermock.modules.junit4.PowerMockRunner.class)
public class MockedTest {
    static final List<Object> kept = new ArrayList<>();
    @org.junit.Test public void keeps() { kept.add(new int[100]); }
}
";

const PLAIN: &str = "@org.junit.runner.RunWith(org.junit.runners.BlockJUnit4ClassRunner.class)
public class PlainTest extends MockedTest {}
";

/// Its runner names a feature instead of a class, like Cucumber's.
const FEATURE: &str = "import org.junit.runner.Description;
import org.junit.runners.model.*;

@org.junit.runner.RunWith(FeatureTest.Scenarios.class)
public class FeatureTest {
    @org.junit.Test public void evicts() {}
    public static class Scenarios extends org.junit.runners.BlockJUnit4ClassRunner {
        public Scenarios(Class<?> tests) throws InitializationError { super(tests); }
        @Override protected Description describeChild(FrameworkMethod method) {
            return Description.createTestDescription(\"Tiles\", method.getName(), \"1\");
        }
    }
}
";

#[test]
fn junit_4_tells_which_tests_failed_and_which_it_cannot_repeat() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let project = Project::new("junit4-failing");
    let sources = [
        ("FourTest", FOUR),
        ("CodecTest", CODEC),
        ("org/powermock/modules/junit4/PowerMockRunner", POWERMOCK),
        ("MockedTest", MOCKED),
        ("PlainTest", PLAIN),
        ("FeatureTest", FEATURE),
    ];
    let classes = junit::compile(&jdk, project.folder(), &sources);
    let mut java = junit::java4(&jdk, &classes, "FourTest");
    java.extend(["CodecTest", "MockedTest", "PlainTest", "FeatureTest"].map(str::to_owned));
    let run = project.run_command(&java);
    run.ends_with(1);
    run.says("ERROR  junit4-failing (suite)").says("not in the rounds: Tiles;");
    let mocked = run.test("MockedTest.keeps");
    assert_eq!(mocked.verdict, Verdict::NotJudged, "{run}");
    assert_eq!(mocked.reason, "not screened: it is skipped when it is repeated", "{run}");
    assert_eq!(run.test("PlainTest.keeps").verdict, Verdict::Fail, "its own runner is the nearest: {run}");
    let skipped = run.test("FourTest.runsOnce");
    assert_eq!(skipped.reason, "not screened: it is skipped when it is repeated", "{run}");
    let leaks = run.test("CodecTest").leaks;
    assert_eq!(leaks.iter().map(|leak| leak.title.as_str()).collect::<Vec<_>>(), ["1 × int[]"], "{run}");
    for (test, outcome) in
        [("fails", Outcome::Failed), ("isSkipped", Outcome::Skipped), ("passes", Outcome::Passed)]
    {
        assert_eq!(run.test(&format!("FourTest.{test}")).outcome, outcome, "{test}\n{run}");
    }
    let run = project.run_command(&junit::java4(&jdk, &classes, "FeatureTest"));
    run.ends_with(2);
    run.says("not in the rounds: Tiles");
    assert!(!run.to_string().contains("the launcher ended"), "{run}");
}

/// Below JUnit Platform, the names of its tests begin with the parameter: `[a]/keeps[a]`.
const PAGES: &str = "import java.util.*;
import org.junit.*;
import org.junit.runner.RunWith;
import org.junit.runners.Parameterized;

@RunWith(Parameterized.class)
public class PagesTest {
    static final List<Object> kept = new ArrayList<>();
    static int times;
    @Parameterized.Parameters(name = \"{0}\") public static Object[] pages() { return new Object[] { \"a\", \"b\" }; }
    @Parameterized.Parameter public String page;
    @Test public void keeps() { kept.add(new int[100]); }
    @Test public void drops() {}
    @Test public void passesOnce() { Assert.assertTrue(times++ < 2); }
}
";

#[test]
fn the_rest_of_a_parameterized_class_is_screened_too() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let project = Project::new("junit-failing-parameters");
    let classes = junit::compile(&jdk, project.folder(), &[("PagesTest", PAGES)]);
    let java = junit::java_vintage(&jdk, &classes);
    let run = project.run_command(&java);
    run.ends_with(1);
    for (test, verdict) in
        [("keeps", Verdict::Fail), ("drops", Verdict::Pass), ("passesOnce", Verdict::NotJudged)]
    {
        for page in ["a", "b"] {
            assert_eq!(run.test(&format!("PagesTest.[{page}]/{test}[{page}]")).verdict, verdict, "{run}");
        }
    }
}

const ONCE: &str = "import org.junit.jupiter.api.*;

class AOnceTest {
    static boolean again;

    @Test
    void startsTheServer() throws Exception {
        if (again && Boolean.getBoolean(\"hangs\")) {
            Thread.sleep(Long.MAX_VALUE);
        } else if (again) {
            System.exit(0);
        }
        again = true;
    }
}
";

const MANY: &str = "class BManyTest { @org.junit.jupiter.api.RepeatedTest(30) void many() {} }";

const KEEPS: &str = "import java.util.*;

class CLeakTest {
    static final List<Object> KEPT = new ArrayList<>();
    static class Tile {}
    @org.junit.jupiter.api.Test void keeps() { KEPT.add(new Tile()); }
}
";

#[test]
fn a_class_that_cannot_be_repeated_costs_nobody_else_their_verdict() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    for (option, what) in [("-Dhangs=true", "hangs"), ("-Dhangs=false", "ends the virtual machine")] {
        let sources = [("AOnceTest", ONCE), ("BManyTest", MANY), ("CLeakTest", KEEPS)];
        let project = junit::project("junit-breaking", &jdk, &sources);
        project.write("memgate.yaml", "version: 1\nmeasure: { timeout: 3s }\n");
        let run = junit::run(&project, &jdk, &[option]);
        run.ends_with(1).says(&format!("AOnceTest {what} when it is repeated"));
        assert_eq!(run.test("com.example.CLeakTest.keeps").verdict, Verdict::Fail, "{run}");
        let once = run.test("com.example.AOnceTest.startsTheServer");
        let reason = format!("not screened: its class {what} when it is repeated");
        assert_eq!((once.verdict, once.reason), (Verdict::NotJudged, reason), "{run}");
    }
}

const INNER: &str = "import org.junit.jupiter.api.*;
import org.junit.platform.launcher.core.*;
import org.junit.platform.launcher.listeners.SummaryGeneratingListener;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

class ExtensionTest {
    @Test void reportsFailure() { Assertions.assertEquals(1, failures()); }

    @Test void reportsFailureInAnotherThread() throws Exception {
        long[] failures = new long[1];
        Thread thread = new Thread(() -> failures[0] = failures());
        thread.start();
        thread.join();
        Assertions.assertEquals(1, failures[0]);
    }

    static long failures() {
        SummaryGeneratingListener summary = new SummaryGeneratingListener();
        LauncherFactory.create().execute(LauncherDiscoveryRequestBuilder.request().selectors(selectClass(Inner.class)).build(), summary);
        return summary.getSummary().getTestsFailedCount();
    }

    static class Inner { @Test void mustFail() { Assertions.fail(\"on purpose\"); } }
}
";

const INNER4: &str = "import org.junit.*;
import org.junit.runner.*;

public class RuleTest {
    @Test public void reportsFailure() { Assert.assertEquals(1, JUnitCore.runClasses(Inner.class).getFailureCount()); }
    @Test public void isClean() {}
    public static class Inner { @Test public void mustFail() { Assert.fail(\"on purpose\"); } }
}
";

#[test]
fn what_a_test_runs_itself_is_no_test_of_the_build() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let project = Project::new("junit-inner");
    let classes = junit::compile(&jdk, project.folder(), &[("ExtensionTest", INNER), ("RuleTest", INNER4)]);
    let mut five = junit::java(&jdk, &[], &classes);
    five.retain(|word| !word.starts_with("--scan"));
    five.push("--select-class=ExtensionTest".to_owned());
    for (java, tests) in [
        (five, ["ExtensionTest.reportsFailure", "ExtensionTest.reportsFailureInAnotherThread"]),
        (junit::java4(&jdk, &classes, "RuleTest"), ["RuleTest.reportsFailure", "RuleTest.isClean"]),
    ] {
        let run = project.run_command(&java);
        run.ends_with(0);
        assert_eq!(run.suite().tests.len(), tests.len(), "{run}");
        for test in tests {
            assert_eq!(
                (run.test(test).outcome, run.test(test).verdict),
                (Outcome::Passed, Verdict::Pass),
                "{run}"
            );
        }
    }
}

#[test]
fn without_a_screen_nothing_is_judged() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let project = Project::new("junit-screen-off");
    project.write("memgate.yaml", "version: 1\nmeasure: { screen: off }\n");
    let source = "class CleanTest { @org.junit.jupiter.api.Test void isClean() {} }";
    let classes = junit::compile(&jdk, project.folder(), &[("CleanTest", source)]);
    let java = junit::java(&jdk, &[], &classes);
    let run = project.run_command(&java);
    run.ends_with(0).says("nothing was judged of 1 test");
    let report = run.report();
    assert_eq!((report.verdict, report.suites[0].verdict), (Verdict::NotJudged, Verdict::NotJudged), "{run}");
    let test = run.test("CleanTest.isClean");
    assert_eq!((test.verdict, test.reason.as_str()), (Verdict::NotJudged, "not screened: `screen: off`"));
    assert!(!run.stderr.contains("no leak"), "{run}");
}
