/* Measures the stack that each allocation function needs: the memory below the call is painted, and the deepest byte
 * that changed gives the size. Prints `name bytes` for each call; the test compares plain and tracked. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guest.h"

enum { PAINTED = 24 << 10, COLOUR = 0xA7 };

static long deepest;
static void* volatile block;
static volatile size_t no_bytes;

/* Runs CALL with painted stack below; `deepest` is what it touched, down from the stack pointer at the call. */
#define MEASURE(NAME, CALL)                                                                         \
    do {                                                                                            \
        volatile unsigned char *sp_, *low_, *at_;                                                   \
        __asm__ volatile("mov %%rsp, %0" : "=r"(sp_));                                              \
        low_ = sp_ - PAINTED;                                                                       \
        for (at_ = low_; at_ < sp_; ++at_) *at_ = COLOUR;                                           \
        CALL;                                                                                       \
        __asm__ volatile("mov %%rsp, %0" : "=r"(sp_));                                              \
        for (at_ = low_; at_ < sp_ && *at_ == COLOUR;) ++at_;                                       \
        deepest = sp_ - at_;                                                                        \
        note(NAME, deepest);                                                                        \
    } while (0)

static struct {
    const char* name;
    long bytes;
} notes[64];
static int noted;

static NOINLINE void note(const char* name, long bytes) {
    for (int i = 0; i < noted; ++i) {
        if (notes[i].name == name) {
            if (bytes > notes[i].bytes) notes[i].bytes = bytes;
            return;
        }
    }
    notes[noted].name = name;
    notes[noted++].bytes = bytes;
}

/* Every path of the family, from a call site whose unwind rules are not cached yet. */
static NOINLINE void family(void) {
    void* volatile out;
    MEASURE("malloc, new stack", block = malloc(101));
    MEASURE("free", free(block));
    for (int i = 0; i < 600; ++i) {
        /* Some of these calls publish the counters. */
        MEASURE(i == 0 ? "malloc, new stack" : "malloc, known stack", block = malloc(102));
        free(block);
    }
    MEASURE("calloc", block = calloc(3, 33));
    MEASURE("realloc in place", block = realloc(block, 98));
    MEASURE("realloc, moved", block = realloc(block, 5000));
    MEASURE("realloc, failed", out = realloc(block, SIZE_MAX / 2 + no_bytes));
    need(out == NULL, "huge realloc");
    MEASURE("reallocarray", block = reallocarray(block, 7, 100));
    MEASURE("reallocarray, overflow", out = reallocarray(block, SIZE_MAX / 2 + no_bytes, 7));
    need(out == NULL, "overflow");
    MEASURE("realloc to 0", out = realloc(block, no_bytes));
    MEASURE("free(NULL)", free(NULL));
    MEASURE("memalign", block = memalign(256, 103));
    free(block);
    MEASURE("aligned_alloc", block = aligned_alloc(64, 128));
    free(block);
    MEASURE("posix_memalign", no_bytes += (size_t)posix_memalign((void**)&block, 128, 104));
    free(block);
    MEASURE("posix_memalign, refused", no_bytes += 0 * posix_memalign((void**)&out, 3 + no_bytes, 104));
    MEASURE("valloc", block = valloc(105));
    free(block);
    MEASURE("pvalloc", block = pvalloc(106));
    MEASURE("malloc_usable_size", no_bytes += 0 * malloc_usable_size(block));
    free(block);
    MEASURE("malloc, new place in the table", block = malloc(9 << 20));
    free(block);
    MEASURE("malloc, beyond a slot's size", block = malloc(17 << 20));
    MEASURE("free, beyond a slot's size", free(block));
}

static NOINLINE void deep(int frames) {
    if (frames > 0) {
        deep(frames - 1);
        __asm__ volatile("" ::: "memory");
    } else {
        MEASURE("malloc, stack too deep", block = malloc(107));
        free(block);
    }
}

static void handler(int signal) {
    void* volatile out = NULL;
    (void)signal;
    MEASURE("malloc in a signal handler", block = malloc(108));
    MEASURE("realloc in a signal handler", block = realloc(block, 10000));
    MEASURE("posix_memalign in a signal handler", no_bytes += 0 * posix_memalign((void**)&out, 128, 104));
    MEASURE("free in a signal handler", free(block));
    free(out);
}

static void* thread(void* first) {
    void* volatile mine;
    MEASURE("malloc, first of a thread", mine = malloc(109));
    free(mine);
    if (first) {
        family();
        deep(700);
        raise(SIGUSR1);
        raise(SIGUSR2);
    }
    return NULL;
}

/* A library calls this with an unknown number of its own frames: other rules, other modules. */
static int compare(const void* a, const void* b) {
    MEASURE("malloc, called back by the C library", block = malloc(110));
    free(block);
    return *(const int*)a - *(const int*)b;
}

static void key_ends(void* value) {
    MEASURE("malloc in a thread's destructor", block = malloc(111));
    MEASURE("free of a thread's value", free(value));
    free(block);
}

static pthread_key_t key;

static void* ending(void* unused) {
    pthread_setspecific(key, malloc(112));
    return unused;
}

static void run(void* (*body)(void*), void* argument) {
    pthread_t id;
    pthread_attr_t attributes;
    size_t bytes = 1 << 20;
    char* stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    need(stack != MAP_FAILED, "mmap");
    pthread_attr_init(&attributes);
    need(pthread_attr_setstack(&attributes, stack, bytes) == 0, "setstack");
    need(pthread_create(&id, &attributes, body, argument) == 0, "pthread_create");
    pthread_join(id, NULL);
}

int main(void) {
    static char stack[128 << 10];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    signal(SIGUSR1, handler);
    sigaction(SIGUSR2, &action, NULL);
    pthread_key_create(&key, key_ends);
    sigaltstack(&alternate, NULL);
    run(thread, &key);
    run(thread, NULL);
    raise(SIGUSR2);
    int numbers[] = {3, 2, 1};
    qsort(numbers, 3, sizeof *numbers, compare);
    run(ending, NULL);
    for (int i = 0; i < noted; ++i) printf("%s: %ld\n", notes[i].name, notes[i].bytes);
    return 0;
}
