package com.example;

import org.junit.runner.Description;
import org.junit.runner.notification.RunNotifier;

/** Starts long before the agent attaches; each line of stdin is a test. */
public final class Attached {
    static byte[] countdown;

    private Attached() {}

    public static void main(String[] arguments) throws Exception {
        RunNotifier notifier = new RunNotifier();
        // The class is loaded and used before the agent is attached.
        notifier.fireTestStarted(new Description("before"));
        notifier.fireTestFinished(new Description("before"));
        System.out.println("ready");
        java.io.BufferedReader lines = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Description test = new Description(line);
            notifier.fireTestStarted(test);
            // JDK 17: a thread applies a new sampling interval only after its countdown to the next sample; end that.
            countdown = new byte[16 << 20];
            Probes.writesNotes();
            notifier.fireTestFinished(test);
            System.out.println("ran " + line);
        }
    }
}
