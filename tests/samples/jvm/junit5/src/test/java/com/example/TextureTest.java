package com.example;

import org.junit.jupiter.api.Test;

public class TextureTest {
    /** Leaks: 4096 bytes outside of the heap, held by a small object. */
    @Test
    public void loads() {
        Texture.load();
    }
}
