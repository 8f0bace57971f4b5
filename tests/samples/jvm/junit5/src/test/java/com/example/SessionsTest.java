package com.example;

import org.junit.jupiter.api.Test;

public class SessionsTest {
    /** Leaks: three sessions stay in ThreadLocals of the pool's thread. */
    @Test
    public void serves() throws Exception {
        for (int i = 0; i < 3; i++) {
            Sessions.serve();
        }
    }

    @Test
    public void servesAndCloses() throws Exception {
        Sessions.serveAndClose();
    }
}
