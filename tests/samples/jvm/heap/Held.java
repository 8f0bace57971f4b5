import java.io.File;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import javax.management.ObjectName;

/** Keeps objects in known places and dumps its own heap: the arguments are those of GC.heap_dump, the file last. */
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
        worker.start();
        ready.await();
        // It is to wait, not only to be about to.
        while (worker.getState() != Thread.State.WAITING) {
            Thread.onSpinWait();
        }
        Object told = ManagementFactory.getPlatformMBeanServer().invoke(
                new ObjectName("com.sun.management:type=DiagnosticCommand"), "gcHeapDump",
                new Object[] {arguments}, new String[] {String[].class.getName()});
        done.countDown();
        worker.join();
        if (!new File(arguments[arguments.length - 1]).exists()) {
            throw new IllegalStateException(String.valueOf(told));
        }
    }
}
