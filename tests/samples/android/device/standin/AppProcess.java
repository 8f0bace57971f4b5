package standin;

import io.memgate.agent.Hooks;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.util.concurrent.CountDownLatch;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.Result;

/**
 * The process that {@code am instrument} starts: {@code AppProcess KEY VALUE…} runs the tests of this class path with
 * AndroidX Test's own runner arguments, request and result printer, inside Robolectric's framework, and prints what
 * {@code am -r} would print.
 */
public final class AppProcess {
    /** System property that passes the arguments: Robolectric's class loader does not see our static fields. */
    static final String ARGUMENTS = "standin.arguments";

    private AppProcess() {}

    public static void main(String[] arguments) throws Exception {
        silenceNotifier();
        PrintStream am = new PrintStream(new FileOutputStream(FileDescriptor.out), true);
        System.setOut(System.err);
        System.setProperty(ARGUMENTS, String.join("\0", arguments));
        Result result = new JUnitCore().run(Request.method(Instrumented.class, "run"));
        if (!result.wasSuccessful()) {
            am.print("INSTRUMENTATION_RESULT: shortMsg=Process crashed.\nINSTRUMENTATION_CODE: 0\n");
            result.getFailures().forEach(failure -> System.err.println(failure.getTrace()));
        }
        am.flush();
        // An instrumented app does not end by itself: the system ends it, whatever threads it has.
        new CountDownLatch(1).await();
    }

    /** HotSpot's agent edits JUnit 4's notifier. On Android it does not: only the listener reports tests. */
    private static void silenceNotifier() throws ReflectiveOperationException {
        Field othersTell = Hooks.class.getDeclaredField("platform");
        othersTell.setAccessible(true);
        othersTell.setBoolean(null, true);
    }
}
