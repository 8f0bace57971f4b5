package com.example;

import org.junit.jupiter.api.Test;

public class WatcherTest {
    /** Leaks: a thread that nobody ends. */
    @Test
    public void watches() {
        Watcher.watch();
    }

    @Test
    public void watchesAndEnds() throws InterruptedException {
        Watcher.watch().end();
    }
}
