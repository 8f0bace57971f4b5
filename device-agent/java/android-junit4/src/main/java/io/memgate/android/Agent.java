package io.memgate.android;

import io.memgate.agent.Hooks;

/** Is memgate's agent in this process? */
final class Agent {
    /** If the test APK contains the library, we load it. */
    private static final String LIBRARY = "memgate_agent";

    private static boolean asked;

    private Agent() {}

    static synchronized boolean isThere() {
        try {
            return Hooks.active();
        } catch (LinkageError withoutAgent) {
            return load();
        }
    }

    private static boolean load() {
        if (asked) {
            return false;
        }
        asked = true;
        try {
            System.loadLibrary(LIBRARY);
            return Hooks.active();
        } catch (LinkageError notPacked) {
            return false;
        }
    }
}
