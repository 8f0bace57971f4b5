package org.junit.platform.engine;

import java.util.Optional;
import java.util.Set;

public interface ConfigurationParameters {
    Optional<String> get(String key);

    Set<String> keySet();
}
