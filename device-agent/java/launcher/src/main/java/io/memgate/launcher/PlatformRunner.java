package io.memgate.launcher;

import io.memgate.agent.Hooks;
import io.memgate.junit.TestName;
import java.util.HashMap;
import java.util.Map;
import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.TestPlan;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/** Runs tests with JUnit Platform. Requests are made once, so that only the tests themselves allocate anew in each round. */
final class PlatformRunner implements TestRunner {
    private final Launcher launcher = LauncherFactory.create();
    private final Map<Selection, LauncherDiscoveryRequest> requests = new HashMap<>();
    private final Outcome outcome = new Outcome();

    @Override
    public int run(Selection selection) {
        LauncherDiscoveryRequest request = requests.get(selection);
        if (request == null) {
            request = request(selection(selection));
            requests.put(selection, request);
        }
        outcome.worst = Hooks.SKIPPED;
        launcher.execute(request, outcome);
        return outcome.worst;
    }

    private static LauncherDiscoveryRequest request(DiscoverySelector selector) {
        return LauncherDiscoveryRequestBuilder.request().selectors(selector).build();
    }

    private DiscoverySelector selection(Selection selection) {
        // Nested classes are selected through the class they are nested in.
        DiscoverySelector outer = DiscoverySelectors.selectClass(selection.suite);
        if (selection.test.isEmpty()) {
            return outer;
        }
        TestPlan plan = launcher.discover(request(outer));
        // scroll(int)[2] is the second invocation of scroll(int), which only exists once that one runs.
        int bracket = selection.test.endsWith("]") ? selection.test.lastIndexOf('[') : -1;
        String base = bracket < 0 ? selection.test : selection.test.substring(0, bracket);
        for (TestIdentifier root : plan.getRoots()) {
            for (TestIdentifier test : plan.getDescendants(root)) {
                TestName name = TestName.of(test.getUniqueId());
                if (!name.suite.equals(selection.suite)) {
                    continue;
                }
                if (name.test.equals(selection.test)) {
                    return DiscoverySelectors.selectUniqueId(test.getUniqueId());
                }
                if (bracket > 0 && (name.test.equals(base) || (name.test + "()").equals(base))) {
                    String number = selection.test.substring(bracket + 1, selection.test.length() - 1);
                    String kind = test.getUniqueId().contains("[test-factory:") ? "dynamic-test" : "test-template-invocation";
                    return DiscoverySelectors.selectUniqueId(test.getUniqueId() + "/[" + kind + ":#" + number + "]");
                }
            }
        }
        throw new IllegalArgumentException("there is no test " + selection.test + " in " + selection.suite);
    }

    /** The worst outcome of the tests of one execution. */
    private static final class Outcome implements TestExecutionListener {
        int worst;

        @Override
        public void executionFinished(TestIdentifier test, TestExecutionResult result) {
            if (result.getStatus() == TestExecutionResult.Status.FAILED) {
                worst = Hooks.FAILED;
            } else if (test.isTest() && result.getStatus() == TestExecutionResult.Status.SUCCESSFUL && worst == Hooks.SKIPPED) {
                worst = Hooks.PASSED;
            }
        }
    }
}
