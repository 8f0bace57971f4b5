package io.memgate.launcher;

import io.memgate.agent.Hooks;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.Result;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/** Runs tests with only JUnit 4. */
final class JUnit4Runner implements TestRunner {
    /** Does the class have tests that the build did not run? Computed once. */
    private final Map<Selection, Boolean> parts = new HashMap<>();
    /** Classes that are not repeated. */
    private final Map<String, Boolean> skipped = new HashMap<>();

    /** A JUnit 3 suite that contains or wraps another one runs all of it: none of its tests can be repeated alone. */
    @Override
    public boolean knows(Selection selection) {
        return selection.test.isEmpty() || names(request(selection)).stream().allMatch(selection.test::equals);
    }

    @Override
    public boolean exists(String suite) {
        try {
            Class.forName(suite, false, Thread.currentThread().getContextClassLoader());
            return true;
        } catch (ClassNotFoundException missing) {
            return false;
        }
    }

    @Override
    public int run(Selection selection) {
        selection.forget();
        if (skipped.computeIfAbsent(selection.suite, TestRunner::isLoadedAnew)) {
            return Hooks.SKIPPED;
        }
        Request request = request(selection);
        if (request == null) {
            return Hooks.FAILED;
        }
        JUnitCore junit = new JUnitCore();
        Outcomes outcomes = new Outcomes(selection);
        junit.addListener(outcomes);
        Result result = junit.run(request);
        if (!result.wasSuccessful()) {
            return Hooks.FAILED;
        }
        return result.getRunCount() <= outcomes.skipped ? Hooks.SKIPPED : Hooks.PASSED;
    }

    /** The outcomes of the tests of an execution. */
    private static final class Outcomes extends RunListener {
        private final Selection selection;
        /** Tests with a failed assumption: JUnit 4 counts them among those that ran. */
        int skipped;
        private int how = Hooks.PASSED;

        Outcomes(Selection selection) {
            this.selection = selection;
        }

        @Override
        public void testStarted(Description test) {
            how = Hooks.PASSED;
        }

        @Override
        public void testFailure(Failure failure) {
            // A failure of a whole class belongs to no test.
            if (failure.getDescription().isTest() && failure.getDescription().getMethodName() != null) {
                selection.ended(name(failure.getDescription()), Hooks.FAILED);
            }
        }

        @Override
        public void testAssumptionFailure(Failure failure) {
            skipped++;
            how = Hooks.SKIPPED;
        }

        @Override
        public void testFinished(Description test) {
            selection.ended(name(test), how);
        }
    }

    @Override
    public void changed(Selection selection) {
        parts.remove(selection);
    }

    @Override
    public void close() {}

    /** {@code null}: all of its tests are left out. */
    private Request request(Selection selection) {
        Class<?> suite = suite(selection);
        Request all = Request.aClass(suite);
        if (!selection.test.isEmpty()) {
            Description test = Description.createTestDescription(suite, selection.test);
            return all.filterWith(Filter.matchMethodDescription(test));
        }
        Boolean part = parts.get(selection);
        if (part == null) {
            List<String> names = names(all);
            selection.has(new HashSet<>(names));
            long included = names.stream().filter(selection::includes).count();
            if (included == 0 && selection.leavesOut()) {
                return null;
            }
            // Names that are not understood select nothing: then all tests run.
            part = included > 0 && included < names.size();
            parts.put(selection, part);
        }
        return part ? all.filterWith(new Included(selection)) : all;
    }

    private static Class<?> suite(Selection selection) {
        try {
            return Class.forName(selection.suite);
        } catch (ClassNotFoundException missing) {
            throw new IllegalArgumentException("there is no class " + selection.suite, missing);
        }
    }

    private static List<String> names(Request request) {
        List<String> names = new ArrayList<>();
        collect(request.getRunner().getDescription(), names);
        return names;
    }

    private static void collect(Description description, List<String> names) {
        if (description.isTest()) {
            names.add(name(description));
        }
        for (Description child : description.getChildren()) {
            collect(child, names);
        }
    }

    /** The name as the agent uses it. */
    private static String name(Description test) {
        String method = test.getMethodName();
        return method == null || method.isEmpty() ? test.getDisplayName() : method;
    }

    /** The tests of a selection. */
    private static final class Included extends Filter {
        private final Selection selection;

        Included(Selection selection) {
            this.selection = selection;
        }

        @Override
        public boolean shouldRun(Description description) {
            if (description.isTest()) {
                return selection.includes(name(description));
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
            return "the tests of " + selection.suite + " that the build ran";
        }
    }
}
