package com.example;

/** Loaded anew by every {@link Plugins.Loader}. */
public final class Plugin {}
