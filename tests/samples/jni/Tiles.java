import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.ref.Cleaner;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;

/** A library of native code, unpacked where it is needed and removed with the process, as jars bring them. */
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

    /** Its pixels go when nobody holds it any more: in a thread of the cleaner's, some time later. */
    static final class Owned {
        private static final Cleaner CLEANER = Cleaner.create();

        Owned(int bytes) {
            long pixels = open(bytes);
            CLEANER.register(this, () -> close(pixels));
        }
    }
}
