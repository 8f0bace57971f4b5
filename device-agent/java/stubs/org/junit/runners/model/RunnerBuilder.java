package org.junit.runners.model;

import org.junit.runner.Runner;

public abstract class RunnerBuilder {
    public abstract Runner runnerForClass(Class<?> suite) throws Throwable;
}
