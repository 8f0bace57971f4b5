package io.memgate.launcher;

import io.memgate.agent.Hooks;
import java.io.IOException;

/** Receives the launcher's reports and gives it orders: the agent, or without an agent the harness itself. */
interface Gate {
    /** A round or an iteration begins. */
    void iteration(int number) throws IOException;

    /** A selection starts. */
    void started(Selection selection) throws IOException;

    /** The selection ended in a warm-up round. */
    void finished(Selection selection, int outcome) throws IOException;

    /** The selection ended: the heap is counted. Returns the orders. */
    int window(Selection selection, int outcome) throws IOException;

    /** The plan is finished. */
    void bye() throws IOException;

    static Gate find() throws IOException, ReflectiveOperationException {
        String socket = System.getProperty("memgate.socket");
        return socket == null ? new OfAgent() : new SocketGate(socket);
    }

    /** The agent in this virtual machine. */
    final class OfAgent implements Gate {
        OfAgent() {
            // Before JUnit looks for listeners: they must be silent here.
            Hooks.reportedBy("launcher");
        }

        @Override
        public void iteration(int number) {
            Hooks.iteration(number);
        }

        @Override
        public void started(Selection selection) {
            Hooks.testStarted(selection.suite, selection.test);
        }

        @Override
        public void finished(Selection selection, int outcome) {
            Hooks.testFinished(selection.suite, selection.test, outcome);
        }

        @Override
        public int window(Selection selection, int outcome) {
            return Hooks.window(selection.suite, selection.test, outcome);
        }

        @Override
        public void bye() {}
    }
}
