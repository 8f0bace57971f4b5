package org.junit.runner.manipulation;

public class Sorter {
    public void apply(Object object) {}
}
