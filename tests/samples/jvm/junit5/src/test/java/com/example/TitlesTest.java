package com.example;

import org.junit.jupiter.api.Test;

public class TitlesTest {
    /** Leaks: five pairs of strings. */
    @Test
    public void remembers() {
        for (int i = 0; i < 5; i++) {
            Titles.remember();
        }
    }
}
