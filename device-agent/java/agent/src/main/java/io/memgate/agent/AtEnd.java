package io.memgate.agent;

/**
 * The last of the virtual machine's shutdown hooks, after those of the application. The collectors still work here.
 * They no longer do when the agent gets the virtual machine's death event.
 */
final class AtEnd implements Runnable {
    @Override
    public void run() {
        Hooks.runFinished();
    }
}
