package io.memgate.launcher;

import io.memgate.agent.Hooks;
import java.util.HashMap;
import java.util.Map;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.Result;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/** Runs tests with JUnit 4 alone. */
final class JUnit4Runner implements TestRunner {
    /** Does the class have tests that the build did not run? Looked for once. */
    private final Map<Selection, Boolean> parts = new HashMap<>();

    @Override
    public boolean knows(Selection selection) {
        return true;
    }

    @Override
    public int run(Selection selection) {
        selection.forget();
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

    /** How the tests of an execution end. */
    private static final class Outcomes extends RunListener {
        private final Selection selection;
        /** Tests of which an assumption does not hold: JUnit 4 counts them among those that ran. */
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
            // What a whole class does wrong is no test's.
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
        try {
            Class<?> suite = Class.forName(selection.suite);
            Request all = Request.aClass(suite);
            if (!selection.test.isEmpty()) {
                return all.filterWith(Filter.matchMethodDescription(Description.createTestDescription(suite, selection.test)));
            }
            Boolean part = parts.get(selection);
            if (part == null) {
                int[] counts = new int[2];
                count(all.getRunner().getDescription(), selection, counts);
                if (counts[0] == 0 && selection.leavesOut()) {
                    return null;
                }
                // Names that are not understood select nothing: then everything runs.
                part = counts[0] > 0 && counts[1] > 0;
                parts.put(selection, part);
            }
            return part ? all.filterWith(new Included(selection)) : all;
        } catch (ClassNotFoundException missing) {
            throw new IllegalArgumentException("there is no class " + selection.suite, missing);
        }
    }

    /** Counts the tests below a description: those that are included, and the others. */
    private static void count(Description description, Selection selection, int[] counts) {
        if (description.isTest()) {
            counts[selection.includes(name(description)) ? 0 : 1]++;
        }
        for (Description child : description.getChildren()) {
            count(child, selection, counts);
        }
    }

    /** As the agent names it. */
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
