import org.junit.jupiter.api.Test;

class CleanTest {
    private static long kept;

    @Test
    void keepsOneForAll() {
        if (kept == 0) {
            kept = Tiles.open(40_009);
        }
    }

    @Test
    void dropsWhatOwnsItsTile() {
        for (int i = 0; i < 20; i++) {
            new Tiles.Owned(7_001);
        }
    }
}
