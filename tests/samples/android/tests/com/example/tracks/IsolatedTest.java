package com.example.tracks;

import static org.junit.Assert.assertFalse;

import org.junit.Test;

/** Each of these passes in a process of its own only, and only once. Runs only where it is asked for. */
public class IsolatedTest {
    private static boolean begun;

    @Test
    public void isTheFirst() {
        assertFalse("another test ran here before", begun);
        begun = true;
    }

    @Test
    public void isTheFirstToo() {
        assertFalse("another test ran here before", begun);
        begun = true;
    }
}
