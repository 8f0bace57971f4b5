package io.memgate.android;

/**
 * As {@link MemgateListener}; but the agent is attached to the process while it runs, and the tests wait for it, so
 * that the first is seen too. Where it does not come the tests run without it, and the harness misses it.
 */
public final class AwaitingListener extends MemgateListener {
    private static final long LIMIT_MS = 30_000;
    /** Nothing tells that a native library was loaded: it is looked for so often. */
    private static final long PAUSE_MS = 20;

    @Override
    boolean agentIsThere() {
        long end = System.nanoTime() + LIMIT_MS * 1_000_000;
        while (!Agent.isThere()) {
            if (System.nanoTime() - end >= 0) {
                return false;
            }
            try {
                Thread.sleep(PAUSE_MS);
            } catch (InterruptedException why) {
                Thread.currentThread().interrupt();
                return false;
            }
        }
        return true;
    }
}
