package io.memgate.launcher;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.SocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;

/**
 * The harness at the other end of a Unix socket. The launcher sends lines; where the virtual machine must wait, the
 * harness answers with a line. The words are separated by tabs, because names contain blanks.
 *
 * <pre>
 * pid 4711                              first of all
 * iteration 3
 * start - com.example.ATest scroll(int)[2]
 * end 0 com.example.ATest scroll(int)[2]      0 passed, 1 failed, 2 skipped
 * window 0 com.example.ATest scroll(int)[2]   is answered by orders, a number, once the heap was counted
 * bye                                   is answered by 0
 * </pre>
 */
final class SocketGate implements Gate {
    private final OutputStream out;
    private final BufferedReader in;

    SocketGate(String path) throws IOException, ReflectiveOperationException {
        // Needs Java 16; this is compiled for older versions.
        SocketAddress address =
                (SocketAddress) Class.forName("java.net.UnixDomainSocketAddress").getMethod("of", String.class).invoke(null, path);
        SocketChannel channel = SocketChannel.open(address);
        out = Channels.newOutputStream(channel);
        in = new BufferedReader(new InputStreamReader(Channels.newInputStream(channel), StandardCharsets.UTF_8));
        say("pid " + new File("/proc/self").getCanonicalFile().getName());
    }

    @Override
    public void iteration(int number) throws IOException {
        say("iteration\t" + number);
    }

    @Override
    public void started(Selection selection) throws IOException {
        say("start\t-\t" + selection.suite + '\t' + selection.test);
    }

    @Override
    public void finished(Selection selection, int outcome) throws IOException {
        say("end\t" + outcome + '\t' + selection.suite + '\t' + selection.test);
    }

    @Override
    public int window(Selection selection, int outcome) throws IOException {
        say("window\t" + outcome + '\t' + selection.suite + '\t' + selection.test);
        return answer();
    }

    @Override
    public void bye() throws IOException {
        say("bye");
        answer();
    }

    private void say(String line) throws IOException {
        out.write((line + '\n').getBytes(StandardCharsets.UTF_8));
    }

    private int answer() throws IOException {
        String line = in.readLine();
        if (line == null) {
            throw new IOException("memgate went away");
        }
        return Integer.parseInt(line);
    }
}
