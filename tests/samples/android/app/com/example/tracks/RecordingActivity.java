package com.example.tracks;

import android.os.Bundle;

/** Listens, and goes on listening when it is gone. */
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
