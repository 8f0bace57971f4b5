package com.example;

/** Every {@link Plugins.Loader} loads it again. */
public final class Plugin {}
