package org.junit.runner;

import org.junit.runner.manipulation.Filter;

public abstract class Request {
    public abstract Runner getRunner();

    public static Request aClass(Class<?> suite) {
        return null;
    }

    public Request filterWith(Filter filter) {
        return null;
    }
}
