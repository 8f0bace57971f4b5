package io.memgate.launcher;

import io.memgate.agent.Hooks;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** A test class, or one test of it. */
final class Selection {
    final String suite;
    /** Name of the test as its listener reported it; empty: the whole class. */
    final String test;
    /** Is its window measured? */
    boolean isMeasured = true;
    /** Did a thread or a task that it started go on after its end? */
    boolean leavesWork;
    /** For a whole class, the tests that the build ran, in its order; empty: all. */
    private final Set<String> only = new LinkedHashSet<>();
    /**
     * Those of these tests that the class does not have, without their parameters: parameters may have other names
     * each time.
     */
    private final Set<String> renamed = new HashSet<>();
    /**
     * The outcomes of its tests in the last execution, as the agent numbers them: several tests may run at a time.
     */
    private final Map<String, Integer> outcomes = new HashMap<>();
    /** Tests that are left out because they fail when they are repeated; without invocation numbers. */
    private final Set<String> leftOut = new HashSet<>();

    Selection(String suite, String test) {
        this.suite = suite;
        this.test = test;
    }

    void add(String name) {
        only.add(name);
    }

    /** Keeps nothing of the last execution while the heap is counted. */
    synchronized void forget() {
        outcomes.clear();
    }

    /** A test ended. Of several with the same name a failed one counts first, then a passed one. */
    synchronized void ended(String name, int outcome) {
        boolean failed = outcome == Hooks.FAILED;
        outcomes.merge(name, outcome, (a, b) -> failed || a == Hooks.FAILED ? Hooks.FAILED : Math.min(a, b));
    }

    /** Tests that failed in the last execution. */
    synchronized List<String> failed() {
        return endedWith(Hooks.FAILED);
    }

    /**
     * Tests that the last execution skipped, and those that the build ran but the execution did not. A test may have
     * another name in each execution: if as many ran, none is missing.
     */
    synchronized List<String> skipped() {
        List<String> skipped = endedWith(Hooks.SKIPPED);
        Set<String> missing = new HashSet<>(only);
        missing.removeIf(name -> outcomes.containsKey(name) || leftOut.contains(base(name)));
        if (outcomes.keySet().stream().filter(name -> !only.contains(name)).count() < missing.size()) {
            skipped.addAll(missing);
        }
        return skipped;
    }

    private List<String> endedWith(int outcome) {
        List<String> names = new ArrayList<>();
        outcomes.forEach((name, how) -> {
            if (how == outcome) {
                names.add(name);
            }
        });
        return names;
    }

    /** The tests that the class has now, before it runs. */
    void has(Collection<String> names) {
        renamed.clear();
        for (String test : only) {
            if (!names.contains(test) && names.stream().noneMatch(name -> standsFor(name, test))) {
                renamed.add(base(test));
            }
        }
    }

    /** Did the build run this test, or an invocation of it, perhaps under another name? */
    boolean includes(String name) {
        return names(name) || renamed.contains(base(name)) && !leftOut.contains(base(name));
    }

    /** The same, under this name. */
    boolean names(String name) {
        if (leftOut.contains(base(name))) {
            return false;
        }
        return only.isEmpty() || only.contains(name) || only.stream().anyMatch(test -> standsFor(name, test));
    }

    /**
     * Before it runs, a parameterised test is known without the number of the invocation: {@code scroll(int)} stands
     * for {@code scroll(int)[2]}, {@code many} for TestNG's {@code many()/0}.
     */
    private static boolean standsFor(String name, String test) {
        String rest = test.startsWith(name) ? test.substring(name.length()) : "";
        String number = rest.startsWith("()") ? rest.substring(2) : rest;
        return number.startsWith("[") || number.startsWith("/");
    }

    /** The tests that the build ran, without those that are left out. */
    List<String> wanted() {
        List<String> wanted = new ArrayList<>(only);
        wanted.removeIf(name -> leftOut.contains(base(name)));
        return wanted;
    }

    /** Leaves out the failed tests, with all invocations of each. */
    void leaveOutFailed() {
        for (String name : failed()) {
            leftOut.add(base(name));
        }
    }

    boolean leavesOut() {
        return !leftOut.isEmpty();
    }

    /**
     * The name without the number of an invocation: for {@code scroll(int)[2]} {@code scroll(int)}, for {@code
     * [plain]/decodes[plain]}, the form that JUnit Platform uses for JUnit 4, {@code decodes}, for {@code [plain]}
     * nothing; for TestNG's {@code many()/0} {@code many}.
     */
    static String base(String name) {
        int container = name.lastIndexOf("]/");
        String own = container < 0 ? name : name.substring(container + 2);
        int number = own.indexOf('[');
        String base = number < 0 ? own.replaceFirst("\\(\\)/\\d+$", "") : own.substring(0, number);
        return base.endsWith("()") ? base.substring(0, base.length() - 2) : base;
    }
}
