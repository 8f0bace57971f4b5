package io.memgate.agent;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.Method;
import java.net.URI;
import java.util.Collections;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.jar.Attributes;
import java.util.jar.JarFile;

/**
 * The calls from Java to memgate's agent. The agent puts this class on the boot class path, binds its native methods,
 * and edits JUnit 4's notifier to call the methods that begin with {@code junit4}; listeners and the launcher call
 * the others.
 *
 * <p>It depends on no test framework, so that every class loader can see it, and no method here ever throws.
 */
public final class Hooks {
    /** Outcomes of a test, as the agent numbers them. */
    public static final int PASSED = 0, FAILED = 1, SKIPPED = 2;

    /** Orders of the harness, the bits that {@link #window} returns. */
    public static final int STOP = 2, EXPLAIN = 4, DONE = 8;

    private static final AtomicBoolean TOLD = new AtomicBoolean();
    /** Set while a test is open in this thread, and in threads that began meanwhile: what they run is its work. */
    private static final InheritableThreadLocal<Boolean> IN_TEST = new InheritableThreadLocal<>();
    /** Number of JUnit 4 tests in this thread that run within another one. */
    private static final ThreadLocal<Integer> NESTED = new ThreadLocal<>();
    /** JUnit 4 reports failures between start and end, in the thread of the test. */
    private static final ThreadLocal<Integer> OUTCOME = new ThreadLocal<>();
    /** Somebody other than JUnit 4's notifier reports the tests. */
    private static volatile boolean platform;
    private static volatile boolean launcher;
    /** Guards the two fields below. */
    private static final Object CLASSES = new Object();
    /** The test class whose window is open, and how many of its tests run now. */
    private static String openClass = "";
    private static int running;
    /** Reported like a system property, but it is not one. */
    private static final String WORKER_CLASS_PATH = "memgate.worker.class.path";
    /** The same: names of system properties that were set since the start. */
    private static final String SET_LATER = "memgate.set.later";
    /** The same: prefix for the names of JUnit Platform's parameters. */
    private static final String PARAMETER = "memgate.parameter.";
    /** The system properties as the agent found them, before any code of the build; kept until they are reported. */
    private static Properties atStart;

    static {
        try {
            System.setProperty("java.class.path", withoutOurs(System.getProperty("java.class.path", "")));
            atStart = (Properties) System.getProperties().clone();
        } catch (RuntimeException why) {
            // Then no property is known to have been set later.
            atStart = null;
        }
    }

    private Hooks() {}

    /** Is this process measured? */
    public static native boolean active();

    /** A test begins. */
    public static native void testStarted(String suite, String test);

    /** A test ended. */
    public static native void testFinished(String suite, String test, int outcome);

    /** A test of the build's own run begins. */
    public static void begins(String suite, String test) {
        classBegins(suite);
        synchronized (CLASSES) {
            running++;
        }
        IN_TEST.set(Boolean.TRUE);
        testStarted(suite, test);
    }

    /** A test of the build's own run ended. */
    public static void ended(String suite, String test, int outcome) {
        testFinished(suite, test, outcome);
        IN_TEST.remove();
        synchronized (CLASSES) {
            running--;
        }
    }

    /** Is this called by a test? A thread may outlive the test that started it. */
    public static boolean isInTest() {
        synchronized (CLASSES) {
            return running > 0 && IN_TEST.get() != null;
        }
    }

    /**
     * Tests of this class come next: the window of the class before ends, unless tests overlap. The agent may let it
     * go on. Before the first class, a window without a name ends: the start of the virtual machine and of the test
     * framework.
     */
    public static void classBegins(String suite) {
        String over;
        synchronized (CLASSES) {
            if (running > 0 || suite.isEmpty() || suite.equals(openClass)) {
                return;
            }
            over = openClass;
            openClass = suite;
        }
        window(over, "", PASSED);
    }

    /** The launcher begins a round or an iteration. */
    public static native void iteration(int number);

    /** A window ends: the agent collects, counts, and returns the orders of the harness. */
    public static native int window(String suite, String test, int outcome);

    private static native void listener(String name, String properties);

    /** The process ends, or will end without a notice: measures what is still open, and ends the recording. */
    public static native void runFinished();

    /** Does memgate's launcher run the tests? Then only the launcher reports them. */
    public static boolean isLauncher() {
        return launcher;
    }

    /** Reports once which listener reports the tests, and with which system properties they run. */
    public static void reportedBy(String name) {
        reportedBy(name, Collections.emptyMap());
    }

    /** The same, with the parameters that JUnit Platform was given for this run. */
    public static void reportedBy(String name, Map<String, String> parameters) {
        if (!name.equals("junit4")) {
            platform = true;
        }
        if (name.equals("launcher")) {
            launcher = true;
        }
        if (!TOLD.compareAndSet(false, true)) {
            return;
        }
        StringBuilder text = new StringBuilder();
        StringBuilder later = new StringBuilder();
        Properties properties = System.getProperties();
        synchronized (properties) {
            for (Map.Entry<Object, Object> entry : properties.entrySet()) {
                if (entry.getKey() instanceof String && entry.getValue() instanceof String) {
                    tell(text, (String) entry.getKey(), (String) entry.getValue());
                    if (atStart != null && !entry.getValue().equals(atStart.get(entry.getKey()))) {
                        later.append((String) entry.getKey()).append('\n');
                    }
                }
            }
        }
        atStart = null;
        tell(text, SET_LATER, later.toString());
        for (Map.Entry<String, String> parameter : parameters.entrySet()) {
            tell(text, PARAMETER + parameter.getKey(), parameter.getValue());
        }
        tell(text, WORKER_CLASS_PATH, workerClassPath());
        listener(name, text.toString());
    }

    /** The class path that tests read, without our jars: its loader exists already, and has them. */
    private static String withoutOurs(String paths) {
        StringBuilder others = new StringBuilder();
        for (String path : paths.split(File.pathSeparator, -1)) {
            if (!path.endsWith("/memgate-junit-platform.jar") && !path.endsWith("/memgate-launcher.jar")) {
                others.append(others.length() == 0 ? "" : File.pathSeparator).append(path);
            }
        }
        return others.toString();
    }

    private static void tell(StringBuilder text, String name, String value) {
        if (!value.isEmpty() || !name.startsWith("memgate.")) {
            text.append(name).append('\0').append(value).append('\0');
        }
    }

    /**
     * The class path that Surefire's worker really has, with the entries in the manifest of its booter jar instead of
     * that jar: the tests and what Surefire added to them (JUnit Platform's launcher), which {@code java.class.path}
     * leaves out. The jar is gone when the tests are over.
     */
    private static String workerClassPath() {
        StringBuilder paths = new StringBuilder();
        try {
            String real = System.getProperty("surefire.real.class.path", "");
            for (String path : real.split(File.pathSeparator)) {
                String behind = new File(path).getName().startsWith("surefirebooter") ? behindBooter(path) : path;
                paths.append(behind.isEmpty() || paths.length() == 0 ? "" : File.pathSeparator).append(behind);
            }
        } catch (Exception why) {
            // Without it the class path is that of the tests.
            return "";
        }
        return paths.toString();
    }

    private static String behindBooter(String jar) throws IOException {
        StringBuilder paths = new StringBuilder();
        try (JarFile booter = new JarFile(jar)) {
            String entries = booter.getManifest().getMainAttributes().getValue(Attributes.Name.CLASS_PATH);
            URI folder = new File(jar).toURI();
            for (String entry : entries == null ? new String[0] : entries.trim().split(" +")) {
                paths.append(paths.length() == 0 ? "" : File.pathSeparator).append(new File(folder.resolve(entry)).getPath());
            }
        }
        return paths.toString();
    }

    /** Called by JUnit 4's {@code RunNotifier} after all other listeners. */
    public static void junit4Started(Object description) {
        // JUnit Platform's vintage engine runs JUnit 4 too: its listener has the better names.
        if (platform) {
            return;
        }
        try {
            if (isInTest()) {
                NESTED.set(nested() + 1);
                return;
            }
            reportedBy("junit4");
            OUTCOME.set(PASSED);
            begins(call(description, "getClassName"), methodOf(description));
        } catch (Throwable why) {
            // The tests go on, whatever happens to the agent.
        }
    }

    /** Called by JUnit 4's {@code RunNotifier} before all other listeners. */
    public static void junit4Finished(Object description) {
        if (platform) {
            return;
        }
        try {
            int nested = nested();
            if (nested > 1) {
                NESTED.set(nested - 1);
                return;
            }
            if (nested == 1) {
                NESTED.remove();
                return;
            }
            Integer outcome = OUTCOME.get();
            OUTCOME.remove();
            ended(call(description, "getClassName"), methodOf(description), outcome == null ? PASSED : outcome);
        } catch (Throwable why) {
            // As above.
        }
    }

    /** Called by JUnit 4's {@code RunNotifier} when a test fails. */
    public static void junit4Failed(Object failure) {
        if (!platform && nested() == 0) {
            OUTCOME.set(FAILED);
        }
    }

    /** Called by JUnit 4's {@code RunNotifier} when an assumption of a test does not hold. */
    public static void junit4Assumed(Object failure) {
        if (!platform && nested() == 0) {
            OUTCOME.set(SKIPPED);
        }
    }

    private static int nested() {
        Integer nested = NESTED.get();
        return nested == null ? 0 : nested;
    }

    private static String methodOf(Object description) throws ReflectiveOperationException {
        String method = call(description, "getMethodName");
        return method.isEmpty() ? call(description, "getDisplayName") : method;
    }

    private static String call(Object target, String name) throws ReflectiveOperationException {
        Method method = target.getClass().getMethod(name);
        Object value = method.invoke(target);
        return value == null ? "" : value.toString();
    }
}
