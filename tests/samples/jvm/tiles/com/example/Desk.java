package com.example;

import java.util.ArrayList;
import java.util.List;

/** Objects that are added and never removed; each test has its own class. */
public final class Desk {
    static final List<Level> levels = new ArrayList<>();
    static final List<Sheet> sheets = new ArrayList<>();
    static final List<Stamp> stamps = new ArrayList<>();
    static final List<Compass> compasses = new ArrayList<>();
    static final List<Ruler> rulers = new ArrayList<>();

    private Desk() {}

    /** Loads any level; only level 2 stays. */
    public static void load(int level) {
        Level loaded = new Level();
        if (level == 2) {
            levels.add(loaded);
        }
    }

    public static void sheet() {
        sheets.add(new Sheet());
    }

    public static void stamp() {
        stamps.add(new Stamp());
    }

    public static void compass() {
        compasses.add(new Compass());
    }

    public static void ruler() {
        rulers.add(new Ruler());
    }

    static final class Level {
        final long[] heights = new long[10];
    }

    static final class Sheet {
        final char[] text = new char[33];
    }

    static final class Stamp {
        final double value = 0.5;
    }

    static final class Compass {
        final Object needle = new Object();
    }

    static final class Ruler {
        final short[] marks = new short[7];
    }
}
