package com.example;

import java.util.ArrayList;
import java.util.List;

/** What tests could do. */
public final class Probes {
    static final List<Object> kept = new ArrayList<>();

    private Probes() {}

    /** Fills the heap. */
    public static void fillsTheHeap() {
        List<Block> blocks = new ArrayList<>();
        while (true) {
            blocks.add(new Block());
        }
    }

    /** Asks for more than any heap has, and goes on. */
    public static void asksForTooMuch() {
        try {
            kept.add(new long[Integer.MAX_VALUE]);
        } catch (OutOfMemoryError expected) {
            kept.clear();
        }
    }

    public static void isClean() {}

    /** 700 of 7000 notes stay. */
    public static void writesNotes() {
        for (int i = 0; i < 7000; i++) {
            Note note = new Note(i);
            if (i % 10 == 0) {
                kept.add(note);
            }
        }
        kept.add(new Draft());
    }

    public static final class Block {
        final long[] words = new long[1000];
    }

    public static final class Note {
        final int number;

        Note(int number) {
            this.number = number;
        }
    }

    public static final class Draft {}
}
