package io.memgate.junit;

import io.memgate.agent.Hooks;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.platform.engine.ConfigurationParameters;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.TestPlan;

/**
 * Reports to memgate's agent where each test begins and ends. JUnit Platform's launcher finds this listener by
 * itself; without the agent it does nothing.
 */
public final class MemgateListener implements TestExecutionListener {
    private final boolean active = isActive();
    /** Plans that a test executes, with this launcher or its own: their tests are part of that test. */
    private final AtomicInteger nested = new AtomicInteger();

    @Override
    public void testPlanExecutionStarted(TestPlan plan) {
        if (active && Hooks.isInTest()) {
            nested.incrementAndGet();
        }
        if (tells()) {
            Hooks.reportedBy("junit-platform", parameters(plan));
        }
    }

    @Override
    public void testPlanExecutionFinished(TestPlan plan) {
        nested.updateAndGet(plans -> Math.max(plans - 1, 0));
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        if (tells()) {
            TestName name = TestName.of(test.getUniqueId());
            if (test.isTest()) {
                Hooks.begins(name.suite, name.test);
            } else if (name.test.isEmpty()) {
                // Objects that @BeforeAll makes belong to this class.
                Hooks.classBegins(name.suite);
            }
        }
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        if (tells() && test.isTest()) {
            TestName name = TestName.of(test.getUniqueId());
            Hooks.ended(name.suite, name.test, outcome(result));
        }
    }

    private boolean tells() {
        return active && nested.get() == 0;
    }

    /**
     * The parameters that the build gave JUnit Platform for this run, other than by system properties: Surefire's
     * configuration, {@code --config}. Parameters that write reports are left out: a repetition would write them
     * again.
     */
    private static Map<String, String> parameters(TestPlan plan) {
        Map<String, String> given = new HashMap<>();
        try {
            ConfigurationParameters all = plan.getConfigurationParameters();
            for (String name : all.keySet()) {
                String value = all.get(name).orElse(null);
                if (value != null && !writesReports(name) && !value.equals(System.getProperty(name))) {
                    given.put(name, value);
                }
            }
        } catch (RuntimeException | LinkageError before19) {
            // The parameters are not known.
            return Collections.emptyMap();
        }
        return given;
    }

    private static boolean writesReports(String parameter) {
        return parameter.startsWith("junit.platform.reporting.") || parameter.startsWith("junit.platform.listeners.");
    }

    /** The outcome, as the agent numbers it. */
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

    /** Without the agent, either its class or its native methods are missing. */
    private static boolean isActive() {
        try {
            return Hooks.active() && !Hooks.isLauncher();
        } catch (LinkageError withoutAgent) {
            return false;
        }
    }
}
