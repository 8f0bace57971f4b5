/* Shared by the guests of tests/tests/e2e/guest. A guest is plain user code that knows nothing of the agent. A test
 * runs it plain and tracked and compares the output: stdout must be the same, except for lines that begin with '#'. */
#ifndef MEMGATE_GUEST_H
#define MEMGATE_GUEST_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone))

/* Makes the compiler treat the pointer as used and changed. */
static inline void* escape(void* p) {
    __asm__ volatile("" : "+r"(p) : : "memory");
    return p;
}

static inline void need(int holds, const char* what) {
    if (!holds) {
        perror(what);
        exit(99);
    }
}

static inline void tell(const char* what, long value) { printf("%s: %ld\n", what, value); }

#endif
