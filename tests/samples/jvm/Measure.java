import java.lang.management.ManagementFactory;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.TreeMap;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/**
 * Measures the figures of truth.json, without memgate: {@code java -cp … Measure CLASS METHOD} calls a test repeatedly,
 * takes a class histogram after every forty calls, and prints what each of the last forty added on average.
 */
public final class Measure {
    private static final int CALLS = 40;
    private static final int WARM_UP = 6;

    public static void main(String[] arguments) throws Exception {
        Constructor<?> test = Class.forName(arguments[0]).getConstructor();
        Method method = test.getDeclaringClass().getMethod(arguments[1]);
        Map<String, long[]> before = null;
        Map<String, long[]> now = null;
        for (int round = 0; round <= WARM_UP; round++) {
            for (int call = 0; call < CALLS; call++) {
                method.invoke(test.newInstance());
            }
            before = now;
            now = histogram();
        }
        for (String name : now.keySet()) {
            long[] was = before.getOrDefault(name, new long[2]);
            long[] is = now.get(name);
            if (is[0] != was[0] || is[1] != was[1]) {
                System.out.println((is[0] - was[0]) / (double) CALLS + " × " + name + ", " + (is[1] - was[1]) / (double) CALLS + " bytes");
            }
        }
        // Threads left by a test do not delay the exit.
        System.exit(0);
    }

    private static Map<String, long[]> histogram() throws Exception {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        ObjectName diagnostics = new ObjectName("com.sun.management:type=DiagnosticCommand");
        String[] signature = {String[].class.getName()};
        // A second collection frees objects that wait for a finalizer or cleaner.
        server.invoke(diagnostics, "gcClassHistogram", new Object[] {null}, signature);
        System.runFinalization();
        Thread.sleep(100);
        String text = (String) server.invoke(diagnostics, "gcClassHistogram", new Object[] {null}, signature);
        Map<String, long[]> counts = new TreeMap<>();
        for (String line : text.split("\n")) {
            String[] words = line.trim().split("\\s+");
            if (words.length >= 4 && words[0].matches("\\d+:")) {
                long[] count = counts.computeIfAbsent(words[3], name -> new long[2]);
                count[0] += Long.parseLong(words[1]);
                count[1] += Long.parseLong(words[2]);
            }
        }
        return counts;
    }
}
