package com.example.api;

import java.util.ArrayList;
import java.util.List;

/** Sessions that are opened and never closed. */
public final class Sessions {
    private static final List<Session> OPEN = new ArrayList<>();

    private Sessions() {}

    public static Session open() {
        Session session = new Session();
        OPEN.add(session);
        return session;
    }

    public static final class Session {}
}
