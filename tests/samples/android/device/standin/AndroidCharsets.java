package standin;

import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.nio.charset.spi.CharsetProvider;
import java.util.Collections;
import java.util.Iterator;

/** AndroidX Test asks for the charset {@code UTF_8}. Android knows that name, HotSpot does not. */
public final class AndroidCharsets extends CharsetProvider {
    @Override
    public Iterator<Charset> charsets() {
        return Collections.emptyIterator();
    }

    @Override
    public Charset charsetForName(String name) {
        return name.equals("UTF_8") ? StandardCharsets.UTF_8 : null;
    }
}
