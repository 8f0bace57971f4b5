package com.example.tracks;

import static org.junit.Assert.assertEquals;

import java.util.Collections;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.Parameterized;
import org.junit.runners.Parameterized.Parameters;

/** A parameterized class with one test and one parameter. Runs only if it is selected. */
@RunWith(Parameterized.class)
public class ZoomTest {
    private final int pixels;

    public ZoomTest(int level, int pixels) {
        this.pixels = pixels;
    }

    @Parameters(name = "level={0},pixels={1}")
    public static Iterable<Object[]> levels() {
        return Collections.singletonList(new Object[] {3, 1000});
    }

    @Test
    public void keepsTheTile() {
        assertEquals(pixels, TileCache.load().pixels.length);
    }
}
