package org.junit.runner;

/** The part of JUnit's class that its notifier's listeners use. */
public final class Description {
    private final String method;

    public Description(String method) {
        this.method = method;
    }

    public String getClassName() {
        return "com.example.Attached";
    }

    public String getMethodName() {
        return method;
    }
}
