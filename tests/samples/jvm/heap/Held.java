import com.sun.management.HotSpotDiagnosticMXBean;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;

/** Keeps objects in known places and dumps its own heap. Arguments: those of GC.heap_dump, with the file last. */
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

    /** Held by a virtual thread without a carrier: its stack is in the heap. */
    static class OfVirtual {
        final long[] numbers = new long[50];
    }

    static void park(CountDownLatch ready, CountDownLatch done) {
        OfVirtual local = new OfVirtual();
        await(ready, done);
        if (local.numbers[3] != 0) {
            throw new IllegalStateException();
        }
    }

    static void await(CountDownLatch ready, CountDownLatch done) {
        ready.countDown();
        try {
            done.await();
        } catch (InterruptedException why) {
            throw new IllegalStateException(why);
        }
    }

    /** Starts a virtual thread; null before JDK 21, which has none. */
    static Thread virtual(Runnable work) throws ReflectiveOperationException {
        try {
            return (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, work);
        } catch (NoSuchMethodException none) {
            return null;
        }
    }

    static void work(CountDownLatch ready, CountDownLatch done) {
        OfWorker local = new OfWorker();
        await(ready, done);
        if (local.numbers[3] != 0) {
            throw new IllegalStateException();
        }
    }

    static void jcmd(List<String> what, String to) throws Exception {
        List<String> command = new ArrayList<>();
        command.add(System.getProperty("java.home") + "/bin/jcmd");
        command.add(Long.toString(ProcessHandle.current().pid()));
        command.addAll(what);
        new ProcessBuilder(command).redirectOutput(new File(to)).start().waitFor();
    }

    public static void main(String[] arguments) throws Exception {
        for (int i = 0; i < 1000; i++) {
            SESSIONS.put("user-" + i, new Session(i % 100 == 0));
        }
        CountDownLatch ready = new CountDownLatch(1);
        CountDownLatch done = new CountDownLatch(1);
        Thread worker = new Thread(() -> work(ready, done), "the worker");
        // An error in this method then ends the program.
        worker.setDaemon(true);
        worker.start();
        ready.await();
        // Wait until it really waits.
        while (worker.getState() != Thread.State.WAITING) {
            Thread.onSpinWait();
        }
        CountDownLatch parked = new CountDownLatch(1);
        Thread virtual = virtual(() -> park(parked, done));
        if (virtual != null) {
            parked.await();
            while (virtual.getState() != Thread.State.WAITING) {
                Thread.onSpinWait();
            }
        }
        String file = arguments[arguments.length - 1];
        if (arguments.length == 1) {
            ManagementFactory.getPlatformMXBean(HotSpotDiagnosticMXBean.class).dumpHeap(file, true);
        } else {
            List<String> dump = new ArrayList<>(List.of("GC.heap_dump"));
            dump.addAll(List.of(arguments));
            // Counts before and after the dump show what the commands themselves change.
            List<String> count = new ArrayList<>(List.of("GC.class_histogram"));
            jcmd(count, file + ".before");
            jcmd(dump, file + ".told");
            jcmd(count, file + ".after");
        }
        done.countDown();
        worker.join();
        if (virtual != null) {
            virtual.join();
        }
        if (!new File(file).exists()) {
            throw new IllegalStateException("no dump");
        }
    }
}
