import com.sun.management.HotSpotDiagnosticMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Takes two orders a day, keeps them in two places, and writes a dump every evening. Arguments: FOLDER DAYS. */
public class Shop {
    static final class Order {
        final List<String> items = new ArrayList<>(List.of("tea", "milk"));
    }

    static final Map<Integer, Order> BY_ID = new HashMap<>();
    static final LinkedList<Order> HISTORY = new LinkedList<>();
    static final ThreadLocal<Object> ONCE = new ThreadLocal<>();
    static final Map<String, Object> COMES_AND_GOES = new TreeMap<>();
    static final Map<String, byte[]> FULL = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        HotSpotDiagnosticMXBean machine = ManagementFactory.newPlatformMXBeanProxy(
                ManagementFactory.getPlatformMBeanServer(),
                "com.sun.management:type=HotSpotDiagnostic",
                HotSpotDiagnosticMXBean.class);
        for (int i = 0; i < 50; i++) {
            FULL.put("entry " + i, new byte[100]);
        }
        for (int day = 0; day < Integer.parseInt(arguments[1]); day++) {
            for (int i = 0; i < 2; i++) {
                Order order = new Order();
                BY_ID.put(BY_ID.size(), order);
                HISTORY.add(order);
            }
            if (day == 1) {
                ONCE.set(new Object());
            }
            COMES_AND_GOES.clear();
            for (int i = 0; i < (day % 2 == 0 ? 20 : 3); i++) {
                COMES_AND_GOES.put("guest " + i, new Object());
            }
            machine.dumpHeap(arguments[0] + "/day" + day + ".hprof", true);
        }
    }
}
