package com.example;

import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;

/** Resources that the JVM releases some time after they are unreachable. */
public final class Handles {
    private static final Cleaner cleaner = Cleaner.create();

    private Handles() {}

    public static void finalized() {
        for (int i = 0; i < 10; i++) {
            new Finalized();
        }
    }

    public static void cleaned() {
        for (int i = 0; i < 10; i++) {
            cleaner.register(new byte[50], () -> { });
        }
    }

    public static int direct() {
        return ByteBuffer.allocateDirect(4096).capacity();
    }

    private static final class Finalized {
        private final long[] held = new long[20];

        @Override
        @SuppressWarnings({"deprecation", "removal"})
        protected void finalize() {
            held[0] = 1;
        }
    }
}
