package io.memgate.launcher;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** A test class, or one test of it. */
final class Selection {
    final String suite;
    /** Name of the test as its listener told it; empty: the whole class. */
    final String test;
    /** Of a whole class, the tests that the build ran; empty: all. */
    private final Set<String> only = new HashSet<>();
    /** Tests that failed in the last execution. */
    final List<String> failed = new ArrayList<>();
    /** Tests that are left out because they fail when they are repeated, without the numbers of invocations. */
    private final Set<String> leftOut = new HashSet<>();

    Selection(String suite, String test) {
        this.suite = suite;
        this.test = test;
    }

    void add(String name) {
        only.add(name);
    }

    /**
     * Did the build run this test, or an invocation of it? Before it runs, a parameterised test is known without the number of the
     * invocation: {@code scroll(int)} stands for {@code scroll(int)[2]}.
     */
    boolean includes(String name) {
        if (leftOut.contains(base(name))) {
            return false;
        }
        if (only.isEmpty() || only.contains(name)) {
            return true;
        }
        for (String test : only) {
            String rest = test.startsWith(name) ? test.substring(name.length()) : "";
            if (rest.startsWith("[") || rest.startsWith("()[") || rest.startsWith("/")) {
                return true;
            }
        }
        return false;
    }

    /** Leaves out what failed, all invocations of a test together. */
    void leaveOutFailed() {
        for (String name : failed) {
            leftOut.add(base(name));
        }
    }

    boolean leavesOut() {
        return !leftOut.isEmpty();
    }

    private static String base(String name) {
        int number = name.indexOf('[');
        String base = number < 0 ? name : name.substring(0, number);
        return base.endsWith("()") ? base.substring(0, base.length() - 2) : base;
    }
}
