package com.example.tracks;

import static org.junit.Assert.assertEquals;

import org.junit.Test;

/** Runs only if it is selected. */
public class FailingTest {
    @Test
    public void fails() {
        assertEquals("one line\nand another", 4, 2 + 3);
    }
}
