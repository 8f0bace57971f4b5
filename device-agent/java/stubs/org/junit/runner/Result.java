package org.junit.runner;

import java.util.List;
import org.junit.runner.notification.Failure;

public class Result {
    public boolean wasSuccessful() {
        return false;
    }

    public int getRunCount() {
        return 0;
    }

    public List<Failure> getFailures() {
        return null;
    }
}
