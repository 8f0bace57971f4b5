package standin;

import dalvik.system.VMDebug;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.regex.Pattern;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.Runner;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;
import org.junit.runners.Suite;
import org.junit.runners.model.RunnerBuilder;

/**
 * The process that {@code am instrument} starts, in ART without Android's framework: {@code ArtProcess KEY VALUE…}
 * runs the tests with the arguments of AndroidJUnitRunner that memgate uses, and prints what {@code am -r} would.
 */
public final class ArtProcess {
    /** A phone's runner finds them by scanning the APK. */
    private static final String TESTS = "com.example.tracks.CleanTest,com.example.tracks.TileCacheTest";

    private static final PrintStream AM = new PrintStream(new FileOutputStream(FileDescriptor.out), true);

    private ArtProcess() {}

    public static void main(String[] words) throws Exception {
        System.setOut(System.err);
        Thread binder = new Thread(ArtProcess::obey, "Binder");
        binder.setDaemon(true);
        binder.start();
        Map<String, String> arguments = new HashMap<>();
        for (int i = 0; i + 1 < words.length; i += 2) {
            arguments.put(words[i], words[i + 1]);
        }
        Class.forName("androidx.test.runner.AndroidJUnitRunner");
        RunnerBuilder builder = builder(arguments.get("runnerBuilder"));
        Map<Class<?>, String> chosen = new LinkedHashMap<>();
        for (String name : arguments.getOrDefault("class", TESTS).split(",")) {
            String[] parts = name.split("#");
            chosen.merge(Class.forName(parts[0]), parts.length > 1 ? parts[1] : "", (one, other) -> one + "," + other);
        }
        Runner all = new Suite(builder, chosen.keySet().toArray(new Class<?>[0])) {};
        Request request = Request.runner(all).filterWith(new Chosen(chosen, arguments.get("tests_regex")));
        JUnitCore core = new JUnitCore();
        boolean isListing = Boolean.parseBoolean(arguments.get("log"));
        core.addListener(new Printer(request.getRunner().testCount()));
        for (String listener : isListing ? new String[0] : arguments.getOrDefault("listener", "").split(",")) {
            core.addListener((RunListener) Class.forName(listener).getConstructor().newInstance());
        }
        long began = System.nanoTime();
        int run = isListing ? list(request.getRunner().getDescription(), request.getRunner().testCount()) : core.run(request).getRunCount();
        AM.print("INSTRUMENTATION_RESULT: stream=\n\nTime: " + (System.nanoTime() - began) / 1000000 / 1000.0 + "\n\nOK (" + run + " tests)\n\n\n");
        AM.print("INSTRUMENTATION_CODE: -1\n");
        AM.flush();
        // An instrumented app does not end by itself: the system ends it.
        new CountDownLatch(1).await();
    }

    /**
     * Requests of the system to an app: {@code attach LIBRARY=OPTIONS}, {@code dump FILE}. A dump gets its final name
     * when it is complete.
     */
    private static void obey() {
        try (BufferedReader orders = new BufferedReader(new InputStreamReader(System.in))) {
            for (String order = orders.readLine(); order != null; order = orders.readLine()) {
                String[] words = order.split(" ", 2);
                if (words[0].equals("attach")) {
                    VMDebug.attachAgent(words[1], ArtProcess.class.getClassLoader());
                } else {
                    Runtime.getRuntime().gc();
                    File part = new File(words[1] + ".part");
                    VMDebug.dumpHprofData(part.getPath());
                    if (!part.renameTo(new File(words[1]))) {
                        throw new IOException("cannot rename " + part);
                    }
                }
            }
        } catch (IOException why) {
            why.printStackTrace();
        }
    }

    private static RunnerBuilder builder(String named) throws Exception {
        if (named != null) {
            return (RunnerBuilder) Class.forName(named).getConstructor().newInstance();
        }
        return new RunnerBuilder() {
            @Override
            public Runner runnerForClass(Class<?> suite) {
                return Request.aClass(suite).getRunner();
            }
        };
    }

    private static int list(Description of, int count) {
        int listed = 0;
        if (of.isTest()) {
            Printer printer = new Printer(count);
            printer.testStarted(of);
            printer.testFinished(of);
            return 1;
        }
        for (Description child : of.getChildren()) {
            listed += list(child, count);
        }
        return listed;
    }

    private static final class Chosen extends Filter {
        private final Map<Class<?>, String> chosen;
        private final Pattern regex;

        Chosen(Map<Class<?>, String> chosen, String regex) {
            this.chosen = chosen;
            this.regex = regex == null ? null : Pattern.compile(regex);
        }

        @Override
        public boolean shouldRun(Description test) {
            if (!test.isTest()) {
                for (Description child : test.getChildren()) {
                    if (shouldRun(child)) {
                        return true;
                    }
                }
                return false;
            }
            String methods = chosen.getOrDefault(test.getTestClass(), "");
            boolean isChosen = methods.isEmpty() || ("," + methods + ",").contains("," + test.getMethodName() + ",");
            return isChosen && (regex == null || regex.matcher(test.getClassName() + "#" + test.getMethodName()).find());
        }

        @Override
        public String describe() {
            return "the tests that were asked for";
        }
    }

    /** The status that InstrumentationResultPrinter sends for each test. */
    private static final class Printer extends RunListener {
        private final int count;
        private int current;
        private int code;
        private String stack;

        Printer(int count) {
            this.count = count;
        }

        @Override
        public void testStarted(Description test) {
            current++;
            code = 0;
            stack = null;
            print(test, 1);
        }

        @Override
        public void testFailure(Failure failure) {
            StringWriter trace = new StringWriter();
            failure.getException().printStackTrace(new PrintWriter(trace));
            code = -2;
            stack = trace.toString();
        }

        @Override
        public void testAssumptionFailure(Failure failure) {
            code = -4;
        }

        @Override
        public void testFinished(Description test) {
            print(test, code);
        }

        private void print(Description test, int code) {
            String status = "INSTRUMENTATION_STATUS: ";
            AM.print(status + "class=" + test.getClassName() + "\n" + status + "current=" + current + "\n");
            AM.print(status + "id=AndroidJUnitRunner\n" + status + "numtests=" + count + "\n");
            if (stack != null) {
                AM.print(status + "stack=" + stack + "\n");
            }
            AM.print(status + "stream=" + (code == 0 ? "." : "") + "\n" + status + "test=" + test.getMethodName() + "\n");
            AM.print("INSTRUMENTATION_STATUS_CODE: " + code + "\n");
            AM.flush();
        }
    }
}
