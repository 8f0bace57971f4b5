package com.example.api;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class SessionsTest {
    @Test
    void runsInItsModule() {
        assertEquals("com.example.api", Sessions.class.getModule().getName());
    }

    @Test
    void opens() {
        for (int i = 0; i < 3; i++) {
            Sessions.open();
        }
    }

    /** End-to-end tests select it by `-Dtest=`, or exclude it. */
    @Test
    void leftOut() {
        assertTrue(Boolean.getBoolean("api.everything"), "this test was not to run");
    }
}
