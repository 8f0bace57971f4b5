import com.sun.management.HotSpotDiagnosticMXBean;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;

/** Keeps objects in known places and dumps its own heap: its arguments are those of GC.heap_dump, the file last. */
public class Held {
    static final Map<String, Session> SESSIONS = new HashMap<>();

    static class Session {
        final byte[] payload = new byte[100];
        final boolean closed;

        Session(boolean closed) {
            this.closed = closed;
        }
    }

    static class OfWorker {
        final long[] numbers = new long[50];
    }

    static void work(CountDownLatch ready, CountDownLatch done) {
        OfWorker local = new OfWorker();
        ready.countDown();
        try {
            done.await();
        } catch (InterruptedException why) {
            throw new IllegalStateException(why);
        }
        if (local.numbers[3] != 0) {
            throw new IllegalStateException();
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (int i = 0; i < 1000; i++) {
            SESSIONS.put("user-" + i, new Session(i % 100 == 0));
        }
        CountDownLatch ready = new CountDownLatch(1);
        CountDownLatch done = new CountDownLatch(1);
        Thread worker = new Thread(() -> work(ready, done), "the worker");
        // Whatever fails here ends the program.
        worker.setDaemon(true);
        worker.start();
        ready.await();
        // It is to wait, not only to be about to.
        while (worker.getState() != Thread.State.WAITING) {
            Thread.onSpinWait();
        }
        String file = arguments[arguments.length - 1];
        if (arguments.length == 1) {
            ManagementFactory.getPlatformMXBean(HotSpotDiagnosticMXBean.class).dumpHeap(file, true);
        } else {
            String jcmd = System.getProperty("java.home") + "/bin/jcmd";
            String self = Long.toString(ProcessHandle.current().pid());
            List<String> command = new ArrayList<>(List.of(jcmd, self, "GC.heap_dump"));
            command.addAll(List.of(arguments));
            new ProcessBuilder(command).redirectOutput(ProcessBuilder.Redirect.DISCARD).start().waitFor();
        }
        done.countDown();
        worker.join();
        if (!new File(file).exists()) {
            throw new IllegalStateException("no dump");
        }
    }
}
