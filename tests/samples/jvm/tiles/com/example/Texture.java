package com.example;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/** Pixels outside of the Java heap. */
public final class Texture {
    static final List<Texture> loaded = new ArrayList<>();

    private final ByteBuffer pixels = ByteBuffer.allocateDirect(4096);

    public static void load() {
        loaded.add(new Texture());
    }

    public int size() {
        return pixels.capacity();
    }
}
