package com.example.tracks;

import static org.junit.Assert.assertEquals;

import org.junit.Test;

/** Runs only where it is asked for. */
public class FailingTest {
    @Test
    public void fails() {
        assertEquals("one line\nand another", 4, 2 + 3);
    }
}
