package androidx.test.runner;

/** The runner's class: when it is loaded, the agent defines memgate's listener in its class loader. */
public final class AndroidJUnitRunner {
    private AndroidJUnitRunner() {}
}
