package com.example.tracks;

import static org.junit.Assert.assertEquals;

import org.junit.Test;

/** Runs only if it is selected. */
public class FailingTest {
    @Test
    public void fails() {
        assertEquals("one line\nand another", 4, 2 + 3);
    }

    @Test
    public void keeps() {
        for (int i = 0; i < 5; i++) {
            assertEquals(1000, TileCache.load().pixels.length);
        }
    }
}
