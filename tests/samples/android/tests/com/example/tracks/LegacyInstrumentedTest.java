package com.example.tracks;

import android.test.InstrumentationTestCase;

/** Only Android's own runner can create this kind of test. Runs only if it is selected. */
public class LegacyInstrumentedTest extends InstrumentationTestCase {
    public void testAdds() {
        assertEquals(4, Integer.parseInt("2") + 2);
    }
}
