package com.example;

import org.junit.Test;

/** No leak: made once. */
public class SettingsTest {
    @Test
    public void areMadeOnce() {
        Settings.INSTANCE.size();
    }
}
