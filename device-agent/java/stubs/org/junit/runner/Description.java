package org.junit.runner;

public class Description {
    public static Description createTestDescription(Class<?> suite, String name) {
        return null;
    }
}
