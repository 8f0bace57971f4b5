package com.example.tracks;

import org.junit.Test;

/** Takes its process with it. Runs only where it is asked for. */
public class CrashingTest {
    @Test
    public void ends() {
        Runtime.getRuntime().halt(3);
    }
}
