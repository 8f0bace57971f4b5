package com.example.viewer;

import java.util.ArrayList;
import java.util.List;

/** Notifies listeners when a download is complete; lives as long as the application. */
public final class Downloads {
    static final Downloads INSTANCE = new Downloads();

    /** Receives downloads. */
    public interface Listener {
        void done(String page);
    }

    private final List<Listener> listeners = new ArrayList<>();

    void register(Listener listener) {
        listeners.add(listener);
    }

    void unregister(Listener listener) {
        listeners.remove(listener);
    }
}
