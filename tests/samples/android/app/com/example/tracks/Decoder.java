package com.example.tracks;

/** Decodes tiles in a library of the app's own. */
public final class Decoder {
    static {
        // A phone finds it among the libraries of the APK.
        System.load(System.getProperty("tracks.decoder"));
    }

    private Decoder() {}

    /** Forgets to free two blocks of what it decoded. */
    public static native int keep(int tile);

    /** Frees everything. */
    public static native int decode(int tile);
}
