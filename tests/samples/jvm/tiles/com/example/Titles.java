package com.example;

import java.util.HashMap;
import java.util.Map;

/** A map of strings to strings: its objects are of JDK classes only. */
public final class Titles {
    static final Map<String, String> byNumber = new HashMap<>();
    private static int next = 10_000_000;

    private Titles() {}

    /** Key: 8 characters, value: 21. */
    public static void remember() {
        byNumber.put(String.valueOf(next++), new String("Lisbon, east of Belem".toCharArray()));
    }
}
