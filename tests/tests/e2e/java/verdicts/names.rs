//! Tests of every kind have one name in all runs, by which each can be run again.

use std::collections::BTreeSet;

use memgate_e2e::{junit, jvm};
use memgate_model::Verdict;

use crate::java::verdicts::suites::{Session, sessions};

/// Test names of special kinds, without their common prefix.
const JUNIT_4: &[&str] = &[
    "LevelsTest.loads[0]",
    "LevelsTest.loads[1]",
    "LevelsTest.loads[2]",
    "LevelsTest.loads[3]",
    "AtlasTest$WhenOpen.keepsSheets",
    "AtlasTest$WhenOpen.reads",
];
const JUNIT_5: &[&str] = &[
    "LevelsTest.loads(int)[1]",
    "LevelsTest.loads(int)[2]",
    "LevelsTest.loads(int)[3]",
    "LevelsTest.loads(int)[4]",
    "AtlasTest.opens",
    "AtlasTest$WhenOpen.keepsSheets",
    "AtlasTest$WhenOpen.reads",
    "AtlasTest$WhenOpen$AndRead.closes",
    "SheetsTest.sheets()[1]",
    "SheetsTest.sheets()[2]",
    "SheetsTest.sheets()[3][1]",
    "StampsTest.keepsStamps()[1]",
    "StampsTest.keepsStamps()[2]",
];

#[test]
fn parameterised_nested_dynamic_and_repeated_tests_have_stable_ids() {
    for Session { junit, run, .. } in sessions() {
        let wanted = if *junit == "junit4" { JUNIT_4 } else { JUNIT_5 };
        let kinds = ["LevelsTest", "AtlasTest", "SheetsTest", "StampsTest"];
        let own = |id: &String| kinds.iter().any(|kind| id.starts_with(kind));
        let tests = run.suite().tests;
        let ids = tests.iter().filter_map(|test| Some(test.id.strip_prefix("com.example.")?.to_owned()));
        let seen: BTreeSet<String> = ids.filter(own).collect();
        assert_eq!(seen, wanted.iter().map(|&id| id.to_owned()).collect::<BTreeSet<_>>(), "{junit}");
    }
}

/// Classes in classes, like jqwik's groups, and scenarios of a feature, which belong to no class, like
/// Cucumber's.
const TREE_ENGINE: &str = "import java.util.*;\nimport org.junit.platform.engine.*;
import org.junit.platform.engine.discovery.*;
import org.junit.platform.engine.support.descriptor.*;
public class TreeEngine implements TestEngine {
    static final List<int[]> KEPT = new ArrayList<>();
    static class Node extends AbstractTestDescriptor {
        Node(TestDescriptor of, String kind, String name) { super(of.getUniqueId().append(kind, name), name); of.addChild(this); }
        @Override public Type getType() { return getUniqueId().toString().contains(\"[example:\") ? Type.TEST : Type.CONTAINER; }
    }
    @Override public String getId() { return \"tree\"; }
    @Override public TestDescriptor discover(EngineDiscoveryRequest request, UniqueId id) {
        EngineDescriptor root = new EngineDescriptor(id, getId());
        Node group = new Node(new Node(root, \"class\", Tiles.class.getName()), \"class\", Tiles.Group.class.getName());
        for (Node of : List.of(group, new Node(root, \"feature\", \"tiles\"))) for (String test : List.of(\"keeps\", \"drops\")) new Node(of, \"example\", test);
        List<String> wanted = new ArrayList<>();
        for (UniqueIdSelector one : request.getSelectorsByType(UniqueIdSelector.class)) wanted.add(one.getUniqueId().toString());
        for (ClassSelector one : request.getSelectorsByType(ClassSelector.class)) wanted.add(\"class:\" + one.getClassName() + \"]\");
        for (ClasspathRootSelector all : request.getSelectorsByType(ClasspathRootSelector.class)) wanted.add(\"class:\");
        for (PackageSelector all : request.getSelectorsByType(PackageSelector.class)) wanted.add(\"feature:\");
        for (TestDescriptor each : new ArrayList<>(root.getDescendants())) {
            if (each.isTest() && wanted.stream().noneMatch(each.getUniqueId().toString()::contains)) each.removeFromHierarchy();
        }
        for (TestDescriptor each : new ArrayList<>(root.getChildren())) {
            if (each.getDescendants().stream().noneMatch(TestDescriptor::isTest)) each.removeFromHierarchy();
        }
        return root;
    }
    @Override public void execute(ExecutionRequest request) { run(request.getRootTestDescriptor(), request.getEngineExecutionListener()); }
    void run(TestDescriptor of, EngineExecutionListener tell) {
        tell.executionStarted(of);
        if (of.getUniqueId().toString().endsWith(\":keeps]\")) KEPT.add(new int[100]);
        for (TestDescriptor each : of.getChildren()) run(each, tell);
        tell.executionFinished(of, TestExecutionResult.successful());
    }
}";

#[test]
fn tests_in_groups_and_scenarios_that_a_suite_selects_are_repeated_by_their_names() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let suite = "import org.junit.platform.suite.api.*;
        @Suite @IncludeEngines(\"tree\") @SelectPackages(\"com.example\") class FeaturesTest {}";
    let tiles = "class Tiles { static class Group {} }";
    let sources = [("TreeEngine", TREE_ENGINE), ("FeaturesTest", suite), ("Tiles", tiles)];
    let project = junit::project("names-tree", &jdk, &sources);
    project
        .write("classes/META-INF/services/org.junit.platform.engine.TestEngine", "com.example.TreeEngine\n");
    let run = junit::run(&project, &jdk, &[]);
    run.ends_with(1);
    for (id, verdict) in [
        ("com.example.Tiles$Group.keeps", Verdict::Fail),
        ("com.example.Tiles$Group.drops", Verdict::Pass),
        ("com.example.FeaturesTest.tiles/keeps", Verdict::Fail),
        ("com.example.FeaturesTest.tiles/drops", Verdict::Pass),
    ] {
        assert_eq!(run.test(id).verdict, verdict, "{id}: {run}");
    }
    assert_eq!(run.report().errors, [], "{run}");
}

/// A test or container of the engines below.
const NODE: &str = "import org.junit.platform.engine.*;
import org.junit.platform.engine.support.descriptor.*;
class Node extends AbstractTestDescriptor {
    final Type type;
    Node(TestDescriptor of, String kind, String name, Type type) { super(of.getUniqueId().append(kind, name), name); this.type = type; of.addChild(this); }
    @Override public Type getType() { return type; }
    @Override public boolean mayRegisterTests() { return type == Type.CONTAINER; }
}";

/// A class with two invocations, like `@ParameterizedClass` of JUnit 5.13: its tests exist only once it runs.
const TEMPLATE_ENGINE: &str = "import java.util.*;\nimport org.junit.platform.engine.*;
import org.junit.platform.engine.discovery.*;
import org.junit.platform.engine.support.descriptor.*;
public class TemplateEngine implements TestEngine {
    static final List<int[]> KEPT = new ArrayList<>();
    static class Root extends EngineDescriptor {
        final Set<String> wanted = new HashSet<>();
        Root(UniqueId id) { super(id, \"template\"); }
    }
    @Override public String getId() { return \"template\"; }
    @Override public TestDescriptor discover(EngineDiscoveryRequest request, UniqueId id) {
        Root root = new Root(id);
        for (UniqueIdSelector one : request.getSelectorsByType(UniqueIdSelector.class)) {
            if (one.getUniqueId().toString().contains(\"[method:\")) root.wanted.add(one.getUniqueId().toString());
        }
        boolean whole = !request.getSelectorsByType(ClassSelector.class).isEmpty() || !request.getSelectorsByType(ClasspathRootSelector.class).isEmpty();
        if (whole || !root.wanted.isEmpty()) new Node(root, \"class-template\", Tiles.class.getName(), TestDescriptor.Type.CONTAINER);
        return root;
    }
    @Override public void execute(ExecutionRequest request) {
        Root root = (Root) request.getRootTestDescriptor();
        EngineExecutionListener tell = request.getEngineExecutionListener();
        tell.executionStarted(root);
        for (TestDescriptor template : root.getChildren()) {
            tell.executionStarted(template);
            for (int i = 1; i <= 2; i++) {
                Node invocation = new Node(template, \"class-template-invocation\", \"#\" + i, TestDescriptor.Type.CONTAINER);
                tell.dynamicTestRegistered(invocation);
                tell.executionStarted(invocation);
                for (String name : List.of(\"keeps()\", \"drops()\")) {
                    Node test = new Node(invocation, \"method\", name, TestDescriptor.Type.TEST);
                    if (!root.wanted.isEmpty() && !root.wanted.contains(test.getUniqueId().toString())) continue;
                    tell.dynamicTestRegistered(test);
                    tell.executionStarted(test);
                    if (i == 2 && name.equals(\"keeps()\")) KEPT.add(new int[100]);
                    tell.executionFinished(test, TestExecutionResult.successful());
                }
                tell.executionFinished(invocation, TestExecutionResult.successful());
            }
            tell.executionFinished(template, TestExecutionResult.successful());
        }
        tell.executionFinished(root, TestExecutionResult.successful());
    }
}";

#[test]
fn a_test_of_a_parameterised_class_fails_for_its_own_leak() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let project = junit::project(
        "names-template",
        &jdk,
        &[("Node", NODE), ("TemplateEngine", TEMPLATE_ENGINE), ("Tiles", "class Tiles {}")],
    );
    project.write(
        "classes/META-INF/services/org.junit.platform.engine.TestEngine",
        "com.example.TemplateEngine\n",
    );
    let run = junit::run(&project, &jdk, &[]);
    run.ends_with(1);
    for (test, verdict) in
        [("[1]/keeps", Verdict::Pass), ("[2]/keeps", Verdict::Fail), ("[2]/drops", Verdict::Pass)]
    {
        assert_eq!(run.test(&format!("com.example.Tiles.{test}")).verdict, verdict, "{test}: {run}");
    }
    assert_eq!(run.report().errors, [], "{run}");
}

/// Like TestNG's engine: it names the executions of a test by numbers, and refuses a test without those it depends on.
const NUMBERS_ENGINE: &str = "import java.util.*;\nimport org.junit.platform.engine.*;
import org.junit.platform.engine.discovery.*;
import org.junit.platform.engine.support.descriptor.*;
public class NumbersEngine implements TestEngine {
    static final List<int[]> KEPT = new ArrayList<>();
    @Override public String getId() { return \"numbers\"; }
    @Override public TestDescriptor discover(EngineDiscoveryRequest request, UniqueId id) {
        EngineDescriptor root = new EngineDescriptor(id, getId());
        if (!request.getSelectorsByType(UniqueIdSelector.class).isEmpty()) throw new IllegalStateException(\"it depends on others\");
        if (request.getSelectorsByType(ClassSelector.class).isEmpty() && request.getSelectorsByType(ClasspathRootSelector.class).isEmpty()) return root;
        Node tiles = new Node(root, \"class\", Tiles.class.getName(), TestDescriptor.Type.CONTAINER);
        new Node(tiles, \"method\", \"keeps()\", TestDescriptor.Type.CONTAINER);
        new Node(tiles, \"method\", \"drops()\", TestDescriptor.Type.TEST);
        return root;
    }
    @Override public void execute(ExecutionRequest request) { run(request.getRootTestDescriptor(), request.getEngineExecutionListener()); }
    void run(TestDescriptor of, EngineExecutionListener tell) {
        tell.executionStarted(of);
        for (TestDescriptor each : new ArrayList<>(of.getChildren())) run(each, tell);
        for (int i = 0; i < 2 && of.getUniqueId().toString().endsWith(\"keeps()]\"); i++) {
            Node execution = new Node(of, \"invoc\", String.valueOf(i), TestDescriptor.Type.TEST);
            tell.dynamicTestRegistered(execution);
            tell.executionStarted(execution);
            KEPT.add(new int[100]);
            tell.executionFinished(execution, TestExecutionResult.successful());
        }
        tell.executionFinished(of, TestExecutionResult.successful());
    }
}";

/// Regression test: executions without parameters were not repeated, and a refused test was an error.
#[test]
fn tests_that_an_engine_runs_several_times_or_refuses_alone_are_judged_with_their_class() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let sources = [("Node", NODE), ("NumbersEngine", NUMBERS_ENGINE), ("Tiles", "class Tiles {}")];
    let project = junit::project("names-numbers", &jdk, &sources);
    project.write(
        "classes/META-INF/services/org.junit.platform.engine.TestEngine",
        "com.example.NumbersEngine\n",
    );
    let run = junit::run(&project, &jdk, &[]);
    run.ends_with(1);
    let class = run.test("com.example.Tiles");
    assert_eq!((class.verdict, class.leaks[0].title.as_str()), (Verdict::Fail, "2 × int[]"), "{run}");
    let suite = run.suite();
    assert_eq!(suite.verdict, Verdict::Fail, "{}", suite.reason);
    assert_eq!(run.report().errors, [], "{run}");
}

#[test]
fn tests_of_enclosed_classes_have_short_names_in_vintage_too() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let tiles = "import org.junit.*;\nimport org.junit.runner.RunWith;
        @RunWith(org.junit.experimental.runners.Enclosed.class)
        public class TilesTest {
            static final java.util.List<int[]> KEPT = new java.util.ArrayList<>();
            public static class Open {
                @Test public void keeps() { KEPT.add(new int[100]); }
                @Test public void drops() {}
            }
        }";
    let project = junit::project("names-enclosed", &jdk, &[("TilesTest", tiles)]);
    let java = junit::java_vintage(&jdk, &project.folder().join("classes"));
    let run = project.run_command(&java);
    run.ends_with(1);
    assert_eq!(run.test("com.example.TilesTest.Open/keeps").verdict, Verdict::Fail, "{run}");
    assert_eq!(run.test("com.example.TilesTest.Open/drops").verdict, Verdict::Pass, "{run}");
}

/// JUnit filters the members of a JUnit 3 suite, but not those of a suite within it.
#[test]
fn no_test_of_a_junit_3_suite_fails_for_the_leak_of_another_one_below_it() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let nested = "import java.util.*;\nimport junit.framework.*;
        public class NestedTest extends TestCase {
            static final List<int[]> KEPT = new ArrayList<>();
            public void testKeeps() { KEPT.add(new int[100]); }
            public void testDrops() {}
            public static Test suite() {
                TestSuite suite = new TestSuite(\"tiles\");
                suite.addTestSuite(NestedTest.class);
                return suite;
            }
        }";
    let project = junit::project("names-junit3", &jdk, &[("NestedTest", nested)]);
    let java = junit::java4(&jdk, &project.folder().join("classes"), "com.example.NestedTest");
    let run = project.run_command(&java);
    run.ends_with(1);
    let whole = run.test("com.example.NestedTest");
    assert!(whole.is_class && whole.verdict == Verdict::Fail, "{run}");
    // The streams do not record that JUnit would not run these alone.
    let streams = project.streams();
    let words = ["gate", "--format", "json"].map(str::to_owned).into_iter();
    let words = words.chain(streams.iter().map(|stream| stream.to_string_lossy().into_owned()));
    let gate = project.memgate(&words.collect::<Vec<_>>());
    gate.ends_with(1);
    for id in ["com.example.NestedTest.testKeeps", "com.example.NestedTest.testDrops"] {
        assert_eq!(run.test(id).verdict, Verdict::Pass, "{id}: {run}");
        assert_eq!(gate.test(id).verdict, Verdict::Pass, "{id}: {gate}");
    }
}

/// Kotlin allows names in backticks: here a name in the class file is replaced by one of the same length.
#[test]
fn classes_with_blanks_in_their_names_are_judged_and_told_by_them() {
    let Some(jdk) = jvm::jdks().into_iter().next() else { return };
    let map = "import java.util.*;\nimport org.junit.jupiter.api.*;
        class MapTest {
            static final List<Object> KEPT = new ArrayList<>();
            static class Kept_tile {}
            @Nested class When_open {
                @Test void keeps() { KEPT.add(new Kept_tile()); }
                @Test void drops() { Assertions.assertNotNull(new Kept_tile()); }
            }
        }";
    let project = junit::project("names-blanks", &jdk, &[("MapTest", map)]);
    for class in std::fs::read_dir(project.folder().join("classes/com/example")).unwrap() {
        let path = class.unwrap().path();
        // Read as Latin-1, in which each byte is a character.
        let text: String = std::fs::read(&path).unwrap().into_iter().map(char::from).collect();
        let text = text.replace("When_open", "When open").replace("Kept_tile", "Kept tile");
        let bytes: Vec<u8> = text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(path.to_str().unwrap().replace("_open", " open").replace("_tile", " tile"), bytes)
            .unwrap();
    }
    let run = junit::run(&project, &jdk, &[]);
    run.ends_with(1);
    assert_eq!(run.report().errors, [], "{run}");
    let nested = "com.example.MapTest$When open";
    assert_eq!(run.test(&format!("{nested}.drops")).verdict, Verdict::Pass, "{run}");
    let leaks = run.test(&format!("{nested}.keeps")).leaks;
    let told: Vec<_> =
        leaks.iter().map(|leak| (leak.title.as_str(), leak.frames[0].function.as_deref())).collect();
    let keeps = format!("{nested}.keeps");
    assert_eq!(told, [("1 × com.example.MapTest$Kept tile", Some(keeps.as_str()))], "{run}");
}
