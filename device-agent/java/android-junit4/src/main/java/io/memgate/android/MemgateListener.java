package io.memgate.android;

import io.memgate.agent.Hooks;
import org.junit.runner.Description;
import org.junit.runner.Result;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Tells memgate's agent where each test of an instrumented run begins and ends: {@code am instrument -e listener
 * io.memgate.android.MemgateListener}.
 *
 * <p>JUnit calls it in the thread of the test, which waits until the agent has counted. AndroidJUnitRunner calls its
 * own listeners first, so that a test's end is sent and its activities are finished by then. Without the agent it does
 * nothing.
 */
public class MemgateListener extends RunListener {
    private boolean measured;
    /** Is it measured, and does nobody else tell of the tests? */
    private boolean active;
    private int outcome;

    @Override
    public void testRunStarted(Description all) {
        measured = agentIsThere();
        if (measured) {
            Hooks.reportedBy(Repeated.isAsked() ? "launcher" : "android");
            active = !Hooks.isLauncher();
        }
    }

    @Override
    public void testStarted(Description test) {
        if (active) {
            outcome = Hooks.PASSED;
            Hooks.begins(TestName.suite(test), TestName.test(test));
        }
    }

    @Override
    public void testFailure(Failure failure) {
        outcome = Hooks.FAILED;
    }

    @Override
    public void testAssumptionFailure(Failure failure) {
        outcome = Hooks.SKIPPED;
    }

    @Override
    public void testFinished(Description test) {
        if (active) {
            Hooks.ended(TestName.suite(test), TestName.test(test), outcome);
        }
    }

    @Override
    public void testRunFinished(Result result) {
        active = false;
        if (measured) {
            measured = false;
            // Android ends the process with the run, and nothing in it is told.
            Hooks.runFinished();
        }
    }

    /** Without the agent its class is missing, or its native methods are. */
    boolean agentIsThere() {
        return Agent.isThere();
    }
}
