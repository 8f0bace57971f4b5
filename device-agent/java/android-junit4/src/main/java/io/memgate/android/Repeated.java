package io.memgate.android;

import io.memgate.agent.Hooks;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import junit.framework.TestCase;
import org.junit.Test;
import org.junit.internal.builders.AllDefaultPossibilitiesBuilder;
import org.junit.internal.runners.ErrorReportingRunner;
import org.junit.runner.Description;
import org.junit.runner.RunWith;
import org.junit.runner.Runner;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.manipulation.Filterable;
import org.junit.runner.manipulation.NoTestsRemainException;
import org.junit.runner.manipulation.Sortable;
import org.junit.runner.manipulation.Sorter;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;
import org.junit.runner.notification.RunNotifier;

/**
 * A test class that runs several times in one process, with all listeners of the run, so that its executions can be
 * compared with each other. Without the agent it runs once.
 */
final class Repeated extends Runner implements Filterable, Sortable {
    private static final String ANDROID_RUNNER = "androidx.test.internal.runner.junit4.AndroidJUnit4ClassRunner";
    /** The runners that JUnit 4.12 and 4.13 build for a class that names no runner. */
    private static final List<String> PLAIN_RUNNERS =
            Arrays.asList("org.junit.runners.BlockJUnit4ClassRunner", "org.junit.runners.JUnit4");

    private static volatile boolean asked;

    private final Class<?> suite;
    private Runner once;
    private final List<Filter> filters = new ArrayList<>();
    private final List<Sorter> sorters = new ArrayList<>();
    private final int most;
    private final int warmUp;
    /** A single test is reported by its own name, not by its class. */
    private final boolean namesTests;

    private Repeated(Class<?> suite, Runner once, int most, int warmUp, boolean namesTests) {
        this.suite = suite;
        this.once = once;
        this.most = most;
        this.warmUp = warmUp;
        this.namesTests = namesTests;
    }

    /** A run that repeats: single tests are not reported. */
    static void ask() {
        asked = true;
    }

    static boolean isAsked() {
        return asked;
    }

    /** For rounds over whole classes. */
    static Runner wholeClass(Class<?> suite, int most, int warmUp) throws Throwable {
        Runner once = once(suite);
        return once == null ? null : new Repeated(suite, once, most, warmUp, false);
    }

    /** For the tests of a class that were chosen, one or several. */
    static Runner chosenTests(Class<?> suite, int most) throws Throwable {
        Runner once = once(suite);
        return once == null ? null : new Repeated(suite, once, most, 0, true);
    }

    /** {@code null}: it contains no test that JUnit can repeat; another builder makes its runner. */
    private static Runner once(Class<?> suite) throws Throwable {
        if (!holdsTests(suite)) {
            return null;
        }
        // The tests of the class itself were chosen, not those of a `suite()` method.
        Runner once = new AllDefaultPossibilitiesBuilder(false).runnerForClass(suite);
        return PLAIN_RUNNERS.contains(once.getClass().getName()) && !suite.isAnnotationPresent(RunWith.class)
                ? ofAndroid(suite, once)
                : once;
    }

    /** Built as AndroidJUnitRunner does, so that {@code @UiThreadTest} works. */
    private static Runner ofAndroid(Class<?> suite, Runner plain) {
        try {
            Class<?> runner = Class.forName(ANDROID_RUNNER, true, suite.getClassLoader());
            return (Runner) runner.getConstructor(Class.class).newInstance(suite);
        } catch (ReflectiveOperationException | LinkageError isNotThere) {
            return plain;
        }
    }

    /** If the runner scans an APK, it also builds classes that only look like tests. */
    private static boolean holdsTests(Class<?> suite) {
        if (suite.isAnnotationPresent(RunWith.class)) {
            return true;
        }
        boolean isTestCase = isTestCase(suite);
        for (Method method : suite.getMethods()) {
            if (method.isAnnotationPresent(Test.class) || isTestCase && method.getName().startsWith("test")) {
                return true;
            }
        }
        return false;
    }

    /** A test case of JUnit 3. Android's own kinds need Android's runner. */
    private static boolean isTestCase(Class<?> suite) {
        for (Class<?> of = suite; of != null; of = of.getSuperclass()) {
            if (of.getName().startsWith("android.test.")) {
                return false;
            }
        }
        return TestCase.class.isAssignableFrom(suite);
    }

    @Override
    public Description getDescription() {
        return once.getDescription();
    }

    @Override
    public void run(RunNotifier notifier) {
        if (!Agent.isThere() || !Hooks.isLauncher()) {
            once.run(notifier);
            return;
        }
        List<Description> tests = new ArrayList<>();
        addTests(once.getDescription(), tests);
        String suite = tests.isEmpty() ? once.getDescription().getDisplayName() : TestName.suite(tests.get(0));
        String test = namesTests && tests.size() == 1 ? TestName.test(tests.get(0)) : "";
        Counting counting = new Counting();
        notifier.addListener(counting);
        try {
            repeat(notifier, counting, tests, suite, test);
        } finally {
            notifier.removeListener(counting);
        }
    }

    private void repeat(RunNotifier notifier, Counting counting, List<Description> tests, String suite, String test) {
        for (int round = 0; round < most; round++) {
            Hooks.iteration(round);
            Hooks.testStarted(suite, test);
            counting.reset();
            if (round > 0) {
                once = again();
            }
            once.run(notifier);
            if (round < warmUp) {
                Hooks.testFinished(suite, test, counting.outcome());
                leaveOut(suite, tests, counting.failures);
                if (round == warmUp - 1) {
                    tell(suite, counting.skips, Hooks.SKIPPED);
                }
                // If it were released in the first measured window, it would hide a leak of the same size.
                counting.reset();
            } else if ((Hooks.window(suite, test, counting.outcome()) & (Hooks.STOP | Hooks.DONE)) != 0) {
                return;
            }
        }
    }

    /** The other tests of a class can be compared with themselves, as long as all rounds run the same tests. */
    private void leaveOut(String suite, List<Description> tests, Set<String> failed) {
        Without rest = new Without(failed);
        List<Description> left = new ArrayList<>();
        for (Description test : tests) {
            if (rest.shouldRun(test)) {
                left.add(test);
            }
        }
        if (!failed.isEmpty() && !left.isEmpty()) {
            tell(suite, failed, Hooks.FAILED);
            filters.add(rest);
            tests.retainAll(left);
        }
    }

    private static void tell(String suite, Set<String> tests, int outcome) {
        for (String test : tests) {
            Hooks.testStarted(suite, test);
            Hooks.testFinished(suite, test, outcome);
        }
    }

    /**
     * A runner of its own for each round, as in each run of a build: the runners of JUnit 3 and of parameterised tests
     * keep the test objects, with everything in their fields.
     */
    private Runner again() {
        try {
            Runner runner = once(suite);
            for (Filter filter : filters) {
                filter.apply(runner);
            }
            for (Sorter sorter : sorters) {
                sorter.apply(runner);
            }
            return runner;
        } catch (Throwable why) {
            return new ErrorReportingRunner(suite, why);
        }
    }

    private static void addTests(Description description, List<Description> tests) {
        if (description.isTest()) {
            tests.add(description);
        }
        for (Description child : description.getChildren()) {
            addTests(child, tests);
        }
    }

    @Override
    public void filter(Filter filter) throws NoTestsRemainException {
        filters.add(filter);
        filter.apply(once);
    }

    @Override
    public void sort(Sorter sorter) {
        sorters.add(sorter);
        sorter.apply(once);
    }

    /** Leaves out tests, with all invocations of each. */
    private static final class Without extends Filter {
        private final Set<String> methods = new HashSet<>();

        Without(Set<String> tests) {
            for (String test : tests) {
                methods.add(method(test));
            }
        }

        private static String method(String test) {
            int parameter = test.indexOf('[');
            return parameter < 0 ? test : test.substring(0, parameter);
        }

        @Override
        public boolean shouldRun(Description description) {
            if (description.isTest()) {
                return !methods.contains(method(TestName.test(description)));
            }
            for (Description child : description.getChildren()) {
                if (shouldRun(child)) {
                    return true;
                }
            }
            return false;
        }

        @Override
        public String describe() {
            return "without " + methods;
        }
    }

    /** How one round ended. */
    private static final class Counting extends RunListener {
        private int finished;
        private int failed;
        private int skipped;
        private final Set<String> failures = new HashSet<>();
        private final Set<String> skips = new HashSet<>();

        void reset() {
            finished = 0;
            failed = 0;
            skipped = 0;
            failures.clear();
            skips.clear();
        }

        int outcome() {
            if (failed > 0) {
                return Hooks.FAILED;
            }
            return finished > skipped ? Hooks.PASSED : Hooks.SKIPPED;
        }

        @Override
        public void testFinished(Description test) {
            finished++;
        }

        @Override
        public void testFailure(Failure failure) {
            failed++;
            note(failures, failure);
        }

        @Override
        public void testAssumptionFailure(Failure failure) {
            skipped++;
            note(skips, failure);
        }

        /** A failure before or after the tests of a class is none of a test. */
        private static void note(Set<String> tests, Failure failure) {
            if (failure.getDescription().isTest()) {
                tests.add(TestName.test(failure.getDescription()));
            }
        }
    }
}
