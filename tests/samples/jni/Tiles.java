import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.ref.Cleaner;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;

/** A native library, unpacked where it is used and deleted with the process, as jars do. */
final class Tiles {
    static {
        try {
            File unpacked = File.createTempFile("libtiles-", ".so");
            unpacked.deleteOnExit();
            File packed = new File(System.getProperty("tiles"));
            Files.copy(packed.toPath(), unpacked.toPath(), StandardCopyOption.REPLACE_EXISTING);
            System.load(unpacked.getPath());
        } catch (IOException why) {
            throw new UncheckedIOException(why);
        }
    }

    private Tiles() {}

    static native long open(int bytes);

    static native void close(long pixels);

    /** Its pixels are freed some time after it is unreachable, in the cleaner's thread. */
    static final class Owned {
        private static final Cleaner CLEANER = Cleaner.create();

        Owned(int bytes) {
            long pixels = open(bytes);
            CLEANER.register(this, () -> close(pixels));
        }
    }
}
