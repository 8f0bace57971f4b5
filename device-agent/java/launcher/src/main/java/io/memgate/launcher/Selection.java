package io.memgate.launcher;

/** A test class, or one test of it. */
final class Selection {
    final String suite;
    /** Name of the test as its listener told it; empty: the whole class. */
    final String test;

    Selection(String suite, String test) {
        this.suite = suite;
        this.test = test;
    }
}
