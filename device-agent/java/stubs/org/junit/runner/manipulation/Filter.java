package org.junit.runner.manipulation;

import org.junit.runner.Description;

public abstract class Filter {
    public abstract boolean shouldRun(Description description);

    public abstract String describe();

    public void apply(Object child) throws NoTestsRemainException {}

    public static Filter matchMethodDescription(Description description) {
        return null;
    }
}
