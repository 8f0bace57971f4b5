package com.example;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** A pool serves requests: a ThreadLocal that a task sets stays as long as the pool's thread. */
public final class Sessions {
    private static final ThreadLocal<List<Session>> open = ThreadLocal.withInitial(ArrayList::new);
    private static final ExecutorService pool = Executors.newSingleThreadExecutor(Sessions::worker);

    private Sessions() {}

    public static void serve() throws InterruptedException, ExecutionException {
        run(() -> open.get().add(new Session()));
    }

    public static void serveAndClose() throws InterruptedException, ExecutionException {
        run(() -> {
            List<Session> mine = open.get();
            mine.add(new Session());
            mine.remove(mine.size() - 1);
        });
    }

    private static void run(Runnable task) throws InterruptedException, ExecutionException {
        pool.submit(task).get();
    }

    private static Thread worker(Runnable work) {
        Thread thread = new Thread(work, "sessions");
        thread.setDaemon(true);
        return thread;
    }

    static final class Session {
        final long began = System.nanoTime();
    }
}
