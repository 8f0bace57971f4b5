package org.junit.runner.notification;

public class RunNotifier {
    public void addListener(RunListener listener) {}

    public void removeListener(RunListener listener) {}
}
