package com.example;

import org.junit.Test;
import org.junit.experimental.runners.Enclosed;
import org.junit.runner.RunWith;

@RunWith(Enclosed.class)
public class AtlasTest {
    public static class WhenOpen {
        /** Leaks: two sheets. */
        @Test
        public void keepsSheets() {
            Desk.sheet();
            Desk.sheet();
        }

        @Test
        public void reads() {}
    }
}
