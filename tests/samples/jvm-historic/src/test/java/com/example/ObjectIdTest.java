package com.example;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.annotation.JsonIdentityInfo;
import com.fasterxml.jackson.annotation.ObjectIdGenerators;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import org.junit.jupiter.api.Test;

/** jackson-databind issue 490. */
class ObjectIdTest {
    static final ObjectMapper MAPPER = new ObjectMapper();
    private static int next = 1000;

    @JsonIdentityInfo(generator = ObjectIdGenerators.PropertyGenerator.class, property = "id")
    static final class Tile {
        public int id;
        public Tile neighbour;
    }

    @Test
    void aDocumentThatWasReadIsForgotten() throws IOException {
        int id = next++;
        assertEquals(id, MAPPER.readValue("{\"id\":" + id + "}", Tile.class).id);
    }
}
