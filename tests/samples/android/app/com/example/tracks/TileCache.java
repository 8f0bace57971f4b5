package com.example.tracks;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/** Map tiles in two caches: one only grows, one does not. */
public final class TileCache {
    /** A tile. */
    static final class Tile {
        final byte[] pixels = new byte[1000];
    }

    private static final Map<String, Tile> ALL = new HashMap<>();
    private static final Map<String, Tile> RECENT = new LinkedHashMap<>(64, 0.75f, true) {
        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Tile> eldest) {
            return size() > 16;
        }
    };
    private static int loaded;

    private TileCache() {}

    static Tile load() {
        loaded++;
        return ALL.computeIfAbsent("tile" + loaded, name -> new Tile());
    }

    static Tile loadRecent() {
        loaded++;
        return RECENT.computeIfAbsent("tile" + loaded, name -> new Tile());
    }
}
