package standin;

import org.junit.runners.model.FrameworkMethod;
import org.junit.runners.model.InitializationError;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.internal.bytecode.InstrumentationConfiguration;

/**
 * Loads everything except the agent's natives in the framework's class loader, because a phone has only one class
 * loader. HotSpot's agent binds its natives in the application's class loader.
 */
public final class FrameworkRunner extends RobolectricTestRunner {
    public FrameworkRunner(Class<?> suite) throws InitializationError {
        super(suite);
    }

    @Override
    protected InstrumentationConfiguration createClassLoaderConfig(FrameworkMethod method) {
        return new InstrumentationConfiguration.Builder(super.createClassLoaderConfig(method))
                .doNotAcquirePackage("io.memgate.agent.")
                // Robolectric loads the other JUnit classes outside of it; these must match.
                .doNotAcquirePackage("junit.framework.")
                .build();
    }
}
