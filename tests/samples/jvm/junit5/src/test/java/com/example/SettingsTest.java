package com.example;

import org.junit.jupiter.api.Test;

/** No leak: made once. */
public class SettingsTest {
    @Test
    public void areMadeOnce() {
        Settings.INSTANCE.size();
    }
}
