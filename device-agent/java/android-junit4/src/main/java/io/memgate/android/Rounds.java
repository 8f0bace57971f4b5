package io.memgate.android;

import org.junit.runner.Runner;
import org.junit.runners.model.RunnerBuilder;

/**
 * Screens each test class: {@code am instrument -e runnerBuilder io.memgate.android.Rounds} runs it up to eight
 * times. A window ends after each execution, and is measured from the third on, until the harness has seen enough.
 */
public final class Rounds extends RunnerBuilder {
    private static final int ROUNDS = 8;
    /** Rounds before the first measured one. */
    private static final int WARM_UP = 2;

    public Rounds() {
        Repeated.ask();
    }

    @Override
    public Runner runnerForClass(Class<?> suite) throws Throwable {
        return Repeated.wholeClass(suite, ROUNDS, WARM_UP);
    }
}
