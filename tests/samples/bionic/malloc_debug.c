/*
 * Simulates the libc of an Android process with malloc_debug, for a process of this machine that preloads this library.
 * It records allocations with the stacks of their callers (LIBC_DEBUG_MALLOC_OPTIONS). get_malloc_leak_info answers as
 * in Android 9 and later.
 *
 * As on Android: addresses are those of the calls, not of the next instruction. Stacks are cut at `backtrace` frames.
 * Blocks are sorted by size, depth and address; only equal neighbours share a record, so one stack may have several.
 * An unknown option turns everything off; out parameters then stay unchanged. Only blocks with a stack are listed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);
/* Bounds of this library. */
extern const char __ehdr_start __attribute__((visibility("hidden"))), _end __attribute__((visibility("hidden")));

enum { MOST_FRAMES = 256, PLACE_BITS = 18, PLACES = 1 << PLACE_BITS };

struct entry {
    void *block; /* 0: free; GONE: removed */
    size_t size;
    size_t depth;
    uintptr_t *frames;
};
#define GONE ((void *)1)

static struct entry table[PLACES];
static size_t used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t backtrace_size, least = 0, most = SIZE_MAX;
/* This thread runs the library's own code. */
static __thread int inside __attribute__((tls_model("initial-exec")));

static void die(const char *why) {
    dprintf(2, "malloc_debug: %s\n", why);
    abort();
}

static int number_behind(const char *option, const char *name, size_t *value) {
    size_t length = strlen(name);
    if (strncmp(option, name, length) != 0 || option[length] != '=') return 0;
    char *end;
    *value = strtoul(option + length + 1, &end, 10);
    return *end == 0 && end != option + length + 1;
}

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("LIBC_DEBUG_MALLOC_OPTIONS");
    if (!text) return;
    char copy[256], *rest;
    snprintf(copy, sizeof copy, "%s", text);
    size_t wanted = 0;
    for (char *option = strtok_r(copy, " ", &rest); option; option = strtok_r(NULL, " ", &rest)) {
        size_t exactly;
        if (strcmp(option, "backtrace") == 0) wanted = 16;
        else if (number_behind(option, "backtrace_size", &exactly)) least = most = exactly;
        else if (!number_behind(option, "backtrace", &wanted) && !number_behind(option, "backtrace_min_size", &least) &&
                 !number_behind(option, "backtrace_max_size", &most)) {
            dprintf(2, "malloc_debug: unknown option %s\n", option);
            return;
        }
    }
    backtrace_size = wanted < MOST_FRAMES ? wanted : MOST_FRAMES;
}

struct walk {
    size_t depth;
    uintptr_t frames[MOST_FRAMES];
};

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *argument) {
    struct walk *walk = argument;
    uintptr_t pc = _Unwind_GetIP(context);
    if (pc == 0 || walk->depth == backtrace_size) return _URC_END_OF_STACK;
    if (pc < (uintptr_t)&__ehdr_start || pc >= (uintptr_t)&_end) walk->frames[walk->depth++] = pc - 1;
    return _URC_NO_REASON;
}

static size_t place_of(void *block) {
    return ((uintptr_t)block >> 4) * 0x9e3779b97f4a7c15u >> (64 - PLACE_BITS);
}

static void add(struct entry new) {
    pthread_mutex_lock(&lock);
    size_t at = place_of(new.block);
    while (table[at].block != NULL && table[at].block != GONE) at = (at + 1) % PLACES;
    if (table[at].block == NULL && ++used > PLACES / 4 * 3) die("too many allocations for this library");
    table[at] = new;
    pthread_mutex_unlock(&lock);
}

static void *noted(void *block, size_t size) {
    if (block == NULL || backtrace_size == 0 || inside || size < least || size > most) return block;
    inside = 1;
    int error = errno;
    struct walk walk = {.depth = 0};
    _Unwind_Backtrace(step, &walk);
    struct entry new = {.block = block, .size = size, .depth = walk.depth};
    if (walk.depth > 0) {
        new.frames = __libc_malloc(walk.depth * sizeof *walk.frames);
        if (new.frames == NULL) die("no memory");
        memcpy(new.frames, walk.frames, walk.depth * sizeof *walk.frames);
        add(new);
    }
    errno = error;
    inside = 0;
    return block;
}

/* Removes a block that is about to be freed, and returns its entry. */
static struct entry taken(void *block) {
    struct entry old = {.block = NULL};
    /* The library's own blocks (sorting allocates) are not recorded, and the lock may be held. */
    if (block == NULL || backtrace_size == 0 || inside) return old;
    pthread_mutex_lock(&lock);
    for (size_t at = place_of(block); table[at].block != NULL; at = (at + 1) % PLACES) {
        if (table[at].block == block) {
            old = table[at];
            table[at].block = GONE;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return old;
}

void *malloc(size_t size) {
    return noted(__libc_malloc(size), size);
}

void *calloc(size_t count, size_t size) {
    /* The allocator has checked that the product fits. */
    return noted(__libc_calloc(count, size), count * size);
}

void *realloc(void *block, size_t size) {
    struct entry old = taken(block);
    void *new = __libc_realloc(block, size);
    if (new == NULL && size != 0 && old.block != NULL) {
        add(old);
        return NULL;
    }
    __libc_free(old.frames);
    return noted(new, size);
}

void free(void *block) {
    __libc_free(taken(block).frames);
    __libc_free(block);
}

void *memalign(size_t align, size_t size) {
    return noted(__libc_memalign(align, size), size);
}

void *aligned_alloc(size_t align, size_t size) {
    return noted(__libc_memalign(align, size), size);
}

int posix_memalign(void **out, size_t align, size_t size) {
    if (align % sizeof(void *) != 0 || (align & (align - 1)) != 0) return EINVAL;
    void *block = noted(__libc_memalign(align, size), size);
    if (block == NULL) return ENOMEM;
    *out = block;
    return 0;
}

static int by_size_depth_and_address(const void *one, const void *other) {
    const struct entry *a = one, *b = other;
    if (a->size != b->size) return a->size < b->size ? 1 : -1;
    if (a->depth != b->depth) return a->depth < b->depth ? 1 : -1;
    return a->block < b->block ? -1 : a->block > b->block;
}

static int is_same(const struct entry *a, const struct entry *b) {
    return a->size == b->size && a->depth == b->depth && memcmp(a->frames, b->frames, a->depth * sizeof *a->frames) == 0;
}

/* Runs with the lock held, so nothing changes meanwhile, as on a device. */
static void list(uint8_t **info, size_t *overall, size_t *info_size, size_t *total, size_t *depth) {
    size_t count = 0, records = 0, words = 2 + backtrace_size;
    for (size_t at = 0; at < PLACES; at++) count += table[at].block != NULL && table[at].block != GONE;
    *info = NULL;
    *overall = *info_size = *total = *depth = 0;
    if (count == 0) return;
    struct entry *all = __libc_malloc(count * sizeof *all);
    uintptr_t *buffer = __libc_calloc(count * words, sizeof *buffer);
    if (all == NULL || buffer == NULL) die("no memory");
    for (size_t at = 0, next = 0; at < PLACES; at++)
        if (table[at].block != NULL && table[at].block != GONE) all[next++] = table[at];
    qsort(all, count, sizeof *all, by_size_depth_and_address);
    for (size_t at = 0; at < count; at++) {
        if (records == 0 || !is_same(&all[at], &all[at - 1])) {
            uintptr_t *record = buffer + records++ * words;
            record[0] = all[at].size;
            memcpy(record + 2, all[at].frames, all[at].depth * sizeof *buffer);
        }
        buffer[(records - 1) * words + 1]++;
        *total += all[at].size;
    }
    __libc_free(all);
    *info = (uint8_t *)buffer;
    *info_size = words * sizeof *buffer;
    *overall = records * *info_size;
    *depth = backtrace_size;
}

void get_malloc_leak_info(uint8_t **info, size_t *overall, size_t *info_size, size_t *total, size_t *depth) {
    if (backtrace_size == 0) return;
    inside = 1;
    pthread_mutex_lock(&lock);
    list(info, overall, info_size, total, depth);
    pthread_mutex_unlock(&lock);
    inside = 0;
}

void free_malloc_leak_info(uint8_t *info) {
    __libc_free(info);
}
