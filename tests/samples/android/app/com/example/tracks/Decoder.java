package com.example.tracks;

/** Decodes tiles in the app's own native library. */
public final class Decoder {
    static {
        // On a phone, the library is in the APK.
        System.load(System.getProperty("tracks.decoder"));
    }

    private Decoder() {}

    /** Leaks two blocks of the decoded tile. */
    public static native int keep(int tile);

    /** Frees everything. */
    public static native int decode(int tile);
}
