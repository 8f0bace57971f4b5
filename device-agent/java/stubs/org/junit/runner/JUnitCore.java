package org.junit.runner;

public class JUnitCore {
    public Result run(Request request) {
        return null;
    }
}
