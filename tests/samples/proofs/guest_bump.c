/* An allocator that may be interrupted anywhere: an atomic counter cuts blocks from one mapping, and no block is used
 * twice. C forbids malloc in a handler that interrupted malloc. With this allocator below the agent, only the agent's
 * own records can break. Preloaded. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { HEAD = 16 };
static const size_t room = (size_t)4 << 30;
static char* volatile start;
static size_t next;

__attribute__((constructor)) static void begin(void) {
    if (!start) start = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static void* take(size_t alignment, size_t bytes) {
    begin();
    if (alignment < 32) alignment = 32;
    if (bytes > room / 2) return errno = ENOMEM, NULL;
    size_t at = __atomic_fetch_add(&next, bytes + HEAD + 2 * alignment, __ATOMIC_RELAXED);
    if (at + bytes + 2 * alignment + HEAD > room) return errno = ENOMEM, NULL;
    char* block = (char*)(((uintptr_t)start + at + HEAD + alignment - 1) & ~(alignment - 1));
    ((size_t*)block)[-1] = bytes;
    return block;
}

void* malloc(size_t bytes) { return take(16, bytes); }
void* calloc(size_t n, size_t bytes) { return take(16, n * bytes); }
void free(void* block) { (void)block; }
void* memalign(size_t alignment, size_t bytes) { return take(alignment, bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) { return take(alignment, bytes); }
size_t malloc_usable_size(void* block) { return block ? ((size_t*)block)[-1] : 0; }

int posix_memalign(void** out, size_t alignment, size_t bytes) {
    void* block = take(alignment, bytes);
    if (block) *out = block;
    return block ? 0 : ENOMEM;
}

void* realloc(void* block, size_t bytes) {
    if (block && bytes == 0) return NULL;
    void* other = take(16, bytes);
    if (block && other) memcpy(other, block, malloc_usable_size(block) < bytes ? malloc_usable_size(block) : bytes);
    return other;
}
