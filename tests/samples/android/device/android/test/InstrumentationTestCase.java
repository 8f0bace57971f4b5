package android.test;

import android.app.Instrumentation;
import junit.framework.TestCase;

/** As {@link AndroidTestCase}. */
public class InstrumentationTestCase extends TestCase {
    public void injectInstrumentation(Instrumentation instrumentation) {}
}
