package com.example;

import org.junit.jupiter.api.RepeatedTest;

public class StampsTest {
    /** Leaks, each time. */
    @RepeatedTest(2)
    void keepsStamps() {
        Desk.stamp();
    }
}
