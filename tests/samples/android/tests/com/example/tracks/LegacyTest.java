package com.example.tracks;

import java.util.ArrayList;
import java.util.List;
import junit.framework.TestCase;

/** A test in the style before JUnit 4: what its object keeps goes with it. Runs only if it is selected. */
public class LegacyTest extends TestCase {
    private final List<byte[]> tiles = new ArrayList<>();

    public void testAdds() {
        for (int i = 0; i < 5; i++) {
            tiles.add(new byte[1000]);
        }
        assertEquals(4, Integer.parseInt("2") + 2);
    }
}
