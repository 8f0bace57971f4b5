package com.example.tracks;

import android.app.Activity;
import android.os.Bundle;
import java.util.ArrayList;
import java.util.List;

/** Leaks: keeps every screen that was shown. */
public class HistoryActivity extends TrackActivity {
    static final List<Activity> SHOWN = new ArrayList<>();

    @Override
    protected void onCreate(Bundle state) {
        super.onCreate(state);
        SHOWN.add(this);
    }
}
