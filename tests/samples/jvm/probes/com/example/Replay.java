package com.example;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;

/** No tests: {@code Replay WHAT N} repeats its work N times and leaks, rests, or halts without shutdown hooks. */
public final class Replay {
    private static final List<Record> kept = new ArrayList<>();
    private static final Deque<Record> recent = new ArrayDeque<>();

    private Replay() {}

    public static void main(String[] arguments) {
        boolean leaks = arguments[0].equals("leaks");
        for (int i = 0; i < Integer.parseInt(arguments[1]); i++) {
            Record record = new Record();
            if (leaks) {
                kept.add(record);
                kept.add(new Record());
            }
            recent.addLast(record);
            if (recent.size() > 3) {
                recent.removeFirst();
            }
        }
        if (arguments[0].equals("halts")) {
            Runtime.getRuntime().halt(0);
        }
    }

    private static final class Record {
        final short[] samples = new short[7];
    }
}
