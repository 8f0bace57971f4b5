package com.example;

import org.junit.jupiter.api.Test;

/** No leaks: the JVM frees them later. */
public class HandlesTest {
    @Test
    public void areFinalized() {
        Handles.finalized();
    }

    @Test
    public void areCleaned() {
        Handles.cleaned();
    }

    @Test
    public void areDirect() {
        Handles.direct();
    }
}
