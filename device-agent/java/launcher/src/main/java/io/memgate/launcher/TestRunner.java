package io.memgate.launcher;

import java.lang.annotation.Annotation;
import java.util.regex.Pattern;

/** Runs tests: with JUnit Platform if it is on the class path, else with JUnit 4. */
interface TestRunner {
    /** Annotations like {@code @QuarkusTest} and {@code @RunWith(PowerMockRunner.class)}. */
    Pattern LOADS_ANEW = Pattern.compile(
            "^@io\\.quarkus\\.test\\.junit\\.(\\w+\\.)*Quarkus\\w*Test\\b"
                    + "|^@org\\.junit\\.runner\\.RunWith\\(.*\\borg\\.powermock\\.modules\\.junit4\\.");

    /**
     * Runs a selection; returns its outcome as the agent numbers it, and stores the outcomes of its tests in the
     * selection.
     */
    int run(Selection selection);

    /** Can this be selected? Some engines, such as Kotest's, know a test only when its class runs. */
    boolean knows(Selection selection);

    /** JUnit 4's runner of Cucumber names a feature where others name the class. */
    default boolean exists(String suite) {
        return true;
    }

    /** Part of the selection is left out from now on. */
    void changed(Selection selection);

    /** No more tests run. */
    void close();

    static TestRunner find() throws ClassNotFoundException {
        if (isThere("org.junit.platform.launcher.core.LauncherFactory")) {
            return new PlatformRunner();
        }
        if (isThere("org.junit.runner.JUnitCore")) {
            return new JUnit4Runner();
        }
        throw new ClassNotFoundException("neither JUnit Platform's launcher nor JUnit 4 is on the class path");
    }

    /**
     * Quarkus starts the application, and PowerMock loads the tested classes, with new class loaders for each
     * execution: what the tests keep is gone, and what grows is kept by Quarkus or PowerMock.
     */
    static boolean isLoadedAnew(String suite) {
        boolean hasRunner = false;
        try {
            Class<?> outer = Class.forName(suite, false, Thread.currentThread().getContextClassLoader());
            for (; outer != null; outer = outer.getEnclosingClass()) {
                for (Class<?> at = outer; at != null; at = at.getSuperclass()) {
                    for (Annotation annotation : at.getDeclaredAnnotations()) {
                        // With its values: the runner of @RunWith. The nearest runner counts.
                        String text = annotation.toString();
                        boolean isRunner = text.startsWith("@org.junit.runner.RunWith(");
                        if (!(isRunner && hasRunner) && LOADS_ANEW.matcher(text).find()) {
                            return true;
                        }
                        hasRunner |= isRunner;
                    }
                }
            }
        } catch (ClassNotFoundException | LinkageError unknown) {
            // A test without a class, or one that an engine loads in another way: it runs.
        }
        return false;
    }

    static boolean isThere(String name) {
        try {
            Class.forName(name, false, TestRunner.class.getClassLoader());
            return true;
        } catch (ClassNotFoundException | LinkageError missing) {
            return false;
        }
    }
}
