package io.memgate.agent;

/**
 * The last of the virtual machine's shutdown hooks, behind those of the application. The collectors still work here;
 * when the agent hears that the virtual machine dies, they do not.
 */
final class AtEnd implements Runnable {
    @Override
    public void run() {
        Hooks.runFinished();
    }
}
