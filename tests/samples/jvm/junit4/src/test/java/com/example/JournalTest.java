package com.example;

import org.junit.Test;

public class JournalTest {
    /** Leaks: an entry, deep in a chain. */
    @Test
    public void writes() {
        Journal.write();
    }
}
