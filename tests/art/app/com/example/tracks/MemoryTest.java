package com.example.tracks;

import java.util.ArrayList;
import java.util.List;
import org.junit.Test;

/** Fills the heap, and fails because of it. */
public class MemoryTest {
    @Test
    public void fillsTheHeap() {
        List<byte[]> all = new ArrayList<>();
        while (true) {
            all.add(new byte[1 << 20]);
        }
    }
}
