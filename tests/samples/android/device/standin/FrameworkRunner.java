package standin;

import org.junit.runners.model.FrameworkMethod;
import org.junit.runners.model.InitializationError;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.internal.bytecode.InstrumentationConfiguration;

/**
 * Puts everything but the agent's natives into the class loader of the framework, as everything is in one class loader
 * on a phone: HotSpot's agent binds them where the application's class loader finds them.
 */
public final class FrameworkRunner extends RobolectricTestRunner {
    public FrameworkRunner(Class<?> suite) throws InitializationError {
        super(suite);
    }

    @Override
    protected InstrumentationConfiguration createClassLoaderConfig(FrameworkMethod method) {
        return new InstrumentationConfiguration.Builder(super.createClassLoaderConfig(method))
                .doNotAcquirePackage("io.memgate.agent.")
                // Robolectric leaves the rest of JUnit outside: of one kind with it.
                .doNotAcquirePackage("junit.framework.")
                .build();
    }
}
