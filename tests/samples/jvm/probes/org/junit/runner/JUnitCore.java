package org.junit.runner;

import com.example.Probes;
import io.memgate.agent.Hooks;

/** Looks like a test runner: each argument is a test. */
public final class JUnitCore {
    private JUnitCore() {}

    public static void main(String[] tests) throws Exception {
        Hooks.reportedBy("probes");
        for (String test : tests) {
            Hooks.testStarted("com.example.Probes", test);
            int outcome = Hooks.PASSED;
            try {
                Probes.class.getMethod(test).invoke(null);
            } catch (java.lang.reflect.InvocationTargetException why) {
                System.out.println(test + ": " + why.getCause());
                outcome = Hooks.FAILED;
            }
            Hooks.testFinished("com.example.Probes", test, outcome);
        }
    }
}
