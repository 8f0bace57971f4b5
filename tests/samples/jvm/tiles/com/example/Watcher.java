package com.example;

import java.util.concurrent.locks.LockSupport;

/** A thread that waits until it is told to stop. */
public final class Watcher extends Thread {
    private volatile boolean stopped;

    private Watcher() {
        super("tile-watcher");
        setDaemon(true);
    }

    public static Watcher watch() {
        Watcher watcher = new Watcher();
        watcher.start();
        return watcher;
    }

    @Override
    public void run() {
        while (!stopped) {
            LockSupport.park(this);
        }
    }

    public void end() throws InterruptedException {
        stopped = true;
        LockSupport.unpark(this);
        join();
    }
}
