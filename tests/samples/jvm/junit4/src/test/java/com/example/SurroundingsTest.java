package com.example;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import org.junit.Test;

public class SurroundingsTest {
    /** Records its environment each time it runs. */
    @Test
    public void areKept() throws IOException {
        String seen = String.join(
                " ",
                System.getProperty("tiles.flag"),
                System.getProperty("tiles.property"),
                System.getProperty("tiles.user"),
                System.getProperty("tiles.late"),
                System.getProperty("http.agent"),
                System.getenv("TILES_VARIABLE"),
                System.getenv("JAVA_TOOL_OPTIONS"),
                System.getProperty("java.class.path").contains("memgate") ? "memgate" : "own",
                Boolean.toString(SurroundingsTest.class.desiredAssertionStatus()),
                Paths.get("").toAbsolutePath().toString());
        Files.write(
                Paths.get("target/surroundings.txt"),
                (seen + "\n").getBytes(StandardCharsets.UTF_8),
                StandardOpenOption.CREATE,
                StandardOpenOption.APPEND);
    }
}
