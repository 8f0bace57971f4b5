/* Makes the agent run out of memory while the program continues with its memory: the heap is enlarged first, then the
 * address space is limited to what is mapped. The argument names what the agent will need more of. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 1 << 20 };
static void** blocks;
static pthread_barrier_t limited, done;

static size_t mapped_bytes(void) {
    char text[64] = "";
    FILE* statm = fopen("/proc/self/statm", "r");
    if (!statm || !fgets(text, sizeof text, statm)) abort();
    fclose(statm);
    return strtoul(text, NULL, 10) * 4096;
}

static void no_more(size_t bytes) {
    struct rlimit limit = {mapped_bytes() + bytes, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit)) abort();
}

/* Enlarges the heap without telling the agent: its table has no leaves for most of it. */
static void heap_of(size_t bytes) {
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    void* volatile all = malloc(bytes);
    if (!all) abort();
    free(all);
}

__attribute__((noinline)) static void* left(unsigned path, int depth, size_t bytes);
__attribute__((noinline)) static void* right(unsigned path, int depth, size_t bytes);

static void* step(unsigned path, int depth, size_t bytes) {
    if (depth == 0) return malloc(bytes);
    return path & 1 ? left(path >> 1, depth - 1, bytes) : right(path >> 1, depth - 1, bytes);
}
static void* left(unsigned path, int depth, size_t bytes) {
    void* volatile block = step(path, depth, bytes);
    return block;
}
static void* right(unsigned path, int depth, size_t bytes) {
    void* volatile block = step(path, depth, bytes);
    return block;
}

static void* first_allocation_of_a_thread(void* argument) {
    pthread_barrier_wait(&limited);
    free(malloc(100));
    pthread_barrier_wait(&done);
    return argument;
}

static void tell(const char* what) {
    if (write(1, what, strlen(what)) < 0) abort();
}

int main(int count, char** arguments) {
    const char* what = count > 1 ? arguments[1] : "";
    mallopt(M_ARENA_MAX, 1);
    static void* own[MANY];
    blocks = own;
    if (!strcmp(what, "table")) {
        heap_of(256 << 20);
        no_more(0);
        for (int i = 0; i < 50000; i++) {
            if (!(blocks[i] = malloc(4241))) abort();
        }
    } else if (!strcmp(what, "stacks")) {
        heap_of(64 << 20);
        /* Gives the table leaves for these addresses: then the room for stacks runs out, wherever the heap begins. */
        for (int i = 0; i < 50000; i++) {
            if (!(blocks[i] = malloc(41))) abort();
        }
        for (int i = 0; i < 50000; i++) free(blocks[i]);
        no_more(0);
        for (unsigned i = 0; i < 300000; i++) {
            if (!(blocks[i] = step(i, 18, 41))) abort();
        }
    } else if (!strcmp(what, "threads")) {
        enum { THREADS = 80 };
        pthread_t threads[THREADS];
        pthread_barrier_init(&limited, NULL, THREADS + 1);
        pthread_barrier_init(&done, NULL, THREADS + 1);
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, first_allocation_of_a_thread, NULL);
        no_more(0);
        pthread_barrier_wait(&limited);
        pthread_barrier_wait(&done);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    } else if (!strcmp(what, "snapshot")) {
        /* Everything is recorded, but there is no room to write it. */
        heap_of(64 << 20);
        for (unsigned i = 0; i < 200000; i++) {
            if (!(blocks[i] = step(i, 16, 41 + i % 50))) abort();
        }
        no_more(0);
    } else if (!strcmp(what, "snapshot, a little")) {
        heap_of(64 << 20);
        for (unsigned i = 0; i < 200000; i++) {
            if (!(blocks[i] = step(i, 16, 41 + i % 50))) abort();
        }
        size_t more = count > 2 ? strtoul(arguments[2], NULL, 10) : 2 << 20;
        no_more(more);
    } else if (!strcmp(what, "fork")) {
        no_more(0);
        pid_t child = fork();
        if (child == 0) {
            free(malloc(77));
            exit(6);
        }
        int status = 0;
        waitpid(child, &status, 0);
        tell(WIFEXITED(status) && WEXITSTATUS(status) == 6 ? "child as it should\n" : "child wrong\n");
    } else if (!strcmp(what, "start")) {
        /* The limit applies from the first instruction. */
        struct rlimit limit = {strtoul(arguments[2], NULL, 10), RLIM_INFINITY};
        if (setrlimit(RLIMIT_AS, &limit)) abort();
        execv(arguments[0], (char*[]){arguments[0], "started", NULL});
        abort();
    } else if (!strcmp(what, "started")) {
        free(malloc(100));
    } else {
        return 99;
    }
    tell("done\n");
    return 0;
}
