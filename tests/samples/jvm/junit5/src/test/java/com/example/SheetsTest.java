package com.example;

import static org.junit.jupiter.api.DynamicContainer.dynamicContainer;
import static org.junit.jupiter.api.DynamicTest.dynamicTest;

import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicNode;
import org.junit.jupiter.api.TestFactory;

public class SheetsTest {
    /** The second one leaks. */
    @TestFactory
    Stream<DynamicNode> sheets() {
        return Stream.of(
                dynamicTest("reads", () -> { }),
                dynamicTest("keeps", Desk::sheet),
                dynamicContainer("closes", Stream.of(dynamicTest("at once", () -> { }))));
    }
}
