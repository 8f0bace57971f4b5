package com.example;

import org.junit.jupiter.api.Test;

public class TileCacheTest {
    /** Leaks: twelve tiles stay in a static map forever. */
    @Test
    public void evicts() {
        for (int i = 0; i < 12; i++) {
            Registry.load();
        }
    }

    @Test
    public void reads() {
        Registry.holds(this);
    }
}
