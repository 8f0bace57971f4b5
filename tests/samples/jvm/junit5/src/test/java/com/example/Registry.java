package com.example;

import java.util.HashMap;
import java.util.Map;

final class Registry {
    static final Map<Object, Tile> cache = new HashMap<>();

    private Registry() {}

    static final class Tile {}
}
