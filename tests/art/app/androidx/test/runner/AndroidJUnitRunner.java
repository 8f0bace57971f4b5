package androidx.test.runner;

/** The class of the runner: where it is loaded, the agent brings memgate's listener to its class loader. */
public final class AndroidJUnitRunner {
    private AndroidJUnitRunner() {}
}
