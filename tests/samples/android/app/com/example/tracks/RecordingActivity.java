package com.example.tracks;

import android.os.Bundle;

/** Leaks: its listener stays registered after it is destroyed. */
public class RecordingActivity extends TrackActivity {
    private final LocationUpdates.Listener listener = new LocationUpdates.Listener() {
        @Override
        public void moved(double latitude, double longitude) {
            setTitle(latitude + " " + longitude);
        }
    };

    @Override
    protected void onCreate(Bundle state) {
        super.onCreate(state);
        LocationUpdates.INSTANCE.register(listener);
    }
}
