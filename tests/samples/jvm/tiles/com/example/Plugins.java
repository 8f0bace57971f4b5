package com.example;

import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.List;

/** Each plugin has its own class loader, which stays as long as the plugin. */
public final class Plugins {
    static final List<Object> active = new ArrayList<>();

    private Plugins() {}

    public static void activate() throws IOException, ReflectiveOperationException {
        active.add(load());
    }

    public static Object load() throws IOException, ReflectiveOperationException {
        return new Loader().plugin().getDeclaredConstructor().newInstance();
    }

    static final class Loader extends ClassLoader {
        Loader() {
            super(Plugins.class.getClassLoader());
        }

        Class<?> plugin() throws IOException {
            try (InputStream code = Plugins.class.getResourceAsStream("Plugin.class")) {
                byte[] bytes = code.readAllBytes();
                return defineClass("com.example.Plugin", bytes, 0, bytes.length);
            }
        }
    }
}
