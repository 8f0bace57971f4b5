package org.junit.runner;

import java.util.ArrayList;

public class Description {
    public static Description createTestDescription(Class<?> suite, String name) {
        return null;
    }

    public boolean isTest() {
        return false;
    }

    public String getClassName() {
        return null;
    }

    public String getMethodName() {
        return null;
    }

    public String getDisplayName() {
        return null;
    }

    public ArrayList<Description> getChildren() {
        return null;
    }
}
