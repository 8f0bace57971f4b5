/* Overlapping tests, reported through memgate's C API: two threads run one test each at the same time, between tests
 * that run alone. `--count=N` runs everything N times. */
#include <memgate.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "escape.h"

static pthread_barrier_t step;

NOINLINE static void lose(size_t bytes) {
    char* block = malloc(bytes);
    escape(block);
}

NOINLINE static void lose_alone(void) {
    char* block = malloc(241); /* LEAK: alone */
    escape(block);
}

/* Begins first and ends first. */
static void* left(void* argument) {
    MemgateTestBegin("Overlap", "left");
    pthread_barrier_wait(&step);
    lose(311);
    pthread_barrier_wait(&step);
    lose(311);
    MemgateTestEnd("Overlap", "left", MEMGATE_PASSED);
    pthread_barrier_wait(&step);
    return argument;
}

static void* right(void* argument) {
    pthread_barrier_wait(&step);
    MemgateTestBegin("Overlap", "right");
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    MemgateTestEnd("Overlap", "right", MEMGATE_PASSED);
    return argument;
}

/* The same test in two threads: when one thread ends it, it is still open in the other, and overlaps the next. */
static void* twin(void* argument) {
    MemgateTestBegin("Overlap", "twin");
    pthread_barrier_wait(&step);
    if (argument) {
        MemgateTestEnd("Overlap", "twin", MEMGATE_PASSED);
        MemgateTestBegin("Overlap", "third");
        pthread_barrier_wait(&step);
        pthread_barrier_wait(&step);
        MemgateTestEnd("Overlap", "third", MEMGATE_PASSED);
        pthread_barrier_wait(&step);
    } else {
        pthread_barrier_wait(&step);
        lose(331);
        pthread_barrier_wait(&step);
        pthread_barrier_wait(&step);
        MemgateTestEnd("Overlap", "twin", MEMGATE_PASSED);
    }
    return argument;
}

static void run_both(void* (*one)(void*), void* (*other)(void*)) {
    pthread_t thread;
    pthread_create(&thread, NULL, one, &step);
    other(NULL);
    pthread_join(thread, NULL);
}

static void run(const char* test, void (*body)(void)) {
    MemgateTestBegin("Alone", test);
    if (body) body();
    MemgateTestEnd("Alone", test, MEMGATE_PASSED);
}

int main(int argc, char** argv) {
    int count = 1;
    if (argc > 1 && strncmp(argv[1], "--count=", 8) == 0) count = atoi(argv[1] + 8);
    pthread_barrier_init(&step, NULL, 2);
    for (int i = 0; i < count; ++i) {
        MemgateIteration((uint32_t)i);
        run("before", NULL);
        run_both(left, right);
        run("leaks", lose_alone);
        run_both(twin, twin);
        run("after", NULL);
    }
    return 0;
}
