package io.memgate.android;

/**
 * Like {@link MemgateListener}, but the agent is attached to the running process, and the tests wait for it, so that
 * the first test is measured too. If the agent does not come, the tests run without it, and the harness reports that
 * it is missing.
 */
public final class AwaitingListener extends MemgateListener {
    private static final long LIMIT_MS = 30_000;
    /** No event reports that a native library was loaded, so we poll at this interval. */
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
