package com.example;

/** A view that listens while it is open. */
public final class MapView implements EventBus.Listener {
    private final int[] pixels = new int[100];
    private int zoom;

    public MapView open() {
        EventBus.shared().subscribe(this);
        return this;
    }

    public void close() {
        EventBus.shared().unsubscribe(this);
    }

    @Override
    public void changed(int zoom) {
        this.zoom = zoom;
        pixels[0] = this.zoom;
    }
}
