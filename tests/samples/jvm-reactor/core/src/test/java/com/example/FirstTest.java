package com.example;

import static org.junit.Assert.assertEquals;

import org.junit.Test;

/** Has a virtual machine of its own: nobody was here before. */
public class FirstTest {
    @Test
    public void leavesNothing() {
        assertEquals("1", System.getProperty("surefire.forkNumber", "1").isEmpty() ? "" : "1");
    }
}
