import com.sun.management.HotSpotDiagnosticMXBean;
import com.sun.management.OperatingSystemMXBean;
import io.memgate.agent.Hooks;
import java.io.File;
import java.io.RandomAccessFile;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Method;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/**
 * The program in the virtual machine whose cost is measured. It gives the agent its orders itself, through the control
 * page of its spool. So all configurations are measured alternately in one virtual machine: compiled code differs
 * between virtual machines by more than the agent costs.
 *
 * <pre>
 *   JavaBench work NAME RUNS                          line `process NANOSECONDS`, CPU of the process
 *   JavaBench sampling NAME ROUNDS SPOOLS FOLLOW      lines `CONFIG NANOSECONDS`, mutator CPU: the agent
 *                                                     in turn with its pause
 *   JavaBench peer NAME ROUNDS LIBRARY                the same of async-profiler: a virtual machine lets
 *                                                     one agent sample
 *   JavaBench heap SPOOLS OFFSETS OBJECTS ROUNDS DUMP  lines `WHAT NANOSECONDS`, CPU of the process; OFFSETS:
 *                                                      boundary,acknowledged,orders,harness,classes
 * </pre>
 */
public final class JavaBench {
    private static final int RING = 4096;
    static volatile Object sink;

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "work" -> work(arguments[1], Integer.parseInt(arguments[2]));
            case "sampling" -> {
                MappedByteBuffer page = controlPage(new File(arguments[3]));
                int follow = Integer.parseInt(arguments[4]);
                sampling(arguments, on -> page.putInt(follow, on ? 0 : 1));
            }
            case "peer" -> {
                Object profiler = profiler(arguments[3]);
                Method execute = profiler.getClass().getMethod("execute", String.class);
                sampling(arguments, on -> {
                    if (on != running) {
                        execute.invoke(profiler, on ? "start,event=alloc,alloc=512k,live" : "stop");
                    }
                    running = on;
                });
            }
            case "heap" -> heap(arguments);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void work(String name, int runs) {
        for (int i = 0; i < runs; i++) {
            workload(name);
        }
        System.out.println("process " + ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class).getProcessCpuTime());
    }

    // --- sampling

    /** Switches sampling on and off. */
    private interface Switch {
        void turn(boolean on) throws Exception;
    }

    private static boolean running;

    private static void sampling(String[] arguments, Switch sampler) throws Exception {
        List<String> configs = new ArrayList<>(List.of("off", "again", "on"));
        Random random = new Random(7);
        // The first rounds are for the JIT compiler.
        for (int round = -3; round < Integer.parseInt(arguments[2]); round++) {
            Collections.shuffle(configs, random);
            for (String config : configs) {
                sampler.turn(config.equals("on"));
                long nanoseconds = inThread(arguments[1]);
                if (round >= 0) {
                    System.out.println(config + " " + nanoseconds);
                }
            }
        }
    }

    /**
     * CPU time of a workload in its own thread: on some versions a thread keeps the sampling interval with which it
     * began.
     */
    private static long inThread(String name) throws InterruptedException {
        long[] took = new long[1];
        // Garbage of an earlier configuration is not collected during this one.
        System.gc();
        Thread thread = new Thread(() -> {
            long began = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
            workload(name);
            took[0] = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - began;
        });
        thread.start();
        thread.join();
        return took[0];
    }

    private static Object profiler(String library) throws ReflectiveOperationException {
        return Class.forName("one.profiler.AsyncProfiler").getMethod("getInstance", String.class).invoke(null, library);
    }

    private static void workload(String name) {
        switch (name) {
            case "micro" -> micro(8_000_000);
            case "json" -> json(1_500);
            default -> throw new IllegalArgumentException(name);
        }
    }

    private static final class Small {
        long value;
        Object next;
    }

    /** Only small objects and arrays: the worst case. */
    private static void micro(int count) {
        Object[] ring = new Object[RING];
        for (int i = 0; i < count; i++) {
            int kind = i & 7;
            Object made;
            if (kind < 5) {
                Small small = new Small();
                small.value = i;
                made = small;
            } else {
                made = new byte[kind * 2];
            }
            ring[i & (RING - 1)] = made;
        }
        sink = ring;
    }

    /** Reads a document into maps, lists and strings, and writes it again. */
    private static void json(int documents) {
        StringBuilder text = new StringBuilder("[");
        for (int i = 0; i < 20; i++) {
            text.append(i == 0 ? "" : ",").append("{\"id\":").append(i).append(",\"name\":\"item ").append(i)
                    .append("\",\"tags\":[\"red\",\"green\",\"blue\"],\"price\":{\"amount\":").append(i * 7)
                    .append(",\"currency\":\"EUR\"},\"text\":\"some words that describe the item\"}");
        }
        String document = text.append("]").toString();
        for (int i = 0; i < documents; i++) {
            StringBuilder out = new StringBuilder();
            write(new Reader(document).value(), out);
            if (out.length() != document.length()) {
                throw new IllegalStateException("the document is another one");
            }
            sink = out;
        }
    }

    private static final class Reader {
        private final String text;
        private int at;

        Reader(String text) {
            this.text = text;
        }

        Object value() {
            switch (text.charAt(at)) {
                case '[': {
                    List<Object> list = new ArrayList<>();
                    while (text.charAt(at++) != ']') {
                        if (text.charAt(at) != ']') {
                            list.add(value());
                        }
                    }
                    return list;
                }
                case '{': {
                    Map<String, Object> map = new LinkedHashMap<>();
                    while (text.charAt(at++) != '}') {
                        String key = (String) value();
                        at++;
                        map.put(key, value());
                    }
                    return map;
                }
                case '"': {
                    int end = text.indexOf('"', at + 1);
                    String word = text.substring(at + 1, end);
                    at = end + 1;
                    return word;
                }
                default: {
                    int from = at;
                    while (Character.isDigit(text.charAt(at))) {
                        at++;
                    }
                    return Long.valueOf(text.substring(from, at));
                }
            }
        }
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof Map<?, ?> map) {
            char before = '{';
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                out.append(before);
                write(entry.getKey(), out);
                out.append(':');
                write(entry.getValue(), out);
                before = ',';
            }
            out.append('}');
        } else if (value instanceof List<?> list) {
            char before = '[';
            for (Object element : list) {
                out.append(before);
                write(element, out);
                before = ',';
            }
            out.append(']');
        } else if (value instanceof String) {
            out.append('"').append(value).append('"');
        } else {
            out.append(value);
        }
    }

    // --- boundaries

    /** The class that grows: 1,000 in each window, one in forty objects of the heap. */
    private static final class Grown {
        final long number;

        Grown(long number) {
            this.number = number;
        }
    }

    private static void heap(String[] arguments) throws Exception {
        MappedByteBuffer page = controlPage(new File(arguments[1]));
        int[] offsets = Arrays.stream(arguments[2].split(",")).mapToInt(Integer::parseInt).toArray();
        int objects = Integer.parseInt(arguments[3]);
        int rounds = Integer.parseInt(arguments[4]);
        File dump = new File(arguments[5]);
        List<Grown> grown = new ArrayList<>();
        Object held = fill(objects, grown);
        page.putInt(offsets[3], 1);
        HotSpotDiagnosticMXBean diagnostic = ManagementFactory.getPlatformMXBean(HotSpotDiagnosticMXBean.class);
        for (int round = -1; round < rounds; round++) {
            long collected = cpu(System::gc);
            long window = cpu(() -> window(page, offsets, 0));
            long dumped = cpu(() -> {
                try {
                    diagnostic.dumpHeap(dump.getPath(), true);
                } catch (Exception why) {
                    throw new IllegalStateException(why);
                }
            });
            if (!dump.delete()) {
                throw new IllegalStateException("no heap dump was written");
            }
            // The class grows in three windows. Its survivors are searched from the third window on, and found at the
            // end of the second window after it.
            int number = numberOf(spoolIn(new File(arguments[1])), Grown.class.getName());
            long[] plain = new long[2];
            for (int i = 0; i < 2; i++) {
                grow(grown);
                plain[i] = cpu(() -> window(page, offsets, 0));
            }
            grow(grown);
            page.putInt(offsets[4] + 4, number);
            page.putInt(offsets[4], (page.getInt(offsets[0]) + 1) << 8 | 0x80 | 1);
            long chosen = cpu(() -> window(page, offsets, Hooks.EXPLAIN));
            grow(grown);
            long born = cpu(() -> window(page, offsets, 0));
            grow(grown);
            long explained = cpu(() -> window(page, offsets, 0));
            if (round >= 0) {
                System.out.println("collection " + collected);
                System.out.println("boundary " + window);
                System.out.println("dump " + dumped);
                // The survivors are then requested by their mark, in 3 to 7 hundredths of a collection.
                System.out.println("survivors " + (chosen + born - plain[0] - plain[1]));
                System.out.println("explained " + (chosen + born + explained - 2 * plain[0] - plain[1]));
            }
        }
        // At the end, the process waits for no harness.
        page.putInt(offsets[3], 0);
        sink = held;
    }

    private static void grow(List<Grown> grown) {
        for (int i = 0; i < 1_000; i++) {
            grown.add(new Grown(i));
        }
    }

    /** Fills a heap like that of an ordinary program: maps, strings, lists, numbers, and the class that will grow. */
    private static Object fill(int objects, List<Grown> grown) {
        Map<Integer, Object> all = new HashMap<>();
        // Eight objects per entry: node, key, list and its array, string and its bytes, ints, a number.
        for (int i = 0; i < objects / 8; i++) {
            List<Object> list = new ArrayList<>(4);
            list.add("entry " + i);
            list.add(new int[] {i, i});
            list.add(Long.valueOf(1_000L + i));
            all.put(i + 1_000, list);
            if (i % 5 == 0) {
                grown.add(new Grown(i));
            }
        }
        return all;
    }

    /** Ends a window. The orders are written before the agent asks for them. */
    private static void window(MappedByteBuffer page, int[] offsets, int orders) {
        int next = page.getInt(offsets[0]) + 1;
        page.putInt(offsets[2], next << 8 | orders);
        page.putInt(offsets[1], next);
        int given = Hooks.window("bench", "window", Hooks.PASSED);
        if (given != orders) {
            throw new IllegalStateException("the agent took the orders " + given + " for " + orders);
        }
    }

    private static long cpu(Runnable what) {
        OperatingSystemMXBean system = ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);
        long began = system.getProcessCpuTime();
        what.run();
        return system.getProcessCpuTime() - began;
    }

    /**
     * The number of a class in the stream. It is stored before the length of the class's name, with seven bits per
     * byte, the lowest bits first.
     */
    private static int numberOf(File spool, String name) throws Exception {
        String stream = Files.readString(spool.toPath(), StandardCharsets.ISO_8859_1);
        int at = stream.indexOf((char) name.length() + name) - 1;
        if (at < 0) {
            throw new IllegalStateException("the stream names no " + name);
        }
        int number = stream.charAt(at);
        while (stream.charAt(--at) >= 0x80) {
            number = number << 7 | stream.charAt(at) & 0x7f;
        }
        return number;
    }

    private static MappedByteBuffer controlPage(File spools) throws Exception {
        try (RandomAccessFile file = new RandomAccessFile(spoolIn(spools), "rw")) {
            MappedByteBuffer page = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 4096);
            page.order(ByteOrder.nativeOrder());
            return page;
        }
    }

    private static File spoolIn(File spools) {
        File[] found = spools.listFiles((folder, name) -> name.endsWith(".mgf"));
        if (found == null || found.length != 1) {
            throw new IllegalStateException("the agent records into one file in " + spools);
        }
        return found[0];
    }
}
