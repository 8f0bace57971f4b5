import io.memgate.agent.Hooks;
import java.util.ArrayList;
import java.util.List;

/** Six windows of a test that keeps its objects, reported as memgate's listener reports them. */
public final class App {
    static final class Tile { long a, b; }
    static final List<Object> KEPT = new ArrayList<>();

    private App() {}

    public static void main(String[] arguments) {
        if (!Hooks.active()) throw new AssertionError("the agent has bound nothing");
        Hooks.reportedBy("android");
        for (int window = 0; window < 6; window++) {
            Hooks.testStarted("AppTest", "grows");
            for (int i = 0; i < 3; i++) KEPT.add(new Tile());
            for (int i = 0; i < 100; i++) new Tile();
            Hooks.window("AppTest", "grows", Hooks.PASSED);
        }
        System.out.println("ran in " + System.getProperty("java.vm.name") + " " + System.getProperty("java.vm.version"));
    }
}
