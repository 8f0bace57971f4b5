//! Why a JUnit suite fails, and why not: JUnit Platform's own launcher runs a few classes, without a build
//! tool.

use std::sync::OnceLock;

use memgate_e2e::jvm::{self, Jdk};
use memgate_e2e::{Project, Run, junit};
use memgate_model::{Metric, Outcome, Verdict};

const PARALLEL: &str = "junit.jupiter.execution.parallel.enabled=true
junit.jupiter.execution.parallel.mode.default=concurrent
junit.jupiter.execution.parallel.mode.classes.default=concurrent
";
const JUNIT: &str = "import java.util.*;\nimport org.junit.jupiter.api.*;\n";

fn class(source: &str) -> String {
    format!("{JUNIT}{source}")
}

fn first() -> Option<Jdk> {
    jvm::jdks().into_iter().next()
}

/// Regression: during the warm-up, the launcher's own records of the test also added an entry and a string. They
/// were freed in the third round, and that hid this growth.
#[test]
fn one_entry_with_a_new_key_in_each_execution_is_found() {
    let Some(jdk) = first() else { return };
    let kept = |class_name: &str| {
        class(&format!(
            "class {class_name} {{
                static final Map<String, Object> KEPT = new HashMap<>();
                @Test void keeps() {{ KEPT.put(\"key\" + KEPT.size(), this.getClass()); }}
            }}"
        ))
    };
    let (a, b) = (kept("FirstTest"), kept("SecondTest"));
    let project = junit::project("judge-entry", &jdk, &[("FirstTest", &*a), ("SecondTest", &*b)]);
    let run = junit::run(&project, &jdk, &[]);
    run.ends_with(1);
    for test in ["com.example.FirstTest.keeps", "com.example.SecondTest.keeps"] {
        assert_eq!(run.test(test).verdict, Verdict::Fail, "{test}: {run}");
    }
}

/// Regression: the rounds ran tests in parallel too. The pool's threads ended with each execution, and with them what
/// a test had left in a `ThreadLocal`: it passed.
#[test]
fn what_tests_in_parallel_leave_is_found_as_if_they_ran_one_after_the_other() {
    let Some(jdk) = first() else { return };
    {
        let arrays = class(
            "class ArraysTest {
                static final List<byte[]> KEPT = Collections.synchronizedList(new ArrayList<>());
                @Test void leaks() { KEPT.add(new byte[200_000]); }
            }",
        );
        let held = class(
            "class HeldTest {
                static final class Picture { final byte[] bytes = new byte[200_000]; }
                static final List<Picture> KEPT = Collections.synchronizedList(new ArrayList<>());
                @Test void leaks() { KEPT.add(new Picture()); }
            }",
        );
        let own_thread = class(
            "class OwnThreadTest {
                static final ThreadLocal<List<byte[]>> KEPT = ThreadLocal.withInitial(ArrayList::new);
                @Test void leaks() { KEPT.get().add(new byte[200_000]); }
            }",
        );
        let clean = class(
            "class CleanTest {
                @Test void formats() { Assertions.assertEquals(\"7\", String.format(\"%d\", 7)); }
                @Test void collects() { Assertions.assertEquals(1, new ArrayList<>(List.of(1)).size()); }
            }",
        );
        let sources = [
            ("ArraysTest", &*arrays),
            ("HeldTest", &*held),
            ("OwnThreadTest", &*own_thread),
            ("CleanTest", &*clean),
        ];
        let project = junit::project("judge-parallel", &jdk, &sources);
        project.write("classes/junit-platform.properties", PARALLEL);
        let settings = "version: 1\nthresholds: { java.live_bytes: 64 KiB, java.live_objects: 1000 }\n";
        project.write("memgate.yaml", settings);
        let run = junit::run(&project, &jdk, &[]);
        run.ends_with(1);
        let leaking = [
            ("ArraysTest", "byte[]"),
            ("HeldTest", "com.example.HeldTest$Picture"),
            ("OwnThreadTest", "byte[]"),
        ];
        for (test, title) in leaking {
            let leaks = run.test(&format!("com.example.{test}.leaks"));
            assert_eq!(leaks.verdict, Verdict::Fail, "{}\n{run}", leaks.reason);
            let bytes = leaks.metrics[&Metric::JavaLiveBytes].value;
            assert!((200_000.0..210_000.0).contains(&bytes), "{bytes}\n{run}");
            assert!(leaks.leaks[0].title.ends_with(title), "{}", leaks.leaks[0].title);
        }
        let fine = run.suite().tests.into_iter().filter(|test| test.verdict == Verdict::Pass).count();
        assert_eq!(fine, 2, "{run}");
    }
}

/// A class with 260 literals, each resolved in another execution. The loaded class is replaced by a larger one
/// three times.
fn late_classes() -> String {
    let literals: String = (0..260).map(|n| format!("case {n}: return \"literal {n} of many\";\n")).collect();
    let fields = |count: usize| (0..count).map(|n| format!("static long f{n};")).collect::<String>();
    class(&format!(
        "class LateTest {{
            static class Small {{ {} }}
            static class Middle {{ {} }}
            static class Large {{ {} }}
            static int executions;
            static Class<?> loaded;
            @Test void runs() throws Exception {{
                text(executions++);
                if (executions == 62) load(Small.class);
                if (executions == 112) load(Middle.class);
                if (executions == 162) load(Large.class);
            }}
            static void load(Class<?> which) throws Exception {{
                try (java.io.InputStream in = which.getResourceAsStream(which.getSimpleName().isEmpty() ? \"\" : \"LateTest$\" + which.getSimpleName() + \".class\")) {{
                    loaded = java.lang.invoke.MethodHandles.lookup().defineHiddenClass(in.readAllBytes(), false).lookupClass();
                }}
            }}
            static String text(int n) {{ switch (n) {{ {literals} default: return null; }} }}
        }}",
        fields(8),
        fields(80),
        fields(200)
    ))
}

/// A class is replaced by a larger one, as when a method handle is specialised after many calls.
#[test]
fn classes_that_are_loaded_now_and_then_are_no_leak() {
    let Some(jdk) = jvm::jdks().into_iter().last() else { return };
    let project = junit::project("judge-classes", &jdk, &[("LateTest", &late_classes())]);
    let run = junit::run_with(&project, &jdk, &["--iterations", "200"], &[]);
    run.ends_with(0);
    let test = run.test("com.example.LateTest.runs");
    assert!(test.confirmed && test.leaks.is_empty(), "{test:#?}");
}

#[test]
fn a_leak_that_fills_the_heap_is_named_with_the_error() {
    for jdk in jvm::jdks() {
        let big = class(
            "class BigTest {
                static final List<byte[]> KEPT = new ArrayList<>();
                @Test void leaks() { KEPT.add(new byte[20 << 20]); }
                @Test void isClean() { }
            }",
        );
        let clean = class("class CleanTest { @Test void isClean() { } }");
        let sources = [("BigTest", &*big), ("CleanTest", &*clean)];
        let project = junit::project("judge-big", &jdk, &sources);
        // The build's own wish for the end of memory does not end the repetitions, nor do these write a dump.
        let dump = project.folder().join("tests.hprof");
        let to_dump = format!("-XX:HeapDumpPath={}", dump.display());
        let end = ["-XX:+ExitOnOutOfMemoryError", "-XX:+HeapDumpOnOutOfMemoryError", &to_dump];
        let run = junit::run(&project, &jdk, &[&["-Xmx128m"][..], &end].concat());
        run.ends_with(1);
        assert!(!dump.exists(), "of a repetition: {run}");
        let leaks = run.test("com.example.BigTest.leaks");
        assert_eq!(leaks.verdict, Verdict::Fail, "{run}");
        for told in
            ["memory ran out after ", "OutOfMemoryError: Java heap space", "of 128.0 MiB used", "× byte[] ("]
        {
            assert!(leaks.reason.contains(told), "{told}: {}", leaks.reason);
        }
        let leak = &leaks.leaks[0];
        assert_eq!(leak.class.as_deref(), Some("byte[]"), "{leak:#?}");
        let mib = leak.bytes_per_iteration / f64::from(1 << 20);
        assert!((19.9..20.1).contains(&mib), "{leak:#?}");
        assert_eq!(leak.holder[0].name, "KEPT", "asked for before it was too late: {leak:#?}");
        for clean in ["BigTest.isClean", "CleanTest.isClean"] {
            assert_eq!(run.test(&format!("com.example.{clean}")).verdict, Verdict::Pass, "{run}");
        }
        assert!(!run.problems().contains("not measured"), "{}", run.problems());
    }
}

/// Two seconds are not enough to start a JVM: none is started, and no leak passes.
#[test]
fn what_there_is_no_time_to_confirm_is_unconfirmed_and_never_a_pass() {
    let Some(jdk) = first() else { return };
    let one = class(
        "class OneTest {
            static final List<Object> KEPT = new ArrayList<>();
            @Test void leaks() { KEPT.add(new OneTest()); }
        }",
    );
    let two = class(
        "class TwoTest {
            static final List<Object> KEPT = new ArrayList<>();
            @Test void leaks() { KEPT.add(new TwoTest()); }
            @Test void isClean() { }
        }",
    );
    let project = junit::project("judge-time", &jdk, &[("OneTest", &*one), ("TwoTest", &*two)]);
    project.write("memgate.yaml", "version: 1\nmeasure: { confirm_budget: 2s, unconfirmed: fail }\n");
    let run = junit::run(&project, &jdk, &[]);
    run.ends_with(1);
    for id in ["com.example.OneTest.leaks", "com.example.TwoTest"] {
        let test = run.test(id);
        assert_eq!((test.verdict, test.leaks.len()), (Verdict::Fail, 0), "{run}");
        let why = "the time to confirm is 2 s (measure.confirm_budget): it was over before its turn";
        assert!(test.reason.starts_with("unconfirmed: ") && test.reason.ends_with(why), "{}", test.reason);
    }
    assert_eq!(
        run.test("com.example.TwoTest.isClean").verdict,
        Verdict::NotJudged,
        "its class is open: {run}"
    );
    let left = "2 unconfirmed, because 2 s were not enough to repeat all suspects";
    assert!(run.stderr.contains(left), "{run}");
}

/// A class is loaded under another name in every JVM, as with Mockito 4.
const GENERATED: &str = "class MockTest {
    static class Stub$MockitoMock$00000000$auxiliary$11111111 { }
    static final Object KEPT = make();
    static Object make() {
        try (java.io.InputStream in = MockTest.class.getResourceAsStream(\"MockTest$Stub$MockitoMock$00000000$auxiliary$11111111.class\")) {
            String bytes = new String(in.readAllBytes(), java.nio.charset.StandardCharsets.ISO_8859_1);
            String random = UUID.randomUUID().toString().replace(\"-\", \"\");
            bytes = bytes.replace(\"00000000\", random.substring(0, 8)).replace(\"11111111\", random.substring(8, 16));
            byte[] code = bytes.getBytes(java.nio.charset.StandardCharsets.ISO_8859_1);
            var made = java.lang.invoke.MethodHandles.lookup().defineClass(code).getDeclaredConstructor();
            made.setAccessible(true);
            return made.newInstance();
        } catch (Exception why) { throw new AssertionError(why); }
    }
    @Test void isClean() { Assertions.assertNotNull(KEPT); }
}";

#[test]
fn a_baseline_knows_generated_classes_by_what_is_the_same_in_every_run() {
    let Some(jdk) = first() else { return };
    let project = junit::project("judge-generated", &jdk, &[("MockTest", &class(GENERATED))]);
    junit::run(&project, &jdk, &[]).ends_with(0);
    project.memgate(&["baseline", "accept"]).ends_with(0);
    let accepted = project.read("memgate-baseline.json");
    assert!(accepted.contains("Stub$MockitoMock$auxiliary 1/16"), "{accepted}");
    let run = junit::run(&project, &jdk, &[]);
    run.ends_with(0);
    assert!(run.stderr.contains("1 of 1 test class left no more than the baseline says"), "{run}");
}

/// Like Kotest's engine, which searches the class path each time.
const LOUD_ENGINE: &str = "import java.util.*;\nimport org.junit.platform.engine.*;
public class LoudEngine implements TestEngine {
    static final List<Object[]> KEPT = new ArrayList<>();
    @Override public String getId() { return \"loud\"; }
    @Override public TestDescriptor discover(EngineDiscoveryRequest request, UniqueId id) {
        for (int i = 0; i < 8; i++) KEPT.add(new Object[50]);
        return new org.junit.platform.engine.support.descriptor.EngineDescriptor(id, getId());
    }
    @Override public void execute(ExecutionRequest request) {}
}";

#[test]
fn what_another_engine_keeps_when_it_looks_for_tests_is_no_leak_of_a_test() {
    let Some(jdk) = first() else { return };
    let quiet =
        class("class QuietTest { @Test void isClean() { Assertions.assertEquals(1, List.of(7).size()); } }");
    let leaks = class(
        "class LeaksTest {
            static final List<int[]> KEPT = new ArrayList<>();
            @Test void leaks() { KEPT.add(new int[100]); }
        }",
    );
    let sources = [("LoudEngine", LOUD_ENGINE), ("QuietTest", &quiet), ("LeaksTest", &leaks)];
    let project = junit::project("judge-engine", &jdk, &sources);
    project
        .write("classes/META-INF/services/org.junit.platform.engine.TestEngine", "com.example.LoudEngine\n");
    let run = junit::run(&project, &jdk, &[]);
    run.ends_with(1);
    assert_eq!(run.test("com.example.QuietTest.isClean").verdict, Verdict::Pass, "{run}");
    let leaks = run.test("com.example.LeaksTest.leaks").leaks;
    let titles: Vec<&str> = leaks.iter().map(|leak| leak.title.as_str()).collect();
    assert_eq!(titles, ["1 × int[]"], "{run}");
}

/// Like Kotest's engine: a test is known only when its class runs, and cannot be selected alone.
const SPEC_ENGINE: &str = "import java.util.*;\nimport org.junit.platform.engine.*;
import org.junit.platform.engine.discovery.*;
import org.junit.platform.engine.support.descriptor.*;
public class SpecEngine implements TestEngine {
    static class Node extends AbstractTestDescriptor {
        final Class<?> of;
        final Type type;
        Node(UniqueId id, Class<?> of, String name, Type type) { super(id, name); this.of = of; this.type = type; }
        @Override public Type getType() { return type; }
        @Override public boolean mayRegisterTests() { return type == Type.CONTAINER; }
    }
    @Override public String getId() { return \"specs\"; }
    @Override public TestDescriptor discover(EngineDiscoveryRequest request, UniqueId id) {
        EngineDescriptor root = new EngineDescriptor(id, getId());
        Set<Class<?>> specs = new LinkedHashSet<>();
        for (ClassSelector of : request.getSelectorsByType(ClassSelector.class)) specs.add(of.getJavaClass());
        for (ClasspathRootSelector in : request.getSelectorsByType(ClasspathRootSelector.class)) specs.add(TileSpec.class);
        specs.retainAll(Set.of(TileSpec.class));
        for (Class<?> spec : specs) {
            root.addChild(new Node(id.append(\"spec\", spec.getName()), spec, spec.getName(), TestDescriptor.Type.CONTAINER));
        }
        return root;
    }
    @Override public void execute(ExecutionRequest request) {
        TestDescriptor root = request.getRootTestDescriptor();
        EngineExecutionListener tell = request.getEngineExecutionListener();
        tell.executionStarted(root);
        for (TestDescriptor spec : root.getChildren()) {
            tell.executionStarted(spec);
            for (Map.Entry<String, Runnable> test : TileSpec.TESTS.entrySet()) {
                UniqueId id = spec.getUniqueId().append(\"test\", test.getKey());
                Node node = new Node(id, null, test.getKey(), TestDescriptor.Type.TEST);
                node.setParent(spec);
                tell.dynamicTestRegistered(node);
                tell.executionStarted(node);
                test.getValue().run();
                tell.executionFinished(node, TestExecutionResult.successful());
            }
            tell.executionFinished(spec, TestExecutionResult.successful());
        }
        tell.executionFinished(root, TestExecutionResult.successful());
    }
}";

const TILE_SPEC: &str = "import java.util.*;
class TileSpec {
    static final List<int[]> KEPT = new ArrayList<>();
    static final Map<String, Runnable> TESTS = new TreeMap<>();
    static {
        TESTS.put(\"keeps a tile\", () -> KEPT.add(new int[100]));
        TESTS.put(\"keeps nothing\", () -> new int[100].clone());
    }
}";

#[test]
fn a_test_that_its_engine_knows_only_when_its_class_runs_is_judged_with_the_class() {
    let Some(jdk) = first() else { return };
    let project = junit::project("judge-spec", &jdk, &[("SpecEngine", SPEC_ENGINE), ("TileSpec", TILE_SPEC)]);
    project
        .write("classes/META-INF/services/org.junit.platform.engine.TestEngine", "com.example.SpecEngine\n");
    let run = junit::run(&project, &jdk, &[]);
    run.ends_with(1);
    let verdicts =
        ["com.example.TileSpec", "com.example.TileSpec.keeps a tile", "com.example.TileSpec.keeps nothing"]
            .map(|id| run.test(id).verdict);
    assert_eq!(verdicts, [Verdict::Fail, Verdict::Pass, Verdict::Pass], "{run}");
    let leaks = run.test("com.example.TileSpec").leaks;
    assert_eq!(leaks.iter().map(|leak| leak.title.as_str()).collect::<Vec<_>>(), ["1 × int[]"], "{run}");
    assert_eq!(run.report().errors, [], "{run}");
}

/// Three classes, each with a special message.
fn said() -> &'static Option<(Project, Run)> {
    static SAID: OnceLock<Option<(Project, Run)>> = OnceLock::new();
    SAID.get_or_init(|| {
        let jdk = first()?;
        let property = class(
            "class PropertyTest {
                static int n;
                @Test void sets() { n++; System.setProperty(\"com.example.key\" + n, \"value\" + n); }
            }",
        );
        let together = class(
            "@TestMethodOrder(MethodOrderer.MethodName.class) class TogetherTest {
                static final List<Object> KEPT = new ArrayList<>();
                static boolean first;
                @Test void first() { first = true; }
                @Test void second() { Assumptions.assumeTrue(first); first = false; KEPT.add(new Object()); }
            }",
        );
        let pages = class(
            "@TestMethodOrder(MethodOrderer.MethodName.class) class PagesTest {
                static final class Tile { }
                static final class Page { }
                static final List<Object> TILES = new ArrayList<>(), PAGES = new ArrayList<>();
                @Test void first() { TILES.add(new Tile()); PAGES.clear(); }
                @Test void second() { PAGES.add(new Page()); }
            }",
        );
        let sources = [("PropertyTest", &*property), ("TogetherTest", &*together), ("PagesTest", &*pages)];
        let project = junit::project("judge-words", &jdk, &sources);
        let run = junit::run(&project, &jdk, &[]);
        Some((project, run))
    })
}

#[test]
fn a_test_is_failed_for_what_grew_in_the_rounds_of_its_class() {
    let Some((_, run)) = said() else { return };
    let first = run.test("com.example.PagesTest.first");
    assert_eq!(
        (first.verdict, first.leaks[0].title.as_str()),
        (Verdict::Fail, "1 × com.example.PagesTest$Tile")
    );
    // Alone this test would grow, but the other test of its class frees what it leaves.
    let second = run.test("com.example.PagesTest.second");
    assert_eq!(second.verdict, Verdict::Pass, "{run}");
}

#[test]
fn strings_of_a_system_property_are_allocated_by_the_test_that_sets_it() {
    let Some((_, run)) = said() else { return };
    let sets = run.test("com.example.PropertyTest.sets");
    assert_eq!(sets.verdict, Verdict::Fail, "{run}");
    let calls: Vec<&str> =
        sets.leaks[0].frames.iter().filter_map(|frame| frame.function.as_deref()).collect();
    assert!(calls.contains(&"com.example.PropertyTest.sets"), "{calls:?}");
}

#[test]
fn an_assumption_that_does_not_hold_is_no_failure_and_a_class_is_no_test() {
    let Some((project, run)) = said() else { return };
    let second = run.test("com.example.TogetherTest.second");
    assert_eq!(second.verdict, Verdict::Warn, "{run}");
    assert!(second.reason.contains("it is skipped when it runs alone"), "{}", second.reason);
    assert!(!second.reason.contains("fails"), "{}", second.reason);
    let whole = run.test("com.example.TogetherTest");
    assert!(whole.is_class && whole.verdict == Verdict::Fail, "{whole:#?}");
    run.says("5 tests  screened");
    run.says("2 of 5 tests leak, 1 test class leaks as a whole");
    let metrics = project.memgate(&["report", "--format", "metrics"]);
    assert!(metrics.stdout.contains("memgate_tests{verdict=\"fail\"} 2"), "{metrics}");
    assert!(metrics.stdout.contains("memgate_test_classes{verdict=\"fail\"} 1"), "{metrics}");
}

#[test]
fn a_test_that_ends_its_virtual_machine_has_no_native_figures() {
    let Some(jdk) = first() else { return };
    let halts = class("class HaltTest { @Test void halts() { Runtime.getRuntime().halt(3); } }");
    let project = junit::project("judge-halt", &jdk, &[("HaltTest", &halts)]);
    let run = junit::run(&project, &jdk, &[]);
    let test = run.test("com.example.HaltTest.halts");
    assert_eq!((test.outcome, test.verdict), (Outcome::Crashed, Verdict::Error), "{run}");
    let of: Vec<Metric> = test.curve.iter().map(|point| point.metric).collect();
    assert!(!of.contains(&Metric::NativeLiveBytes), "{of:?}");
    assert!(!run.stderr.contains("native.live_bytes"), "{run}");
}
