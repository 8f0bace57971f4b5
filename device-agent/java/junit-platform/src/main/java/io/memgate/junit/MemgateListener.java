package io.memgate.junit;

import io.memgate.agent.Hooks;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.TestPlan;

/**
 * Tells memgate's agent where each test begins and ends. JUnit Platform's launcher finds it by itself; without the agent it does
 * nothing.
 */
public final class MemgateListener implements TestExecutionListener {
    private final boolean active = isActive();

    @Override
    public void testPlanExecutionStarted(TestPlan plan) {
        if (active) {
            Hooks.reportedBy("junit-platform");
        }
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        if (active) {
            TestName name = TestName.of(test.getUniqueId());
            if (test.isTest()) {
                Hooks.begins(name.suite, name.test);
            } else if (name.test.isEmpty()) {
                // What @BeforeAll makes belongs to this class.
                Hooks.classBegins(name.suite);
            }
        }
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        if (active && test.isTest()) {
            TestName name = TestName.of(test.getUniqueId());
            Hooks.ended(name.suite, name.test, outcome(result));
        }
    }

    /** As the agent numbers it. */
    public static int outcome(TestExecutionResult result) {
        switch (result.getStatus()) {
            case SUCCESSFUL:
                return Hooks.PASSED;
            case ABORTED:
                return Hooks.SKIPPED;
            default:
                return Hooks.FAILED;
        }
    }

    /** Without the agent its class is missing, or its native methods are. */
    private static boolean isActive() {
        try {
            return Hooks.active() && !Hooks.isLauncher();
        } catch (LinkageError withoutAgent) {
            return false;
        }
    }
}
