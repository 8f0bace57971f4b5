package org.junit.platform.launcher;

import java.util.Set;
import org.junit.platform.engine.ConfigurationParameters;

public class TestPlan {
    public Set<TestIdentifier> getRoots() {
        return null;
    }

    public Set<TestIdentifier> getDescendants(TestIdentifier parent) {
        return null;
    }

    public ConfigurationParameters getConfigurationParameters() {
        return null;
    }
}
