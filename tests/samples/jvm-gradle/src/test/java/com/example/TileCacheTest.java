package com.example;

import static org.junit.Assert.assertEquals;

import java.util.HashMap;
import java.util.Map;
import org.junit.Test;

public class TileCacheTest {
    static final class Tile {
        final byte[] pixels = new byte[100];
    }

    static final Map<Integer, Tile> CACHE = new HashMap<>();

    @Test
    public void evicts() {
        for (int i = 0; i < 5; i++) {
            CACHE.put(CACHE.size(), new Tile());
        }
        assertEquals(0, CACHE.size() % 5);
    }
}
