package io.memgate.launcher;

import io.memgate.agent.Hooks;
import io.memgate.junit.MemgateListener;
import io.memgate.junit.TestName;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;
import java.util.Set;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ForkJoinWorkerThread;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.UniqueId;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.launcher.EngineFilter;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.LauncherSession;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.TestPlan;
import org.junit.platform.launcher.core.LauncherConfig;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs tests with JUnit Platform. Requests are made once, so that in each round only the tests themselves allocate.
 */
final class PlatformRunner implements TestRunner {
    /** {@code sheets()[3][1]}. */
    private static final Pattern NUMBERED = Pattern.compile("(.*?)((?:\\[\\d+\\])+)", Pattern.DOTALL);

    /** {@code [2]/scroll(int)[1]}, below an invocation of its class. */
    private static final Pattern OF_TEMPLATE = Pattern.compile("\\[(\\d+)\\]/(.+)", Pattern.DOTALL);

    /** The engine of a test. */
    private static final Pattern ENGINE = Pattern.compile("\\[engine:([^\\]/]+)\\]");

    /** Prefix of the system properties with the parameters that the build gave JUnit Platform. */
    private static final String PARAMETER = "memgate.parameter.";

    /**
     * Parameter with the names of listeners that the build switches off: patterns with {@code *}, separated by
     * commas.
     */
    private static final String OFF = "junit.platform.execution.listeners.deactivate";

    /**
     * Parameters that let an engine run tests in parallel. Here one thread runs them all: threads of a pool end with
     * each execution, and with them what a test left in a {@code ThreadLocal}.
     */
    private static final String[] PARALLEL = {
        "junit.jupiter.execution.parallel.enabled",
        "junit.vintage.execution.parallel.enabled",
        "cucumber.execution.parallel.enabled",
    };

    private static final String[] PLAIN_KINDS = {"method"};
    private static final String[] NUMBERED_KINDS = {"test-template", "test-factory"};

    /** A thread of a pool that was shut down may never end, so the wait for it is limited. */
    private static final long MOST_PATIENCE_NS = 1_000_000_000L;

    private Thread[] threads = new Thread[64];
    /**
     * One session for the whole virtual machine, as in a build: its listeners may start servers. Null before JUnit
     * Platform 1.8.
     */
    private final LauncherSession session = openSession();
    private final Launcher launcher = session == null ? LauncherFactory.create() : session.getLauncher();
    private final Map<Selection, LauncherDiscoveryRequest> requests = new HashMap<>();
    /** Classes that are not repeated. */
    private final Map<String, Boolean> skipped = new HashMap<>();
    private final Outcome outcome = new Outcome();
    private final Pattern off = off();

    @Override
    public boolean knows(Selection selection) {
        List<TestIdentifier> known = discovered(selection.suite);
        List<DiscoverySelector> tests;
        if (selection.test.isEmpty()) {
            tests = ownTests(selection, known);
        } else {
            DiscoverySelector test = test(selection, known);
            if (test == null) {
                return false;
            }
            tests = Collections.singletonList(test);
        }
        LauncherDiscoveryRequest request = tests.isEmpty() ? null : request(tests, known);
        if (!selection.test.isEmpty() && !runsAlone(selection, request)) {
            return false;
        }
        requests.put(selection, request);
        return true;
    }

    /**
     * A JUnit 3 suite that contains or wraps another one runs all of it, whichever of its tests is wanted. TestNG
     * refuses a test without those it depends on.
     */
    private boolean runsAlone(Selection wanted, LauncherDiscoveryRequest request) {
        try {
            return descendants(launcher.discover(request)).stream()
                    .allMatch(test -> !test.isTest() || TestName.of(test.getUniqueId()).test.equals(wanted.test));
        } catch (RuntimeException refused) {
            return false;
        }
    }

    @Override
    public int run(Selection selection) {
        selection.forget();
        if (skipped.computeIfAbsent(selection.suite, TestRunner::isLoadedAnew)) {
            return Hooks.SKIPPED;
        }
        if (!requests.containsKey(selection)) {
            knows(selection);
        }
        LauncherDiscoveryRequest request = requests.get(selection);
        if (request == null) {
            return Hooks.FAILED;
        }
        outcome.worst = Hooks.SKIPPED;
        outcome.selection = selection;
        try {
            launcher.execute(request, listeners());
        } finally {
            workersEnd();
        }
        return outcome.worst;
    }

    @Override
    public void close() {
        if (session != null) {
            session.close();
        }
    }

    /** Without execution listeners: each execution gets its own, because what they note of every test would grow. */
    private static LauncherSession openSession() {
        try {
            LauncherConfig.Builder config = LauncherConfig.builder();
            return LauncherFactory.openSession(config.enableTestExecutionListenerAutoRegistration(false).build());
        } catch (LinkageError before18) {
            return null;
        }
    }

    private static Pattern off() {
        String names = System.getProperty(PARAMETER + OFF, System.getProperty(OFF, ""));
        String literal = Pattern.quote(names.replaceAll("\\s", ""));
        return Pattern.compile(literal.replace(",", "\\E|\\Q").replace("*", "\\E.*\\Q"), Pattern.DOTALL);
    }

    private TestExecutionListener[] listeners() {
        List<TestExecutionListener> all = new ArrayList<>();
        if (session != null) {
            for (TestExecutionListener listener : ServiceLoader.load(TestExecutionListener.class)) {
                if (!off.matcher(listener.getClass().getName()).matches()) {
                    all.add(listener);
                }
            }
        }
        all.add(outcome);
        return all.toArray(new TestExecutionListener[0]);
    }

    /**
     * Engines that run tests in parallel (Spock) use a pool of the execution, whose threads end some time after it:
     * their objects would be counted at random. Pools that were shut down are waited for; other pools belong to the
     * test.
     */
    private void workersEnd() {
        int count = Thread.enumerate(threads);
        if (count == threads.length) {
            threads = new Thread[2 * count];
            count = Thread.enumerate(threads);
        }
        long end = System.nanoTime() + MOST_PATIENCE_NS;
        for (int i = 0; i < count; i++) {
            Thread thread = threads[i];
            threads[i] = null;
            ForkJoinPool pool = thread instanceof ForkJoinWorkerThread ? ((ForkJoinWorkerThread) thread).getPool() : null;
            long left = (end - System.nanoTime()) / 1_000_000;
            if (pool == null || !pool.isShutdown() || left <= 0) {
                continue;
            }
            try {
                thread.join(left);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public void changed(Selection selection) {
        requests.remove(selection);
    }

    /**
     * Each execution asks the engines for their tests, and what an engine leaves behind then would count as the
     * test's. So only the engines that know tests of the class are asked.
     */
    private static LauncherDiscoveryRequest request(List<DiscoverySelector> tests, List<TestIdentifier> known) {
        Set<String> engines = new LinkedHashSet<>();
        for (TestIdentifier test : known) {
            Matcher engine = ENGINE.matcher(test.getUniqueId());
            if (engine.lookingAt()) {
                engines.add(engine.group(1));
            }
        }
        LauncherDiscoveryRequestBuilder request =
                LauncherDiscoveryRequestBuilder.request().selectors(tests.toArray(new DiscoverySelector[0]));
        for (String name : System.getProperties().stringPropertyNames()) {
            if (name.startsWith(PARAMETER)) {
                request.configurationParameter(name.substring(PARAMETER.length()), System.getProperty(name));
            }
        }
        for (String parallel : PARALLEL) {
            request.configurationParameter(parallel, "false");
        }
        return engines.isEmpty() ? request.build() : request.filters(EngineFilter.includeEngines(engines.toArray(new String[0]))).build();
    }

    /** All tests of a class that are known before it runs. */
    private List<TestIdentifier> discovered(String suite) {
        DiscoverySelector whole = DiscoverySelectors.selectClass(suite);
        return descendants(launcher.discover(request(Collections.singletonList(whole), Collections.emptyList())));
    }

    private static List<TestIdentifier> descendants(TestPlan plan) {
        List<TestIdentifier> all = new ArrayList<>();
        for (TestIdentifier root : plan.getRoots()) {
            all.addAll(plan.getDescendants(root));
        }
        return all;
    }

    /**
     * The tests of a class that the build ran, without those of nested classes, which have their own windows. Empty:
     * all of them are left out.
     */
    private List<DiscoverySelector> ownTests(Selection selection, List<TestIdentifier> known) {
        Set<String> names = new HashSet<>();
        for (TestIdentifier test : known) {
            TestName name = TestName.of(test.getUniqueId());
            if (name.suite.equals(selection.suite) && !name.test.isEmpty()) {
                names.add(name.test);
            }
        }
        selection.has(names);
        DiscoverySelector whole = DiscoverySelectors.selectClass(selection.suite);
        List<DiscoverySelector> own = new ArrayList<>();
        boolean others = false;
        for (TestIdentifier test : known) {
            TestName name = TestName.of(test.getUniqueId());
            boolean mine = name.suite.equals(selection.suite) && !name.test.isEmpty();
            if (mine && Selection.base(name.test).isEmpty()) {
                // Parameters of JUnit 4: the tests are below them.
                continue;
            }
            if (name.suite.equals(selection.suite) && isTemplate(test)) {
                return testsOfTemplate(selection, test, known, whole);
            }
            if (mine && selection.names(name.test)) {
                own.add(DiscoverySelectors.selectUniqueId(test.getUniqueId()));
            } else if (!mine || !selection.includes(name.test)) {
                others |= mine || name.suite.startsWith(selection.suite + "$");
            }
        }
        if (own.isEmpty() && selection.leavesOut()) {
            return own;
        }
        // Names that are not understood select nothing: then all tests run.
        return others && !own.isEmpty() ? own : Collections.singletonList(whole);
    }

    /**
     * One test, or null. Tests that exist only once their template or factory runs are named by their numbers below
     * it.
     */
    private DiscoverySelector test(Selection selection, List<TestIdentifier> known) {
        Matcher numbered = NUMBERED.matcher(selection.test);
        String base = numbered.matches() ? numbered.group(1) : "";
        DiscoverySelector later = null;
        for (TestIdentifier test : known) {
            String id = test.getUniqueId();
            TestName name = TestName.of(id);
            if (!name.suite.equals(selection.suite)) {
                continue;
            }
            if (isTemplate(test)) {
                return ofTemplate(selection.test, test, known);
            }
            if (name.test.equals(selection.test)) {
                return DiscoverySelectors.selectUniqueId(id);
            }
            if (!base.isEmpty() && (name.test.equals(base) || (name.test + "()").equals(base))) {
                later = DiscoverySelectors.selectUniqueId(id + below(id, numbered.group(2)));
            }
        }
        return later;
    }

    /** JUnit 5.13 and later: what is below a class template exists only once it runs. */
    private static boolean isTemplate(TestIdentifier test) {
        String id = test.getUniqueId();
        int last = id.lastIndexOf("]/[") + 2;
        return id.startsWith("[class-template:", last) || id.startsWith("[nested-class-template:", last);
    }

    /** The tests of the class that the build ran; the whole class if one of them cannot be selected. */
    private List<DiscoverySelector> testsOfTemplate(
            Selection selection, TestIdentifier template, List<TestIdentifier> known, DiscoverySelector whole) {
        List<DiscoverySelector> own = new ArrayList<>();
        for (String test : selection.wanted()) {
            DiscoverySelector selector = ofTemplate(test, template, known);
            if (selector == null) {
                return Collections.singletonList(whole);
            }
            own.add(selector);
        }
        return own.isEmpty() && !selection.leavesOut() ? Collections.singletonList(whole) : own;
    }

    /** A test below an invocation of the class template, or null. Its name does not say which kind it is. */
    private DiscoverySelector ofTemplate(String test, TestIdentifier template, List<TestIdentifier> known) {
        Matcher parts = OF_TEMPLATE.matcher(test);
        if (!parts.matches()) {
            return null;
        }
        UniqueId invocation =
                UniqueId.parse(template.getUniqueId()).append("class-template-invocation", "#" + parts.group(1));
        Matcher numbered = NUMBERED.matcher(parts.group(2));
        String method = numbered.matches() ? numbered.group(1) : parts.group(2);
        method = method.endsWith(")") ? method : method + "()";
        for (String kind : numbered.matches() ? NUMBERED_KINDS : PLAIN_KINDS) {
            String id = invocation.append(kind, method).toString();
            String numbers = numbered.matches() ? below(id, numbered.group(2)) : "";
            DiscoverySelector selector = DiscoverySelectors.selectUniqueId(id + numbers);
            if (isKnown(selector, known)) {
                return selector;
            }
        }
        return null;
    }

    /** JUnit 6 throws if it does not know a selected test; before that it finds nothing. */
    private boolean isKnown(DiscoverySelector selector, List<TestIdentifier> known) {
        try {
            return !descendants(launcher.discover(request(Collections.singletonList(selector), known))).isEmpty();
        } catch (RuntimeException unknown) {
            return false;
        }
    }

    /** {@code [3][1]} below a factory is a test in a container. */
    private static String below(String id, String numbers) {
        String[] each = numbers.substring(1, numbers.length() - 1).split("\\]\\[");
        boolean dynamic = id.contains("[test-factory:");
        StringBuilder segments = new StringBuilder();
        for (int i = 0; i < each.length; i++) {
            String kind = !dynamic ? "test-template-invocation:#" : i + 1 < each.length ? "dynamic-container:#" : "dynamic-test:#";
            segments.append("/[").append(id.contains("[feature:") ? "iteration:" : kind).append(each[i]).append(']');
        }
        return segments.toString();
    }

    /** The outcomes of the tests of one execution, and the worst of them. */
    private static final class Outcome implements TestExecutionListener {
        int worst;
        Selection selection;

        @Override
        public synchronized void executionFinished(TestIdentifier test, TestExecutionResult result) {
            int how = MemgateListener.outcome(result);
            if (how == Hooks.FAILED || how == Hooks.PASSED && test.isTest() && worst == Hooks.SKIPPED) {
                worst = how;
            }
            TestName name = test.isTest() ? TestName.of(test.getUniqueId()) : null;
            if (name != null && name.suite.equals(selection.suite)) {
                selection.ended(name.test, how);
            }
        }
    }
}
