package com.example;

import java.lang.ref.ReferenceQueue;
import java.lang.ref.SoftReference;
import java.lang.ref.WeakReference;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.WeakHashMap;

/** Caches that release their entries, each at another moment. */
public final class Caches {
    private static final int BOUND = 40;

    private static final Map<Integer, byte[]> recent = new LinkedHashMap<>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<Integer, byte[]> eldest) {
            return size() > BOUND;
        }
    };
    private static final Map<Object, byte[]> weak = new WeakHashMap<>();
    private static final Deque<WeakReference<byte[]>> seen = new ArrayDeque<>();
    private static final ReferenceQueue<byte[]> gone = new ReferenceQueue<>();
    private static final Map<Integer, Soft> soft = new LinkedHashMap<>();
    private static final ReferenceQueue<byte[]> dropped = new ReferenceQueue<>();
    private static int next;

    private Caches() {}

    /** Full after eight calls. */
    public static void bounded() {
        for (int i = 0; i < 5; i++) {
            recent.put(next++, new byte[100]);
        }
    }

    /** Entries are removed at the next use after a collection. */
    public static void weakKeys() {
        weak.put(new Object(), new byte[300]);
    }

    /** Cleared references are removed too, by their queue. */
    public static void weakValues() {
        while (gone.poll() != null) {
            seen.removeFirst();
        }
        seen.addLast(new WeakReference<>(new byte[500], gone));
    }

    /** Grows until memory is short; then the next use removes cleared references. */
    public static void softValues() {
        for (Object old = dropped.poll(); old != null; old = dropped.poll()) {
            soft.remove(((Soft) old).key);
        }
        soft.put(next, new Soft(next++));
    }

    private static final class Soft extends SoftReference<byte[]> {
        final Integer key;

        Soft(Integer key) {
            super(new byte[700], dropped);
            this.key = key;
        }
    }
}
