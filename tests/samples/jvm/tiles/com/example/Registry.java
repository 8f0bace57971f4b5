package com.example;

import java.util.HashMap;
import java.util.Map;

/** A static map that only ever grows. */
public final class Registry {
    static final Map<Object, Tile> cache = new HashMap<>();

    private Registry() {}

    public static void load() {
        cache.put(new Object(), new Tile());
    }

    public static boolean holds(Object key) {
        return cache.containsKey(key);
    }

    public static final class Tile {}
}
