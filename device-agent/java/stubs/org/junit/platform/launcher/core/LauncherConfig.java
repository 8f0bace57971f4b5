package org.junit.platform.launcher.core;

public interface LauncherConfig {
    static Builder builder() {
        return null;
    }

    class Builder {
        public Builder enableTestExecutionListenerAutoRegistration(boolean enabled) {
            return null;
        }

        public LauncherConfig build() {
            return null;
        }
    }
}
