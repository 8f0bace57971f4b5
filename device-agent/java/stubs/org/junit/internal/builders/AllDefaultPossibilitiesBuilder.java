package org.junit.internal.builders;

import org.junit.runner.Runner;
import org.junit.runners.model.RunnerBuilder;

public class AllDefaultPossibilitiesBuilder extends RunnerBuilder {
    public AllDefaultPossibilitiesBuilder(boolean canUseSuiteMethod) {}

    @Override
    public Runner runnerForClass(Class<?> suite) throws Throwable {
        return null;
    }
}
