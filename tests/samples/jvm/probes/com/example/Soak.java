package com.example;

import java.io.InputStream;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;

/** Threads that allocate, and class loaders that come and go, for N seconds after the agent's first window. */
public final class Soak {
    static final int THREADS = 64;
    static volatile boolean over;
    static final AtomicLong items = new AtomicLong();
    static final AtomicLong loaders = new AtomicLong();

    private Soak() {}

    public static void main(String[] arguments) throws Exception {
        long duration = Long.parseLong(arguments[0]) * 1_000_000_000L;
        // Ends even if no agent attaches.
        long until = System.nanoTime() + duration + 120_000_000_000L;
        boolean seen = false;
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            Thread thread = new Thread(i < 4 ? Soak::load : Soak::allocate, "soak-" + i);
            threads.add(thread);
            thread.start();
        }
        System.out.println("ready");
        System.out.flush();
        try {
            for (int window = 0; System.nanoTime() < until; window++) {
                if (window(window) && !seen) {
                    seen = true;
                    until = System.nanoTime() + duration;
                }
                // The load continues between two windows; only their distance is set here.
                Thread.sleep(100);
            }
        } finally {
            over = true;
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("over: " + items + " items, " + loaders + " loaders");
    }

    /** Needs the agent, which puts the class on the boot class path. */
    private static boolean window(int number) throws Exception {
        Class<?> hooks;
        try {
            hooks = Class.forName("io.memgate.agent.Hooks", true, null);
        } catch (ClassNotFoundException notYet) {
            return false;
        }
        try {
            if (!(Boolean) hooks.getMethod("active").invoke(null)) {
                return false;
            }
        } catch (java.lang.reflect.InvocationTargetException notYetBound) {
            return false;
        }
        hooks.getMethod("iteration", int.class).invoke(null, number);
        hooks.getMethod("testStarted", String.class, String.class).invoke(null, "com.example.Soak", "soaks");
        for (String end : new String[] {"testFinished", "window"}) {
            hooks.getMethod(end, String.class, String.class, int.class).invoke(null, "com.example.Soak", "soaks", 0);
        }
        return true;
    }

    private static void allocate() {
        ArrayDeque<Item> ring = new ArrayDeque<>();
        while (!over) {
            ring.add(deeper(ring.size() % 20));
            if (ring.size() > 500) {
                ring.remove();
            }
        }
    }

    private static Item deeper(int depth) {
        return depth > 0 ? deeper(depth - 1) : new Item();
    }

    private static void load() {
        try {
            byte[] code;
            try (InputStream in = Soak.class.getResourceAsStream("Soak$Loaded.class")) {
                code = in.readAllBytes();
            }
            while (!over) {
                Class<?> loaded = new Loader().define(code);
                loaded.getDeclaredMethod("make", int.class).invoke(null, 50);
                loaders.incrementAndGet();
            }
        } catch (Exception why) {
            throw new IllegalStateException(why);
        }
    }

    static final class Item {
        final byte[] bytes = new byte[100];

        Item() {
            items.incrementAndGet();
        }
    }

    static final class Loader extends ClassLoader {
        Class<?> define(byte[] code) {
            return defineClass("com.example.Soak$Loaded", code, 0, code.length);
        }
    }

    /** Every loader defines it again. */
    public static final class Loaded {
        static Object last;

        public static void make(int count) {
            for (int i = 0; i < count; i++) {
                last = new Loaded[] {new Loaded()};
            }
        }
    }
}
