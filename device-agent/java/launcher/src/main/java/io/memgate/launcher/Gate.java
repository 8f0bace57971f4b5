package io.memgate.launcher;

import io.memgate.agent.Hooks;
import java.io.IOException;

/** Where the launcher tells what it does, and what gives it orders: the agent, or without one the harness itself. */
interface Gate {
    /** A round or an iteration begins. */
    void iteration(int number) throws IOException;

    /** A selection runs. */
    void started(Selection selection) throws IOException;

    /** It ended in a round that only warms up. */
    void finished(Selection selection, int outcome) throws IOException;

    /** It ended: the heap is counted. Returns the orders. */
    int window(Selection selection, int outcome) throws IOException;

    /** The plan was carried out. */
    void bye() throws IOException;

    static Gate find() throws IOException, ReflectiveOperationException {
        String socket = System.getProperty("memgate.socket");
        return socket == null ? new OfAgent() : new SocketGate(socket);
    }

    /** The agent in this virtual machine. */
    final class OfAgent implements Gate {
        OfAgent() {
            // Before JUnit looks for listeners: they are silent here.
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
