/* Prints the result of every allocation function, and errno: successes, refusals, huge requests, special cases. The
 * output must be the same plain and tracked. The end prints live blocks as `alive BYTES COUNT`, for a comparison with
 * the agent's records.
 * `guest_calls [others]`: for allocators other than the C library's. Some lack pvalloc, and then `free` would get a
 * block of the C library. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <unistd.h>

#include "guest.h"

extern void cfree(void*) __attribute__((weak));

static volatile size_t none, huge = (size_t)PTRDIFF_MAX, most = SIZE_MAX;
static void* volatile mark = (void*)&huge;

/* Prints the result of a call, with errno set before and read after. */
#define CALL(EXPRESSION)                                                                                    \
    ({                                                                                                      \
        errno = 4711;                                                                                       \
        void* got_ = EXPRESSION;                                                                            \
        escape(got_);                                                                                       \
        printf("%s: %s, errno %d, aligned %d, usable %zu\n", #EXPRESSION, got_ ? "block" : "null", errno,   \
               got_ ? __builtin_ctzl((uintptr_t)got_ | 4096) >= 4 : -1, malloc_usable_size(got_));           \
        got_;                                                                                               \
    })

static void refused(const char* name, size_t alignment, size_t bytes) {
    void* out = mark;
    errno = 4711;
    int status = posix_memalign(&out, alignment, bytes);
    printf("posix_memalign %s: %d, untouched %d, errno %d\n", name, status, out == mark, errno);
    if (status == 0) free(out);
}

static void sizes(void) {
    size_t sum = 0;
    for (size_t n = 0; n < 5000; ++n) {
        void* p = escape(malloc(n));
        sum = sum * 31 + malloc_usable_size(p);
        free(p);
    }
    printf("usable sizes: %zu\n", sum);
}

int main(int count, char** arguments) {
    void *a, *b, *c;
    int others = count > 1 && !strcmp(arguments[1], "others");
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    free(CALL(malloc(100)));
    free(CALL(malloc(none)));
    free(CALL(calloc(10, 10)));
    free(CALL(calloc(none, 10)));
    free(CALL(calloc(10, none)));
    free(CALL(memalign(64, 100)));
    free(CALL(memalign(48, 100)));
    free(CALL(aligned_alloc(64, 100)));
    free(CALL(aligned_alloc(4096, none)));
    free(CALL(valloc(100)));
    if (!others) {
        free(CALL(pvalloc(100)));
        free(CALL(pvalloc(none)));
    }
    free(CALL(realloc(NULL, 100)));
    free(CALL(realloc(NULL, none)));
    free(CALL(reallocarray(NULL, 7, 7)));
    CALL(malloc(huge));
    CALL(malloc(huge + 1));
    CALL(malloc(most));
    CALL(malloc(most - 4096));
    CALL(calloc(huge, 1));
    CALL(calloc(huge, 4));
    CALL(calloc(most, most));
    CALL(memalign(64, most - 10));
    CALL(memalign(most, 100));
    CALL(memalign(most / 2 + 1, 100));
    CALL(aligned_alloc(64, most - 10));
    CALL(valloc(most));
    CALL(pvalloc(most));
    CALL(realloc(NULL, most));
    CALL(reallocarray(NULL, most, 2));
    CALL(reallocarray(NULL, most / 2, 2));
    refused("of 3", 3, 100);
    refused("of 0", none, 100);
    refused("of 4", 4, 100);
    refused("of 24", 24, 100);
    refused("huge", 64, most - 10);
    refused("aligned beyond all", most / 2 + 1, 100);
    refused("of 8", 8, 100);
    refused("of 1 MiB", 1 << 20, none);

    /* A failed realloc keeps the block; realloc to 0 frees it. */
    a = CALL(malloc(1009));
    memset(a, 'x', 1009);
    char* volatile still = a;
    need(CALL(realloc(a, huge)) == NULL && CALL(reallocarray(still, most, 4)) == NULL, "huge");
    need(still[1008] == 'x', "the block is whole");
    b = CALL(malloc(1013));
    free(CALL(realloc(b, none)));
    b = CALL(malloc(1019));
    free(CALL(reallocarray(b, none, 8)));
    c = CALL(realloc(CALL(malloc(1021)), 2027));
    need(CALL(realloc(c, 4001)) != NULL, "realloc");
    errno = 4711;
    free(NULL);
    free(malloc(1 << 25));
    free(malloc(31));
    if (cfree && !others) cfree(malloc(33));
    printf("free: errno %d\n", errno);
    printf("usable size of null: %zu\n", malloc_usable_size(NULL));
    sizes();
    /* Sizes that nothing else in the process has. */
    for (int i = 0; i < 10; ++i) escape(malloc(70001));
    for (int i = 0; i < 3; ++i) escape(memalign(64, 70003));
    fflush(stdout);
    return 0;
}
