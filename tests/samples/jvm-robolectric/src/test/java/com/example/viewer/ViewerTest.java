package com.example.viewer;

import static org.junit.Assert.assertTrue;

import android.app.Activity;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.Robolectric;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.android.controller.ActivityController;
import org.robolectric.annotation.Config;

@RunWith(RobolectricTestRunner.class)
@Config(sdk = 34)
public class ViewerTest {
    @Test
    public void isClean() {
        shows(ViewerActivity.class);
    }

    @Test
    public void isKeptByAStatic() {
        shows(HistoryActivity.class);
    }

    @Test
    public void isKeptByItsListener() {
        shows(DownloadActivity.class);
    }

    private static <A extends Activity> void shows(Class<A> activity) {
        ActivityController<A> controller = Robolectric.buildActivity(activity).setup();
        assertTrue(controller.get().hasWindowFocus() || controller.get().getWindow() != null);
        controller.pause().stop().destroy();
    }
}
