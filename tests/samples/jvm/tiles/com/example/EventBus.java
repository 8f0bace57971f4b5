package com.example;

import java.util.ArrayList;
import java.util.List;

/** Tells its listeners of changes, those too that nobody looks at any more. */
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

    /** Hears of changes. */
    public interface Listener {
        void changed(int zoom);
    }
}
