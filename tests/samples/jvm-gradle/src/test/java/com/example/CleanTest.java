package com.example;

import static org.junit.Assert.assertEquals;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import org.junit.Test;

/** Leaves nothing, and records its environment. */
public class CleanTest {
    @Test
    public void runsWithWhatTheBuildGaveIt() throws Exception {
        assertEquals("flag", System.getProperty("tiles.flag"));
        assertEquals("property", System.getProperty("tiles.property"));
        Path notes = Paths.get("surroundings.txt");
        String line = System.getProperty("user.dir") + "\n";
        Files.write(notes, line.getBytes(), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }
}
