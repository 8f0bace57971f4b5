package com.example;

import org.junit.Test;

public class PageTest {
    /** Leaks: a bookmark and, through it, its page. */
    @Test
    public void keepsBookmarks() {
        Page.keep(new Page().bookmark(7));
    }

    @Test
    public void readsOne() {
        new Page().bookmark(7).letter();
    }
}
