package com.example;

import org.junit.jupiter.api.Test;

/** No leaks: each is bounded, or empties when it is used again. */
public class CachesTest {
    @Test
    public void bounded() {
        Caches.bounded();
    }

    @Test
    public void weakKeys() {
        Caches.weakKeys();
    }

    @Test
    public void weakValues() {
        Caches.weakValues();
    }

    @Test
    public void softValues() {
        Caches.softValues();
    }
}
