package io.memgate.launcher;

import io.memgate.agent.Hooks;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/**
 * Runs tests again inside one virtual machine, so that their executions can be compared with each other.
 *
 * <p>{@code Main PLAN}, a UTF-8 file of lines:
 *
 * <pre>
 * mode rounds 40 1       every class or test, up to forty times; a window of one execution, or of the given number,
 *                        ends after each, and is measured from the third round on, until the harness has seen enough
 *                        of it (a test runs on then, because the next one may need it);
 *                        tests of a class that fail in the first two rounds are reported and left out, and those that
 *                        do not run in the second round are reported
 * mode repeat 1          one selection, until the harness has seen enough; a window ends after each execution, or
 *                        after the given number
 * mode hunt 100          the same; the first window runs for this many milliseconds after its first execution, and
 *                        each window ends after as many executions as the first
 * class com.example.ATest
 * with FILE              end when nobody has locked this file: the harness is gone
 * only scroll(int)[1]    of the class before, this test and others with "only": those that the build ran
 * test scroll(int)[2]    of the class before, only this test
 * </pre>
 *
 * Exit status: 0 if the plan was carried out, whatever the outcomes of the tests; 2 if it could not be.
 */
public final class Main {
    /** More is never needed; without a harness that stops it, it would run forever. */
    private static final int MOST_ITERATIONS = 100_000;

    /** Rounds before the first measured one. */
    private static final int WARM_UP_ROUNDS = 2;

    /** Maximum number of executions in the first window of a hunt. */
    private static final int MOST_HUNTED = 1000;

    /** The exit status of a launcher that finds none of its tests; the harness knows this number. */
    private static final int NO_SUCH_TEST = 3;

    private final List<Selection> selections = new ArrayList<>();
    private final LateThreads threads = new LateThreads();
    private int rounds;
    /** Executions in a window; 0: as many as run in {@link #huntedNanos}. */
    private int executions = 1;
    private long huntedNanos;

    private Main() {}

    public static void main(String[] arguments) {
        int status = 2;
        try {
            Main main = new Main();
            main.read(Paths.get(arguments[0]));
            Gate gate = Gate.find();
            TestRunner runner = TestRunner.find();
            boolean found = main.run(gate, runner);
            gate.bye();
            status = found ? 0 : NO_SUCH_TEST;
            runner.close();
        } catch (Exception | LinkageError why) {
            System.err.println("memgate-launcher: " + why);
        }
        // Threads that a test left running must not keep the virtual machine alive.
        System.exit(status);
    }

    private void read(Path plan) throws IOException {
        for (String line : Files.readAllLines(plan, StandardCharsets.UTF_8)) {
            int blank = line.indexOf(' ');
            String rest = line.substring(blank + 1);
            int last = selections.size() - 1;
            switch (blank < 0 ? line : line.substring(0, blank)) {
                case "only":
                    selections.get(last).add(rest);
                    break;
                case "mode":
                    mode(rest.split(" "));
                    break;
                case "with":
                    endWith(Paths.get(rest));
                    break;
                case "class":
                    selections.add(new Selection(rest, ""));
                    break;
                case "test":
                    selections.set(last, new Selection(selections.get(last).suite, rest));
                    break;
                case "":
                    break;
                default:
                    throw new IOException("the plan has a line that is not understood: " + line);
            }
        }
        if (selections.isEmpty()) {
            throw new IOException("the plan selects nothing: " + plan);
        }
    }

    /**
     * The harness locks this file as long as it lives. The thread that waits is in the system's group, where tests do
     * not look for threads.
     */
    private static void endWith(Path harness) {
        ThreadGroup group = Thread.currentThread().getThreadGroup();
        while (group.getParent() != null) {
            group = group.getParent();
        }
        Thread waiting = new Thread(group, () -> {
            try (FileChannel file = FileChannel.open(harness)) {
                file.lock(0, Long.MAX_VALUE, true);
                Runtime.getRuntime().halt(2);
            } catch (IOException | RuntimeException noLocks) {
                // Then only the agent, if there is one, ends this virtual machine: when boundaries stay unanswered.
            }
        }, "memgate-harness");
        waiting.setDaemon(true);
        waiting.start();
    }

    private void mode(String[] words) {
        int number = Integer.parseInt(words[1]);
        rounds = words[0].equals("rounds") ? number : 0;
        executions = words[0].equals("repeat") ? number : rounds > 0 ? Integer.parseInt(words[2]) : 0;
        huntedNanos = number * 1_000_000L;
    }

    /** False: none of the selections can be selected. */
    private boolean run(Gate gate, TestRunner runner) throws IOException {
        // The harness reports the tests that are not in the rounds.
        selections.removeIf(selection -> !runner.exists(selection.suite));
        if (rounds > 0 && selections.isEmpty()) {
            return true;
        }
        selections.removeIf(selection -> !selection.test.isEmpty() && !runner.knows(selection));
        if (selections.isEmpty()) {
            return false;
        }
        int last = rounds > 0 ? rounds : MOST_ITERATIONS;
        // If one selection is repeated, iterations are counted in executions: so the harness knows how many a window
        // has.
        int before = 0;
        for (int round = 0; round < last && !selections.isEmpty(); round++) {
            gate.iteration(rounds > 0 ? round : before);
            for (Iterator<Selection> each = selections.iterator(); each.hasNext(); ) {
                Selection selection = each.next();
                gate.started(selection);
                int outcome = window(runner, selection);
                if (rounds > 0) {
                    // What a test keeps once, such as a thread, begins in the first round: its end is waited for at the
                    // end of the round. What goes on is waited for only once.
                    boolean waits = round == 0 ? !each.hasNext() : !selection.leavesWork;
                    selection.leavesWork |= !threads.end(waits) && waits && round > 0;
                }
                if (rounds > 0 && round < WARM_UP_ROUNDS) {
                    gate.finished(selection, outcome);
                    leaveOutFailed(gate, runner, selection);
                    if (round == WARM_UP_ROUNDS - 1 && selection.test.isEmpty()) {
                        tell(gate, selection, selection.skipped(), Hooks.SKIPPED);
                    }
                    // If it were released in the first measured window, it would hide a leak of the same size.
                    selection.forget();
                    continue;
                }
                selection.forget();
                if (!selection.isMeasured) {
                    gate.finished(selection, outcome);
                    continue;
                }
                int orders = gate.window(selection, outcome);
                if ((orders & Hooks.STOP) != 0) {
                    return true;
                }
                if ((orders & Hooks.DONE) == 0) {
                    continue;
                }
                if (selection.test.isEmpty()) {
                    each.remove();
                } else {
                    selection.isMeasured = false;
                }
            }
            before += executions;
        }
        return true;
    }

    /** Runs the executions of one window. Returns the worst outcome; a failure is the last execution. */
    private int window(TestRunner runner, Selection selection) {
        int worst = Hooks.SKIPPED;
        int most = executions == 0 ? MOST_HUNTED : executions;
        long began = System.nanoTime();
        int done = 0;
        while (done < most && (executions > 0 || done == 0 || System.nanoTime() - began < huntedNanos)) {
            int outcome = run(runner, selection);
            done++;
            if (executions == 0 && done == 1) {
                // The first one loads classes.
                began = System.nanoTime();
            }
            if (outcome == Hooks.FAILED) {
                return outcome;
            }
            worst = outcome == Hooks.PASSED ? outcome : worst;
        }
        if (executions == 0) {
            executions = done;
        }
        return worst;
    }

    /**
     * A test that runs out of memory has failed, whether its framework reports that or gives up: what filled the heap
     * is reported at its end.
     */
    private static int run(TestRunner runner, Selection selection) {
        try {
            return runner.run(selection);
        } catch (RuntimeException | Error why) {
            for (Throwable cause = why; cause != null; cause = cause.getCause()) {
                if (cause instanceof OutOfMemoryError) {
                    return Hooks.FAILED;
                }
            }
            throw why;
        }
    }

    /** The other tests of a class can be compared with themselves, as long as all rounds run the same tests. */
    private static void leaveOutFailed(Gate gate, TestRunner runner, Selection selection) throws IOException {
        if (selection.failed().isEmpty() || !selection.test.isEmpty()) {
            return;
        }
        tell(gate, selection, selection.failed(), Hooks.FAILED);
        selection.leaveOutFailed();
        runner.changed(selection);
    }

    private static void tell(Gate gate, Selection of, List<String> tests, int outcome) throws IOException {
        for (String name : tests) {
            Selection test = new Selection(of.suite, name);
            gate.started(test);
            gate.finished(test, outcome);
        }
    }
}
