package android.test;

import android.content.Context;
import junit.framework.TestCase;

/** AndroidX Test checks whether a JUnit 3 test has this type. A phone has the class, Robolectric does not. */
public class AndroidTestCase extends TestCase {
    public void setContext(Context context) {}
}
