package com.example.tracks;

import static org.junit.Assert.assertTrue;
import static org.junit.Assume.assumeTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.Test;

/** Two of its tests cannot be repeated. Runs only if it is selected. */
public class OnceTest {
    private static final List<TileCacheTest> KEPT = new ArrayList<>();
    private static boolean welcomed;
    private static boolean registered;

    @Test
    public void registersOnce() {
        assertTrue(!registered);
        registered = true;
    }

    @Test
    public void welcomesOnce() {
        assumeTrue(!welcomed);
        welcomed = true;
    }

    @Test
    public void keeps() {
        KEPT.add(new TileCacheTest());
    }
}
