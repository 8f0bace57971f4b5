package com.example;

import org.junit.Test;

public class TileCacheTest {
    /** Leaks: twelve tiles stay in a static map for ever. */
    @Test
    public void evicts() {
        for (int i = 0; i < 12; i++) {
            Registry.cache.put(new Object(), new Registry.Tile());
        }
    }

    @Test
    public void reads() {
        Registry.cache.get(this);
    }
}
