package com.example.tracks;

import static org.junit.Assert.assertEquals;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.Test;

/** Starts sixty-four threads, which end with the test. */
public class ThreadsTest {
    private static final int THREADS = 64;
    private static final List<Object> KEPT = new ArrayList<>();

    static final class Note {
        int number;
    }

    @Test
    public void allocatesAndForgets() throws InterruptedException {
        inThreads(() -> {});
    }

    @Test
    public void keepsOneOfEachThread() throws InterruptedException {
        inThreads(() -> {
            synchronized (KEPT) {
                KEPT.add(new Note());
            }
        });
    }

    private static void inThreads(Runnable more) throws InterruptedException {
        AtomicInteger ended = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int at = 0; at < THREADS; at++) {
            threads.add(new Thread(() -> {
                for (int i = 0; i < 200; i++) {
                    new Note();
                }
                more.run();
                ended.incrementAndGet();
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals(THREADS, ended.get());
    }
}
