package com.example;

/** Created once, at the first use. */
public enum Settings {
    INSTANCE;

    private final byte[] defaults = new byte[5000];

    public int size() {
        return defaults.length + Lazy.fonts.length;
    }

    private static final class Lazy {
        static final byte[] fonts = new byte[9000];
    }
}
