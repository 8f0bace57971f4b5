package org.junit.runner.manipulation;

import org.junit.runner.Description;

public abstract class Filter {
    public static Filter matchMethodDescription(Description description) {
        return null;
    }
}
