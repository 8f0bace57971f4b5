/* The guest's heap looks as it does without the agent: the same addresses relative to its start, the same figures, the
 * same M_PERTURB bytes. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include "guest.h"

static void figures(const char* when) {
    struct mallinfo2 m = mallinfo2();
    printf("%s: arena %zu, blocks %zu, mapped %zu in %zu, used %zu, free %zu, fast %zu, top %zu, most %zu\n", when, m.arena,
           m.ordblks, m.hblkhd, m.hblks, m.uordblks, m.fordblks, m.fsmblks, m.keepcost, m.usmblks);
}

static void* volatile kept[2000];

static void* thread(void* unused) {
    char* first = malloc(24);
    size_t places = 0;
    for (int i = 0; i < 1000; ++i) places = places * 31 + (size_t)((char*)escape(malloc(100 + 7 * i % 500)) - first);
    printf("places in a thread's arena: %zu\n", places);
    return unused;
}

int main(void) {
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    figures("at the start");
    char* first = malloc(24);
    size_t places = 0;
    for (int i = 0; i < 2000; ++i) {
        kept[i] = malloc(16 + 37 * (size_t)i % 3000);
        places = places * 31 + (size_t)((char*)kept[i] - first);
        if (i % 3 == 0) free(kept[i / 2]), kept[i / 2] = calloc(1, 100 + (size_t)i);
    }
    printf("places: %zu\n", places);
    figures("with small blocks");
    void* volatile large = malloc(5 << 20);
    figures("with a large block");
    free(large);
    for (int i = 0; i < 2000; ++i) free(kept[i]);
    malloc_trim(0);
    figures("without any");
    mallopt(M_PERTURB, 0x5a);
    unsigned char* volatile filled = malloc(3000);
    size_t wrong = 0;
    for (int i = 0; i < 3000; ++i) wrong += filled[i] != 0xa5;
    unsigned char* volatile cleared = calloc(1, 3001);
    for (int i = 0; i < 3001; ++i) wrong += cleared[i] != 0;
    printf("bytes not as M_PERTURB wants them: %zu\n", wrong);
    mallopt(M_PERTURB, 0);
    /* Before threads start: the loader allocates a vector per thread, with an entry for each library with TLS. */
    figures("at the end");
    pthread_t id;
    need(pthread_create(&id, NULL, thread, NULL) == 0, "pthread_create");
    pthread_join(id, NULL);
    return 0;
}
