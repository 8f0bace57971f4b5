package com.example;

/** Made at the first use, and once. */
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
