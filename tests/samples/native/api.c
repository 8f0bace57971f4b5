/* A C program without a test framework. It reports its boundaries through memgate's C API (device-agent/include).
 * `--count=N` runs its tests N times. Without the agent it does the same, and nothing is reported. */
#include <memgate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "escape.h"

NOINLINE static int store_row(void) {
    char* row = malloc(241); /* LEAK: api */
    escape(row);
    return row != NULL;
}

NOINLINE static int format_row(void) {
    char* row = malloc(243);
    escape(row);
    int made = row != NULL;
    free(row);
    return made;
}

static int run(const char* test, int (*body)(void)) {
    MemgateTestBegin("Api", test);
    int passed = body();
    MemgateTestEnd("Api", test, passed ? MEMGATE_PASSED : MEMGATE_FAILED);
    return passed;
}

int main(int argc, char** argv) {
    int count = 1;
    if (argc > 1 && strncmp(argv[1], "--count=", 8) == 0) count = atoi(argv[1] + 8);
    int passed = 1;
    for (int i = 0; i < count; ++i) {
        MemgateIteration((uint32_t)i);
        passed &= run("stores", store_row);
        passed &= run("formats", format_row);
        MemgateMark("round");
    }
    printf("%s, %s\n", passed ? "passed" : "failed", MemgateActive() ? "recorded" : "not recorded");
    return !passed;
}
