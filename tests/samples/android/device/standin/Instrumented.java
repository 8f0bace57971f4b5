package standin;

import android.app.Instrumentation;
import android.os.Bundle;
import androidx.test.internal.runner.RunnerArgs;
import androidx.test.internal.runner.TestExecutor;
import androidx.test.internal.runner.TestRequestBuilder;
import androidx.test.internal.runner.listener.InstrumentationResultPrinter;
import androidx.test.platform.app.InstrumentationRegistry;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.util.TreeSet;
import org.junit.Test;
import org.junit.runner.Description;
import org.junit.runner.RunWith;
import org.junit.runner.notification.RunListener;
import org.robolectric.annotation.Config;
import org.robolectric.shadows.ShadowEventLog;
import org.robolectric.shadows.ShadowLog;
import org.robolectric.shadows.ShadowVMRuntime;

/** The part of AndroidJUnitRunner between its start and its end. */
@RunWith(FrameworkRunner.class)
@Config(sdk = 34)
public final class Instrumented {
    /** A phone's runner finds them by scanning the APK. */
    private static final String[] TESTS = {"CleanTest", "ScreensTest", "TileCacheTest"};

    private final PrintStream am = new PrintStream(new FileOutputStream(FileDescriptor.out), true);

    @Test
    public void run() throws Exception {
        Instrumentation instrumentation = InstrumentationRegistry.getInstrumentation();
        Bundle arguments = new Bundle();
        String[] words = System.getProperty(AppProcess.ARGUMENTS, "").split("\0");
        for (int i = 0; i + 1 < words.length; i += 2) {
            arguments.putString(words[i], words[i + 1]);
        }
        RunnerArgs parsed = new RunnerArgs.Builder().fromBundle(instrumentation, arguments).build();
        TestRequestBuilder request = new TestRequestBuilder(instrumentation, arguments).addFromRunnerArgs(parsed);
        if (parsed.tests.isEmpty()) {
            for (String test : TESTS) {
                request.addTestClass("com.example.tracks." + test);
            }
        }
        TestExecutor.Builder executor = new TestExecutor.Builder(instrumentation).addRunListener(new Printer());
        executor.addRunListener(new Forgetting());
        for (RunListener listener : parsed.listeners) {
            executor.addRunListener(listener);
        }
        Bundle results = executor.build().execute(request.build());
        print("INSTRUMENTATION_RESULT: ", results);
        am.print("INSTRUMENTATION_CODE: -1\n");
        am.flush();
    }

    /** Prints a bundle as {@code am} does: sorted. */
    private void print(String what, Bundle bundle) {
        for (String key : new TreeSet<>(bundle.keySet())) {
            am.print(what + key + "=" + bundle.get(key) + "\n");
        }
    }

    private final class Printer extends InstrumentationResultPrinter {
        @Override
        public void sendStatus(int code, Bundle bundle) {
            print("INSTRUMENTATION_STATUS: ", bundle);
            am.print("INSTRUMENTATION_STATUS_CODE: " + code + "\n");
            am.flush();
        }
    }

    /** Robolectric keeps log lines and native handles until its own test ends, which here is the whole run. */
    private static final class Forgetting extends RunListener {
        @Override
        public void testFinished(Description test) {
            ShadowLog.reset();
            ShadowEventLog.clearAll();
            ShadowVMRuntime.reset();
        }
    }
}
