package io.memgate.android;

import org.junit.runner.Description;

/** How memgate names the tests of JUnit 4. */
final class TestName {
    private TestName() {}

    static String suite(Description test) {
        String name = test.getClassName();
        return name == null ? "" : name;
    }

    /** Parameterised tests have names like {@code scrolls[2]}. */
    static String test(Description test) {
        String method = test.getMethodName();
        return method == null || method.isEmpty() ? test.getDisplayName() : method;
    }
}
