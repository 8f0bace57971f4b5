package org.junit.platform.launcher;

import java.util.Set;

public class TestPlan {
    public Set<TestIdentifier> getRoots() {
        return null;
    }

    public Set<TestIdentifier> getDescendants(TestIdentifier parent) {
        return null;
    }
}
