// Checks that each function of the malloc family returns a block, and that a request for SIZE_MAX bytes is refused.
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int missing;

static void check(const char *name, void *block) {
    if (block == NULL) {
        printf("%s failed\n", name);
        missing = 1;
    }
    free(block);
}

int main(void) {
    void *block = NULL;
    check("malloc", malloc(100));
    check("calloc", calloc(10, 10));
    check("realloc", realloc(malloc(10), 100));
    check("memalign", memalign(64, 100));
    check("aligned_alloc", aligned_alloc(64, 128));
    check("valloc", valloc(100));
    check("pvalloc", pvalloc(100));
    check("posix_memalign", posix_memalign(&block, 64, 100) == 0 ? block : NULL);
    volatile size_t all = SIZE_MAX;
    errno = 0;
    if (pvalloc(all) != NULL)
        puts("pvalloc has a block of all bytes");
    else if (errno != ENOMEM)
        puts("pvalloc refuses without a reason");
    if (!missing)
        puts("all");
    return missing;
}
