/* Uses the whole allocation family from several threads, frees blocks of other threads, writes every usable byte, and
 * keeps exactly 3 x 4241 (malloc), 2 x 4243 (calloc), 1 x 4259 (realloc), 1 x 4261 (posix_memalign), 1 x 4271 (strdup),
 * 1 x 4288 (aligned_alloc). The tests expect exactly these. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 20000, SLOTS = 256 };

static void* slots[SLOTS];
static pthread_mutex_t locks[SLOTS];
static void* kept[16];
static unsigned kept_count;

static void keep(void* block) {
    if (!block) abort();
    kept[kept_count++] = block;
}

static void* fill(void* block) {
    if (!block) abort();
    memset(block, 0x5a, malloc_usable_size(block));
    return block;
}

static void* another(unsigned kind, size_t bytes) {
    void* block = NULL;
    switch (kind % 6) {
    case 0: return malloc(bytes);
    case 1: return calloc(bytes, 1);
    case 2: return realloc(malloc(bytes / 2 + 1), bytes);
    case 3: return posix_memalign(&block, 64, bytes) ? NULL : block;
    case 4: return aligned_alloc(32, (bytes + 31) & ~(size_t)31);
    default: return memalign(128, bytes);
    }
}

static void* churn(void* argument) {
    unsigned state = 12345u + (unsigned)(uintptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        state = state * 1103515245u + 12345u;
        unsigned slot = state >> 8 & (SLOTS - 1);
        void* fresh = fill(another(state >> 16, 1 + (state >> 4 & 2047)));
        pthread_mutex_lock(&locks[slot]);
        void* old = slots[slot];
        slots[slot] = fresh;
        pthread_mutex_unlock(&locks[slot]);
        free(old); /* usually a block of another thread */
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < SLOTS; i++) pthread_mutex_init(&locks[i], NULL);
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, churn, (void*)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < SLOTS; i++) free(slots[i]);

    for (int i = 0; i < 3; i++) keep(fill(malloc(4241)));
    for (int i = 0; i < 2; i++) keep(calloc(1, 4243));
    keep(realloc(malloc(10), 4259));
    void* aligned = NULL;
    keep(posix_memalign(&aligned, 4096, 4261) ? NULL : aligned);
    char text[4271];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    keep(strdup(text));
    keep(aligned_alloc(64, 4288));
    int usable = 1;
    for (unsigned i = 0; i < kept_count; i++) usable &= malloc_usable_size(kept[i]) >= 4241;
    printf("kept %u, usable: %s\n", kept_count, usable ? "yes" : "no");
    return 0;
}
