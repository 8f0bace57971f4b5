package com.example.tracks;

import android.test.InstrumentationTestCase;

/** Of a kind that Android's own runner alone can make. Runs only where it is asked for. */
public class LegacyInstrumentedTest extends InstrumentationTestCase {
    public void testAdds() {
        assertEquals(4, Integer.parseInt("2") + 2);
    }
}
