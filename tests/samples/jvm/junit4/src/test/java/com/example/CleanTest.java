package com.example;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.junit.Test;

public class CleanTest {
    private static List<Object> lazy;

    /** No leak: objects made once stay, but no more are added. */
    @Test
    public void fillsOnce() {
        if (lazy == null) {
            lazy = new ArrayList<>(Collections.nCopies(1000, new Object()));
        }
    }

    @Test
    public void drops() {
        new ArrayList<>(Collections.nCopies(1000, new Object()));
    }
}
