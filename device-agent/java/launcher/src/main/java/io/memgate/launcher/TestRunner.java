package io.memgate.launcher;

/** Runs tests: with JUnit Platform if it is on the class path, else with JUnit 4. */
interface TestRunner {
    /**
     * Runs a selection; returns its outcome as the agent numbers it, and stores the outcomes of its tests in the
     * selection.
     */
    int run(Selection selection);

    /** Can this be selected? Some engines, such as Kotest's, know a test only when its class runs. */
    boolean knows(Selection selection);

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

    static boolean isThere(String name) {
        try {
            Class.forName(name, false, TestRunner.class.getClassLoader());
            return true;
        } catch (ClassNotFoundException | LinkageError missing) {
            return false;
        }
    }
}
