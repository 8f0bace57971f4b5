package com.example;

import static org.junit.Assert.assertEquals;

import org.junit.Test;

/** Runs in its own JVM: no other test ran before. */
public class SecondTest {
    @Test
    public void leavesNothing() {
        assertEquals("1", System.getProperty("surefire.forkNumber", "1").isEmpty() ? "" : "1");
    }
}
