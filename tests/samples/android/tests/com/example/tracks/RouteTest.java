package com.example.tracks;

import static org.junit.Assert.assertEquals;

import org.junit.Test;

/** The first test fails in the app's code. Runs only if it is selected. */
public class RouteTest {
    @Test
    public void readsWords() {
        assertEquals(2, Route.read("47.37,8.54 somewhere").length());
    }

    @Test
    public void readsPoints() {
        assertEquals(3, Route.read("47.37,8.54 47.38,8.55 47.39,8.56").length());
    }
}
