package org.junit.runner;

/** As much of JUnit's as its notifier's listeners ask for. */
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
