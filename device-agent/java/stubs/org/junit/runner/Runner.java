package org.junit.runner;

public abstract class Runner {
    public abstract Description getDescription();
}
