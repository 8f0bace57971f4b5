package com.example;

import java.util.ArrayList;
import java.util.List;

/** A page of text. A bookmark refers to its page and so keeps all of the text. */
public final class Page {
    static final List<Bookmark> bookmarks = new ArrayList<>();

    private final byte[] text = new byte[2000];

    public Bookmark bookmark(int at) {
        return new Bookmark(at);
    }

    public static void keep(Bookmark bookmark) {
        bookmarks.add(bookmark);
    }

    /** A place in a page. */
    public final class Bookmark {
        private final int at;

        private Bookmark(int at) {
            this.at = at;
        }

        public byte letter() {
            return text[at];
        }
    }
}
