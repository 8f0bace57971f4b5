package com.example;

import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;

public class AtlasTest {
    @Test
    public void opens() {}

    @Nested
    class WhenOpen {
        /** Leaks: two sheets. */
        @Test
        void keepsSheets() {
            Desk.sheet();
            Desk.sheet();
        }

        @Test
        void reads() {}

        @Nested
        class AndRead {
            @Test
            void closes() {}
        }
    }
}
