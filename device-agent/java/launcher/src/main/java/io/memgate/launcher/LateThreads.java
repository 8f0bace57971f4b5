package io.memgate.launcher;

import java.util.Arrays;
import java.util.concurrent.locks.LockSupport;

/**
 * Threads that a window of the rounds starts and that end soon after it. If they ended in the next window, what they
 * free there could hide what that one leaves. So they are waited for.
 */
final class LateThreads {
    /** A thread may never end, so each wait is limited, and so are all together. */
    private static final long MOST_PATIENCE_NS = 500_000_000L;

    private long patience = 10_000_000_000L;

    /** Between windows it holds no thread: it would be counted with all that it keeps. */
    private Thread[] threads = new Thread[256];

    private long[] known = new long[256];
    private int count;

    /** A window begins. */
    void begin() {
        int alive = enumerate();
        if (known.length < alive) {
            known = new long[threads.length];
        }
        for (int i = 0; i < alive; i++) {
            known[i] = threads[i].getId();
            threads[i] = null;
        }
        count = alive;
        Arrays.sort(known, 0, count);
    }

    /** Waits for the threads that the window started. False: one of them is still alive. */
    boolean end() {
        int alive = enumerate();
        long begun = System.nanoTime();
        long end = begun + Math.min(MOST_PATIENCE_NS, patience);
        boolean ended = true;
        for (int i = 0; i < alive; i++) {
            Thread thread = threads[i];
            threads[i] = null;
            if (ended && Arrays.binarySearch(known, 0, count, thread.getId()) < 0) {
                ended = ends(thread, end);
            }
        }
        patience -= System.nanoTime() - begun;
        return ended;
    }

    /** {@link Thread#join(long)} waits without a limit for a thread whose {@code run} is synchronized. */
    private static boolean ends(Thread thread, long end) {
        while (thread.isAlive() && System.nanoTime() - end < 0) {
            LockSupport.parkNanos(1_000_000L);
        }
        return !thread.isAlive();
    }

    private int enumerate() {
        int alive = Thread.enumerate(threads);
        while (alive == threads.length) {
            threads = new Thread[2 * alive];
            alive = Thread.enumerate(threads);
        }
        return alive;
    }
}
