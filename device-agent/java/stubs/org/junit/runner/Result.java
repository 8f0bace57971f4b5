package org.junit.runner;

public class Result {
    public boolean wasSuccessful() {
        return false;
    }

    public int getRunCount() {
        return 0;
    }
}
