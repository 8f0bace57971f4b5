package com.example;

import org.junit.jupiter.api.Test;

public class MapViewTest {
    /** Leaks: a view that is never closed stays registered as a listener. */
    @Test
    public void staysOpen() {
        new MapView().open();
    }

    @Test
    public void closes() {
        new MapView().open().close();
    }
}
