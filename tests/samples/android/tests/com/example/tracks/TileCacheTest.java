package com.example.tracks;

import static org.junit.Assert.assertEquals;

import org.junit.Test;

public class TileCacheTest {
    @Test
    public void keepsAllTiles() {
        for (int i = 0; i < 5; i++) {
            assertEquals(1000, TileCache.load().pixels.length);
        }
    }

    @Test
    public void keepsRecentTiles() {
        for (int i = 0; i < 40; i++) {
            assertEquals(1000, TileCache.loadRecent().pixels.length);
        }
    }
}
