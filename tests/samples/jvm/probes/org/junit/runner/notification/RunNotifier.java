package org.junit.runner.notification;

import org.junit.runner.Description;

/** The methods of JUnit's class that report tests. */
public class RunNotifier {
    public int told;

    public void fireTestStarted(Description description) {
        told++;
    }

    public void fireTestFinished(Description description) {
        told++;
    }
}
