package com.example.tracks;

import org.junit.Test;

/** Ends its process. Runs only if it is selected. */
public class CrashingTest {
    @Test
    public void ends() {
        Runtime.getRuntime().halt(3);
    }
}
