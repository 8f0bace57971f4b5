package com.example.viewer;

import android.os.Bundle;

/** Leaks: its listener stays registered after it is destroyed. */
public class DownloadActivity extends ViewerActivity {
    private final Downloads.Listener listener = new Downloads.Listener() {
        @Override
        public void done(String page) {
            setTitle(page);
        }
    };

    @Override
    protected void onCreate(Bundle state) {
        super.onCreate(state);
        Downloads.INSTANCE.register(listener);
    }
}
