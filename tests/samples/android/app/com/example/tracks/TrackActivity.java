package com.example.tracks;

import android.app.Activity;
import android.os.Bundle;
import android.view.View;

/** Shows a track. */
public class TrackActivity extends Activity {
    @Override
    protected void onCreate(Bundle state) {
        // A plain theme: Robolectric never frees what the pictures of newer themes allocate.
        setTheme(android.R.style.Theme_Black_NoTitleBar);
        super.onCreate(state);
        setContentView(new View(this));
    }
}
