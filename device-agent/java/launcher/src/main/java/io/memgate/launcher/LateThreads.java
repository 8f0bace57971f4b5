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

    /** A thread that was just given a task seems to wait for one until it runs. */
    private static final long UNTIL_IT_RUNS_NS = 200_000L;

    /** Stands for the common pool, whose threads belong to another group on some JDKs. No thread has this id. */
    private static final long COMMON_POOL = 0;

    /** What a thread does. */
    private enum Work {
        /** Nothing: it has ended, or waits for a task of its pool. */
        NONE,
        /** It may end soon: it belongs to no pool, or its pool has a delayed task. */
        THREAD,
        /** A task of its pool. */
        TASK
    }

    private long patience = 10_000_000_000L;

    /** Between windows it holds no thread: it would be counted with all that it keeps. */
    private Thread[] threads = new Thread[256];

    /**
     * Marks that the last window left, sorted: of each thread, and of each that was at a task of its pool. And room for
     * those of the next one. Both keep their length: these arrays are counted, too.
     */
    private long[] known = new long[2 * 257];

    private long[] next = new long[2 * 257];
    private int count;

    /** A window ended. Waits for the work that it began, if {@code waits}. False: some of it goes on. */
    boolean end(boolean waits) {
        if (waits) {
            LockSupport.parkNanos(UNTIL_IT_RUNS_NS);
        }
        int alive = Thread.enumerate(threads);
        while (alive == threads.length) {
            threads = new Thread[2 * alive];
            alive = Thread.enumerate(threads);
        }
        if (known.length < 2 * (threads.length + 1)) {
            known = Arrays.copyOf(known, 2 * (threads.length + 1));
            next = new long[known.length];
        }
        long left = waits ? Math.min(MOST_PATIENCE_NS, patience) : 0;
        boolean ended = true;
        int marks = 0;
        // The last one is the common pool.
        for (int i = 0; i <= alive; i++) {
            Thread thread = i < alive ? threads[i] : null;
            threads[i] = null;
            long id = thread == null ? COMMON_POOL : thread.getId();
            Work work = workOf(thread);
            while (ended && left > 0 && isNew(work, id)) {
                long begun = System.nanoTime();
                LockSupport.parkNanos(1_000_000L);
                long slept = System.nanoTime() - begun;
                left -= slept;
                patience -= slept;
                work = workOf(thread);
            }
            ended &= !isNew(work, id);
            if (thread != null && thread.isAlive()) {
                next[marks++] = mark(Work.THREAD, id);
            }
            if (work == Work.TASK) {
                next[marks++] = mark(Work.TASK, id);
            }
        }
        long[] last = known;
        known = next;
        next = last;
        count = marks;
        Arrays.sort(known, 0, count);
        return ended;
    }

    private static long mark(Work work, long id) {
        return 2 * id + (work == Work.TASK ? 1 : 0);
    }

    /** Is it work that the last window did not leave? */
    private boolean isNew(Work work, long id) {
        return work != Work.NONE && Arrays.binarySearch(known, 0, count, mark(work, id)) < 0;
    }

    /** Null is the common pool. */
    private static Work workOf(Thread thread) {
        if (thread == null) {
            return ForkJoinPool.commonPool().isQuiescent() ? Work.NONE : Work.TASK;
        }
        if (!thread.isAlive()) {
            return Work.NONE;
        }
        Thread.State state = thread.getState();
        boolean isAsleep = state == Thread.State.WAITING || state == Thread.State.TIMED_WAITING;
        boolean isDelayed = false;
        for (StackTraceElement frame : thread.getStackTrace()) {
            // `getTask` and `awaitWork` run no task: a thread that sleeps in them waits for one. `runWorker` runs it.
            switch (frame.getMethodName()) {
                case "getTask":
                    if (isOf(frame, "ThreadPoolExecutor")) {
                        boolean hasNext = isDelayed && state == Thread.State.TIMED_WAITING;
                        return !isAsleep ? Work.TASK : hasNext ? Work.THREAD : Work.NONE;
                    }
                    break;
                case "awaitWork":
                    if (isOf(frame, "ForkJoinPool")) {
                        return isAsleep ? Work.NONE : Work.TASK;
                    }
                    break;
                case "runWorker":
                    if (isOf(frame, "ThreadPoolExecutor") || isOf(frame, "ForkJoinPool")) {
                        return Work.TASK;
                    }
                    break;
                default:
                    isDelayed |= isOf(frame, "ScheduledThreadPoolExecutor$DelayedWorkQueue");
            }
        }
        return Work.THREAD;
    }

    private static boolean isOf(StackTraceElement frame, String name) {
        String owner = frame.getClassName();
        return owner.startsWith("java.util.concurrent.") && owner.endsWith("." + name);
    }
}
