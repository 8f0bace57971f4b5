package com.example;

import java.util.ArrayList;
import java.util.List;

/** Notifies its listeners of changes, including listeners that are no longer used. */
public final class EventBus {
    private static final EventBus shared = new EventBus();

    private final List<Listener> listeners = new ArrayList<>();

    public static EventBus shared() {
        return shared;
    }

    public void subscribe(Listener listener) {
        listeners.add(listener);
    }

    public void unsubscribe(Listener listener) {
        listeners.remove(listener);
    }

    /** Receives changes. */
    public interface Listener {
        void changed(int zoom);
    }
}
