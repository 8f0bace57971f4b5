/* A program with its own malloc, which every library of the process then uses. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static _Alignas(64) unsigned char arena[64 << 20];
static size_t used;
static unsigned long made;

void* malloc(size_t bytes) {
    size_t whole = (bytes + 16 + 15) & ~(size_t)15;
    size_t at = __atomic_fetch_add(&used, whole, __ATOMIC_RELAXED);
    if (at + whole > sizeof arena) return NULL;
    __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
    *(size_t*)(arena + at) = bytes;
    return arena + at + 16;
}
void free(void* block) { (void)block; }
void* calloc(size_t count, size_t bytes) { return malloc(count * bytes); }
void* realloc(void* block, size_t bytes) {
    void* fresh = malloc(bytes);
    if (fresh && block) {
        size_t old = *(size_t*)((unsigned char*)block - 16);
        memcpy(fresh, block, old < bytes ? old : bytes);
    }
    return fresh;
}
size_t malloc_usable_size(void* block) { return block ? *(size_t*)((unsigned char*)block - 16) : 0; }

int main(void) {
    char* line = strdup("own");
    for (int i = 0; i < 10000; i++) line = realloc(line, 10 + (size_t)i % 100);
    printf("%s %s\n", line, made > 10000 ? "own" : "not own");
    return 0;
}
