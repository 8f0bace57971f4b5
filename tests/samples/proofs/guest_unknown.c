/* free and realloc accept blocks from below the agent. The C library's own names make such blocks; no preloaded library
 * sees those calls. */
#include "guest.h"

extern void* __libc_malloc(size_t);
extern void* __libc_memalign(size_t, size_t);

int main(void) {
    for (int i = 0; i < 100; ++i) free(escape(__libc_malloc(1000 + (size_t)i)));
    for (int i = 0; i < 100; ++i) free(escape(__libc_memalign(64, 1000 + (size_t)i)));
    /* After realloc the agent knows them. */
    for (int i = 0; i < 100; ++i) {
        char* p = __libc_malloc(100);
        p[99] = 'x';
        p = escape(realloc(p, 70001));
        need(p[99] == 'x', "what was in it");
    }
    printf("alive 70001 100\n");
    return 0;
}
