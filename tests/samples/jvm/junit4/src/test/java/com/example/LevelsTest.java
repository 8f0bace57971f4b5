package com.example;

import org.junit.Test;
import org.junit.runner.RunWith;
import org.junit.runners.Parameterized;
import org.junit.runners.Parameterized.Parameters;

@RunWith(Parameterized.class)
public class LevelsTest {
    private final int level;

    public LevelsTest(int level) {
        this.level = level;
    }

    @Parameters
    public static Object[] levels() {
        return new Object[] {0, 1, 2, 3};
    }

    /** Leaks only with the parameter 2. */
    @Test
    public void loads() {
        Desk.load(level);
    }
}
