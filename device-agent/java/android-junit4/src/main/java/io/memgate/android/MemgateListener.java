package io.memgate.android;

import io.memgate.agent.Hooks;
import org.junit.runner.Description;
import org.junit.runner.Result;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Reports to memgate's agent where each test of an instrumented run begins and ends: {@code am instrument -e listener
 * io.memgate.android.MemgateListener}.
 *
 * <p>JUnit calls it in the thread of the test, which waits until the agent has counted. AndroidJUnitRunner calls its
 * own listeners first: by then the end of the test is sent and its activities are finished. Without the agent it does
 * nothing.
 */
public class MemgateListener extends RunListener {
    private boolean measured;
    /** Is it measured, and does no other listener report the tests? */
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
            // Android ends the process with the run, without notice to the process.
            Hooks.runFinished();
        }
    }

    /** Without the agent, either this class or its native methods are missing. */
    boolean agentIsThere() {
        return Agent.isThere();
    }
}
