package android.test;

import android.content.Context;
import junit.framework.TestCase;

/** AndroidX Test asks whether a test of JUnit 3 is one of these, which a phone brings and Robolectric does not. */
public class AndroidTestCase extends TestCase {
    public void setContext(Context context) {}
}
