import static org.junit.jupiter.api.Assertions.assertNull;

import org.junit.jupiter.api.Test;

class KeepsTest {
    @Test
    void keepsItsTile() {
        Tiles.open(115_003);
    }

    @Test
    void closesItsTile() {
        Tiles.close(Tiles.open(115_003));
    }

    @Test
    void seesItsOwnEnvironment() {
        assertNull(System.getenv("LD_PRELOAD"));
        assertNull(System.getenv("MEMGATE_AGENT_OPTIONS"));
    }
}
