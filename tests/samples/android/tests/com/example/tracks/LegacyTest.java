package com.example.tracks;

import junit.framework.TestCase;

/** As tests were written before JUnit 4. Runs only where it is asked for. */
public class LegacyTest extends TestCase {
    public void testAdds() {
        assertEquals(4, Integer.parseInt("2") + 2);
    }
}
