package com.example;

import org.junit.jupiter.api.Test;

public class PluginsTest {
    /** Leaks: a class loader, with the class it loaded. */
    @Test
    public void activates() throws Exception {
        Plugins.activate();
    }

    @Test
    public void loads() throws Exception {
        Plugins.load();
    }
}
