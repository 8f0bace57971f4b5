package com.example;

import org.junit.Assert;
import org.junit.Test;

/** Runs only if it is selected by name. */
public class Fails {
    @Test
    public void always() {
        Assert.fail("on purpose");
    }
}
