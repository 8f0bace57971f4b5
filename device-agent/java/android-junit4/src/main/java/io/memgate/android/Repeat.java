package io.memgate.android;

import org.junit.runner.Runner;
import org.junit.runners.model.RunnerBuilder;

/**
 * Confirms a suspect: {@code am instrument -e runnerBuilder io.memgate.android.Repeat -e class
 * com.example.ATest#scrolls} repeats the test, or all chosen tests of a class, until the harness has seen enough.
 */
public final class Repeat extends RunnerBuilder {
    /** More is never needed; without a harness that stops it, it would run forever. */
    private static final int MOST_ITERATIONS = 100_000;

    public Repeat() {
        Repeated.ask();
    }

    @Override
    public Runner runnerForClass(Class<?> suite) throws Throwable {
        return Repeated.chosenTests(suite, MOST_ITERATIONS);
    }
}
