package com.example.tracks;

import static org.junit.Assert.assertFalse;

import org.junit.Test;

/** Each test passes only in its own process, and only once. Runs only if it is selected. */
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
