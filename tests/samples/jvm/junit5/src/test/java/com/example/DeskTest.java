package com.example;

import org.junit.jupiter.api.Test;

public class DeskTest {
    /** Leaks. */
    @Test
    public void keepsCompasses() {
        Desk.compass();
        Desk.compass();
    }

    /** Leaks something else. */
    @Test
    public void keepsRulers() {
        Desk.ruler();
    }

    @Test
    public void isWiped() {}
}
