package io.memgate.launcher;

import java.util.Arrays;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.locks.LockSupport;

/**
 * Threads that a window of the rounds starts, and threads of pools that it gives a task. If they ended, or their task,
 * in the next window, what they free there could hide what that one leaves. So they are waited for.
 */
final class LateThreads {
    /** A thread may never end, so each wait is limited, and so are all together. */
    private static final long MOST_PATIENCE_NS = 500_000_000L;

    /** Stands for the common pool, whose threads belong to another group on some JDKs. No thread has this id. */
    private static final long COMMON_POOL = 0;

    private long patience = 10_000_000_000L;

    /** Between windows it holds no thread: it would be counted with all that it keeps. */
    private Thread[] threads = new Thread[256];

    /**
     * Ids of the threads that were at work when the last window ended, sorted; and room for those at the end of the
     * next one. Both keep their length: these arrays are counted, too.
     */
    private long[] known = new long[256];

    private long[] working = new long[256];
    private int count;

    /** A window ended. Waits for the work that it began, if {@code waits}. False: some of it goes on. */
    boolean end(boolean waits) {
        int alive = Thread.enumerate(threads);
        while (alive == threads.length) {
            threads = new Thread[2 * alive];
            alive = Thread.enumerate(threads);
        }
        if (working.length < threads.length) {
            known = Arrays.copyOf(known, threads.length);
            working = new long[threads.length];
        }
        long begun = System.nanoTime();
        long end = begun + (waits ? Math.min(MOST_PATIENCE_NS, patience) : 0);
        boolean ended = true;
        int still = 0;
        // The last one is the common pool.
        for (int i = 0; i <= alive; i++) {
            Thread thread = i < alive ? threads[i] : null;
            threads[i] = null;
            long id = thread == null ? COMMON_POOL : thread.getId();
            boolean works = works(thread);
            if (works && Arrays.binarySearch(known, 0, count, id) < 0) {
                while (works && ended && System.nanoTime() - end < 0) {
                    LockSupport.parkNanos(1_000_000L);
                    works = works(thread);
                }
                ended &= !works;
            }
            if (works) {
                working[still++] = id;
            }
        }
        long[] last = known;
        known = working;
        working = last;
        count = still;
        Arrays.sort(known, 0, count);
        patience -= System.nanoTime() - begun;
        return ended;
    }

    /** Null is the common pool. */
    private static boolean works(Thread thread) {
        return thread == null ? !ForkJoinPool.commonPool().isQuiescent() : thread.isAlive() && !rests(thread);
    }

    /** Does it wait for a task of its pool? */
    private static boolean rests(Thread thread) {
        Thread.State state = thread.getState();
        if (state != Thread.State.WAITING && state != Thread.State.TIMED_WAITING) {
            return false;
        }
        for (StackTraceElement frame : thread.getStackTrace()) {
            String method = frame.getMethodName();
            // A task has one of these below it, too: `getTask` and `awaitWork` do not call it.
            switch (frame.getClassName()) {
                case "java.util.concurrent.ThreadPoolExecutor":
                    return method.equals("getTask");
                case "java.util.concurrent.ForkJoinPool":
                    if (method.equals("awaitWork")) {
                        return true;
                    }
                    break;
                default:
            }
        }
        return false;
    }
}
