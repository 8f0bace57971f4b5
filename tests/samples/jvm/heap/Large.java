import com.sun.management.HotSpotDiagnosticMXBean;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Large heap dumps: a tree of nodes, each with a byte array, and one destroyed object that the last node holds, so that
 * a search passes all others first. Arguments: hotspot or art, number of nodes, file. HotSpot dumps itself; a dump in
 * Android's format is written record by record.
 */
public class Large {
    static final int PAYLOAD = 48;
    static Node root;

    static class Node {
        Object left;
        Object right;
        byte[] payload = new byte[PAYLOAD];
        long number;
    }

    static class Session {
        boolean closed = true;
        byte[] buffer = new byte[1000];
    }

    public static void main(String[] arguments) throws Exception {
        int nodes = Integer.parseInt(arguments[1]);
        if (arguments[0].equals("art")) {
            try (DataOutputStream out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(arguments[2]), 1 << 20))) {
                new Art(out).write(nodes);
            }
            return;
        }
        Node[] all = new Node[nodes];
        for (int at = 0; at < nodes; at++) {
            all[at] = new Node();
            all[at].number = at;
            if (at > 0) {
                Node above = all[(at - 1) / 2];
                if (at % 2 == 1) {
                    above.left = all[at];
                } else {
                    above.right = all[at];
                }
            }
        }
        root = all[0];
        all[nodes - 1].left = new Session();
        all = null;
        ManagementFactory.getPlatformMXBean(HotSpotDiagnosticMXBean.class).dumpHeap(arguments[2], true);
    }

    /** Four-byte ids, named heaps, java.lang.Object's fields in each instance, segments of a few megabytes. */
    static class Art {
        static final int SEGMENT = 4 << 20;
        final DataOutputStream file;
        final Map<String, Integer> names = new LinkedHashMap<>();
        final Map<Integer, Integer> sizes = new LinkedHashMap<>();
        final ByteArrayOutputStream bytes = new ByteArrayOutputStream(SEGMENT + (1 << 16));
        final DataOutputStream heap = new DataOutputStream(bytes);
        int next = 0x1000_0000;

        Art(DataOutputStream file) {
            this.file = file;
        }

        int id() {
            next += 8;
            return next;
        }

        void record(int tag, byte[] body, int length) throws IOException {
            file.writeByte(tag);
            file.writeInt(0);
            file.writeInt(length);
            file.write(body, 0, length);
        }

        int name(String text) throws IOException {
            Integer known = names.get(text);
            if (known != null) {
                return known;
            }
            int id = 0x10_0000 + names.size();
            names.put(text, id);
            ByteArrayOutputStream body = new ByteArrayOutputStream();
            DataOutputStream out = new DataOutputStream(body);
            out.writeInt(id);
            out.write(text.getBytes("UTF-8"));
            record(0x01, body.toByteArray(), body.size());
            return id;
        }

        int loaded(String name) throws IOException {
            int id = id();
            ByteArrayOutputStream body = new ByteArrayOutputStream();
            DataOutputStream out = new DataOutputStream(body);
            out.writeInt(sizes.size() + 1);
            out.writeInt(id);
            out.writeInt(0);
            out.writeInt(name(name));
            record(0x02, body.toByteArray(), body.size());
            sizes.put(id, 0);
            return id;
        }

        /** statics: name, type, value. fields: name, type. */
        void type(int id, int above, int bytesOfInstances, Object[][] statics, Object[][] fields) throws IOException {
            heap.writeByte(0x20);
            heap.writeInt(id);
            heap.writeInt(0);
            heap.writeInt(above);
            for (int i = 0; i < 5; i++) {
                heap.writeInt(0);
            }
            heap.writeInt(bytesOfInstances);
            heap.writeShort(0);
            heap.writeShort(statics.length);
            for (Object[] field : statics) {
                heap.writeInt(name((String) field[0]));
                heap.writeByte((Integer) field[1]);
                heap.writeInt((Integer) field[2]);
            }
            heap.writeShort(fields.length);
            for (Object[] field : fields) {
                heap.writeInt(name((String) field[0]));
                heap.writeByte((Integer) field[1]);
            }
        }

        void segment() throws IOException {
            record(0x1c, bytes.toByteArray(), bytes.size());
            bytes.reset();
            heap.writeByte(0xfe);
            heap.writeInt('A');
            heap.writeInt(name("app"));
        }

        void instance(int id, int type, int length) throws IOException {
            if (bytes.size() > SEGMENT) {
                segment();
            }
            heap.writeByte(0x21);
            heap.writeInt(id);
            heap.writeInt(0);
            heap.writeInt(type);
            heap.writeInt(length);
        }

        void array(int id, byte[] content) throws IOException {
            heap.writeByte(0x23);
            heap.writeInt(id);
            heap.writeInt(0);
            heap.writeInt(content.length);
            heap.writeByte(8);
            heap.write(content);
        }

        void write(int nodes) throws IOException {
            file.write("JAVA PROFILE 1.0.3\0".getBytes("UTF-8"));
            file.writeInt(4);
            file.writeLong(1_500_000_000_000L);
            // Strings and classes precede all segments.
            for (String text : new String[] {"app", "shadow$_klass_", "shadow$_monitor_", "SDK_INT", "MANUFACTURER", "ID", "value", "count", "hash", "mDestroyed", "left", "right", "payload", "number", "root"}) {
                name(text);
            }
            int object = loaded("java.lang.Object");
            int string = loaded("java.lang.String");
            int build = loaded("android.os.Build");
            int version = loaded("android.os.Build$VERSION");
            int activity = loaded("android.app.Activity");
            int node = loaded("com.example.Node");
            int holder = loaded("com.example.Holder");
            int first = next + 8;
            int over = first + 16 * nodes;
            int text = over + 8;
            next = text + 8;
            heap.writeByte(0xfe);
            heap.writeInt('A');
            heap.writeInt(name("app"));
            type(object, 0, 8, new Object[][] {}, new Object[][] {{"shadow$_klass_", 2}, {"shadow$_monitor_", 10}});
            type(string, object, 20, new Object[][] {}, new Object[][] {{"value", 2}, {"count", 10}, {"hash", 10}});
            type(build, object, 8, new Object[][] {{"MANUFACTURER", 2, text}, {"ID", 2, text}}, new Object[][] {});
            type(version, object, 8, new Object[][] {{"SDK_INT", 10, 30}}, new Object[][] {});
            type(activity, object, 9, new Object[][] {}, new Object[][] {{"mDestroyed", 4}});
            type(node, object, 28, new Object[][] {}, new Object[][] {{"left", 2}, {"right", 2}, {"payload", 2}, {"number", 11}});
            type(holder, object, 8, new Object[][] {{"root", 2, first}}, new Object[][] {});
            for (int type : new int[] {object, string, build, version, activity, node, holder}) {
                heap.writeByte(0x05);
                heap.writeInt(type);
            }
            byte[] payload = new byte[PAYLOAD];
            for (int at = 0; at < nodes; at++) {
                instance(first + 16 * at, node, 28);
                for (int below = 2 * at + 1; below <= 2 * at + 2; below++) {
                    int none = at == nodes - 1 && below % 2 == 1 ? over : 0;
                    heap.writeInt(below < nodes ? first + 16 * below : none);
                }
                heap.writeInt(first + 16 * at + 8);
                heap.writeLong(at);
                heap.writeInt(node);
                heap.writeInt(0);
                payload[at % PAYLOAD]++;
                array(first + 16 * at + 8, payload);
            }
            // LeakCanary reads the device's description.
            instance(text, string, 20);
            for (int field : new int[] {text + 8, 4, 0, string, 0}) {
                heap.writeInt(field);
            }
            array(text + 8, "none".getBytes("UTF-8"));
            instance(over, activity, 9);
            heap.writeByte(1);
            heap.writeInt(activity);
            heap.writeInt(0);
            segment();
            bytes.reset();
            record(0x2c, new byte[0], 0);
        }
    }
}
