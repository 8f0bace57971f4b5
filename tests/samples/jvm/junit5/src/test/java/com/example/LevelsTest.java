package com.example;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

public class LevelsTest {
    /** Leaks only with the parameter 2. */
    @ParameterizedTest
    @ValueSource(ints = {0, 1, 2, 3})
    public void loads(int level) {
        Desk.load(level);
    }
}
