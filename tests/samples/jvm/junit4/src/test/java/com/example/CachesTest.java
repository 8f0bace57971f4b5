package com.example;

import org.junit.Test;

/** No leaks: each cache is bounded, or removes stale entries at its next use. */
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
