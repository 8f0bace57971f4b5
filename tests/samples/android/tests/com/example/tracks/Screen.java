package com.example.tracks;

import android.app.Activity;
import org.robolectric.Robolectric;
import org.robolectric.android.controller.ActivityController;

/** Opens a screen and closes it. On a phone, ActivityScenario does this. */
final class Screen {
    private Screen() {}

    static <A extends Activity> void show(Class<A> activity) {
        ActivityController<A> controller = Robolectric.buildActivity(activity).create().start().resume();
        if (controller.get().getWindow() == null) {
            throw new AssertionError("no window");
        }
        controller.pause().stop().destroy();
    }
}
