package com.example;

import org.junit.Test;

public class SessionsTest {
    /** Leaks: three sessions stay with the thread of the pool. */
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
