package com.example;

import org.junit.runner.Description;
import org.junit.runner.notification.RunNotifier;

/** Runs long before somebody attaches; each line from outside is a test. */
public final class Attached {
    static byte[] countdown;

    private Attached() {}

    public static void main(String[] arguments) throws Exception {
        RunNotifier notifier = new RunNotifier();
        // Loaded, and used, before the agent is there.
        notifier.fireTestStarted(new Description("before"));
        notifier.fireTestFinished(new Description("before"));
        System.out.println("ready");
        java.io.BufferedReader lines = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Description test = new Description(line);
            notifier.fireTestStarted(test);
            // JDK 17: a thread learns that every allocation counts when its countdown to the next sample is over.
            countdown = new byte[16 << 20];
            Probes.writesNotes();
            notifier.fireTestFinished(test);
            System.out.println("ran " + line);
        }
    }
}
