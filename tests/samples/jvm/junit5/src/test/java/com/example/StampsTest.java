package com.example;

import org.junit.jupiter.api.RepeatedTest;

public class StampsTest {
    /** Each repetition leaks. */
    @RepeatedTest(2)
    void keepsStamps() {
        Desk.stamp();
    }
}
