package com.example.tracks;

import java.util.ArrayList;
import java.util.List;

/** Reports the phone's location; lives as long as the application. */
public final class LocationUpdates {
    static final LocationUpdates INSTANCE = new LocationUpdates();

    /** Receives locations. */
    public interface Listener {
        void moved(double latitude, double longitude);
    }

    private final List<Listener> listeners = new ArrayList<>();

    void register(Listener listener) {
        listeners.add(listener);
    }

    void unregister(Listener listener) {
        listeners.remove(listener);
    }
}
