package com.example.tracks;

import static org.junit.Assert.assertEquals;

import java.util.Arrays;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.Parameterized;
import org.junit.runners.Parameterized.Parameters;

/** One of its parameters fails. Runs only if it is selected. */
@RunWith(Parameterized.class)
public class LevelsTest {
    private final int pixels;

    public LevelsTest(int pixels) {
        this.pixels = pixels;
    }

    @Parameters
    public static Iterable<Integer> pixels() {
        return Arrays.asList(1000, 2000);
    }

    @Test
    public void keepsTheTile() {
        assertEquals(pixels, TileCache.load().pixels.length);
    }
}
