package org.junit.runner;

public class JUnitCore {
    public void addListener(org.junit.runner.notification.RunListener listener) {}

    public Result run(Request request) {
        return null;
    }
}
