package com.example.tracks;

import static org.junit.Assert.assertEquals;

import org.junit.Test;

/** Tests native code; runs where the agent is preloaded. */
public class DecoderTest {
    @Test
    public void keepsWhatItDecoded() {
        assertEquals(14, Decoder.keep(7));
    }

    @Test
    public void freesWhatItDecoded() {
        assertEquals(7, Decoder.decode(7));
    }
}
