package com.example.tracks;

import static org.junit.Assert.assertEquals;

import org.junit.Test;

public class CleanTest {
    @Test
    public void adds() {
        assertEquals(4, Integer.parseInt("2") + 2);
    }

    @Test
    public void allocatesAndForgets() {
        long sum = 0;
        for (int i = 0; i < 1000; i++) {
            sum += new int[100].length;
        }
        assertEquals(100_000, sum);
    }
}
