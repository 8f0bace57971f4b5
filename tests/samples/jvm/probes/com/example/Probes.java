package com.example;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** The probes, which stand for tests. */
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

    /** Requests more than any heap has, and continues. */
    public static void asksForTooMuch() {
        try {
            kept.add(new long[Integer.MAX_VALUE]);
        } catch (OutOfMemoryError expected) {
            kept.clear();
        }
    }

    public static void isClean() {}

    /** Keeps 700 of 7000 notes. */
    public static void writesNotes() {
        for (int i = 0; i < 7000; i++) {
            Note note = new Note(i);
            if (i % 10 == 0) {
                kept.add(note);
            }
        }
        kept.add(new Draft());
    }

    /** Fills most of the heap, then releases it. */
    public static void nearlyFillsTheHeap() throws Exception {
        List<Block> blocks = new ArrayList<>();
        long max = Runtime.getRuntime().maxMemory();
        for (long bytes = 0; bytes < max / 100 * 70; bytes += 8016) {
            blocks.add(new Block());
            if (blocks.size() % 200 == 0) {
                Thread.sleep(5);
            }
        }
        // Wait for readers; a little garbage for readers that sample at allocations.
        for (int i = 0; i < 200; i++) {
            kept.add(new byte[64 << 10]);
            kept.clear();
            Thread.sleep(5);
        }
        if (blocks.isEmpty()) {
            throw new IllegalStateException();
        }
    }

    /** Allocates far more than fits into the heap, and keeps nothing. */
    public static void makesGarbage() {
        long sum = 0;
        for (int i = 0; i < 50_000; i++) {
            sum += new Block().words.length;
        }
        if (sum == 0) {
            throw new IllegalStateException();
        }
    }

    /** Makes 100 notes, then waits for 1, 2, 3 in the file `go`; writes its progress to the file `at`. */
    public static void writesNotesWhenTold() throws Exception {
        Path go = Path.of("go");
        for (int round = 0; round < 4; round++) {
            for (int i = 0; i < 100; i++) {
                kept.add(new Note(i));
            }
            Files.writeString(Path.of("at"), Integer.toString(round));
            while (round < 3 && !(Files.exists(go) && Files.readString(go).equals(Integer.toString(round + 1)))) {
                Thread.sleep(5);
            }
        }
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

    static final java.util.Map<String, Session> sessions = new java.util.HashMap<>();

    /** Keeps two closed sessions and an open one. */
    public static void forgetsSessions() {
        for (String user : new String[] {"ann", "bob", "eve"}) {
            Session session = new Session();
            session.closed = !user.equals("eve");
            sessions.put(user, session);
        }
    }

    public static void fails() {
        throw new AssertionError("as it is meant to");
    }

    public static void endsSessions() {
        sessions.clear();
    }

    /** Ends the JVM without shutdown hooks. */
    public static void halts() {
        Runtime.getRuntime().halt(0);
    }

    public static final class Session {
        boolean closed;
        final byte[] buffer = new byte[4000];
    }
}
