import com.android.ddmlib.testrunner.ITestRunListener;
import com.android.ddmlib.testrunner.InstrumentationResultParser;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;

/**
 * How ddmlib reads streams of {@code am instrument -r}: a line for each call of its listener, one stream after
 * another.
 */
public final class Oracle {
    public static void main(String[] files) throws Exception {
        for (String file : files) {
            System.out.println("stream");
            ITestRunListener listener = (ITestRunListener) Proxy.newProxyInstance(
                    Oracle.class.getClassLoader(), new Class<?>[] {ITestRunListener.class}, (proxy, method, arguments) -> {
                        String first = arguments == null ? "" : String.valueOf(arguments[0]);
                        System.out.println(method.getName() + "\t" + first.replace('\n', ' '));
                        return null;
                    });
            InstrumentationResultParser parser = new InstrumentationResultParser("run", listener);
            String text = new String(Files.readAllBytes(Paths.get(file)), StandardCharsets.UTF_8);
            parser.processNewLines(Arrays.asList(text.split("\n", -1)).toArray(new String[0]));
            parser.done();
        }
    }
}
