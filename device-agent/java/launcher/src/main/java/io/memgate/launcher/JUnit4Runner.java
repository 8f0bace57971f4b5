package io.memgate.launcher;

import io.memgate.agent.Hooks;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.Result;
import org.junit.runner.manipulation.Filter;

/** Runs tests with JUnit 4 alone. */
final class JUnit4Runner implements TestRunner {
    @Override
    public int run(Selection selection) {
        Result result = new JUnitCore().run(request(selection));
        if (!result.wasSuccessful()) {
            return Hooks.FAILED;
        }
        return result.getRunCount() == 0 ? Hooks.SKIPPED : Hooks.PASSED;
    }

    private static Request request(Selection selection) {
        try {
            Class<?> suite = Class.forName(selection.suite);
            Request all = Request.aClass(suite);
            if (selection.test.isEmpty()) {
                return all;
            }
            return all.filterWith(Filter.matchMethodDescription(Description.createTestDescription(suite, selection.test)));
        } catch (ClassNotFoundException missing) {
            throw new IllegalArgumentException("there is no class " + selection.suite, missing);
        }
    }
}
