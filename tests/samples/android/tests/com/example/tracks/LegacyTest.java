package com.example.tracks;

import junit.framework.TestCase;

/** A test in the style before JUnit 4. Runs only if it is selected. */
public class LegacyTest extends TestCase {
    public void testAdds() {
        assertEquals(4, Integer.parseInt("2") + 2);
    }
}
