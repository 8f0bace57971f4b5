/* Ends the process in one way per argument. Keeps 3 x 4241 bytes, allocated before the end. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void* volatile kept[3];
static pthread_barrier_t ready;
static volatile int stop;
static pthread_key_t key;

static void say(const char* text) {
    if (write(1, text, strlen(text)) < 0) abort();
}

static void* allocate_for_ever(void* argument) {
    (void)argument;
    pthread_barrier_wait(&ready);
    while (!stop) free(malloc(100 + (size_t)rand() % 50));
    return NULL;
}

static void start_allocating(int threads) {
    pthread_barrier_init(&ready, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, allocate_for_ever, NULL);
        pthread_detach(thread);
    }
    pthread_barrier_wait(&ready);
}

static void* exits(void* argument) {
    (void)argument;
    exit(5);
}

static void* leaves_exits(void* argument) {
    (void)argument;
    _exit(5);
}

static void* outlives_main(void* argument) {
    pthread_join(*(pthread_t*)argument, NULL);
    for (int i = 0; i < 1000; i++) free(malloc(64));
    say("last thread\n");
    return NULL;
}

/* Allocates and sets its key again, for three rounds in total: glibc allows four. */
static void destructor(void* round) {
    free(malloc(71));
    void* volatile kept_by_destructor = malloc(4253);
    (void)kept_by_destructor;
    if ((uintptr_t)round < 3) pthread_setspecific(key, (void*)((uintptr_t)round + 1));
}

static void* short_life(void* argument) {
    pthread_setspecific(key, (void*)1);
    free(malloc(33));
    return argument;
}

static void handler_allocates(void) {
    kept[0] = malloc(4253);
    free(malloc(40000));
    say("handler\n");
}

static void quick_handler(void) { say("quick handler\n"); }

int main(int count, char** arguments) {
    const char* how = count > 1 ? arguments[1] : "return";
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    for (int i = 0; i < 3; i++) kept[i] = malloc(4241);
    say("begun\n");
    if (!strcmp(how, "return")) return 3;
    if (!strcmp(how, "exit")) exit(3);
    if (!strcmp(how, "_exit")) _exit(3);
    if (!strcmp(how, "_Exit")) _Exit(3);
    if (!strcmp(how, "quick_exit")) {
        at_quick_exit(quick_handler);
        quick_exit(3);
    }
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "term")) kill(getpid(), SIGTERM);
    if (!strcmp(how, "segv")) *(volatile int*)8 = 1;
    if (!strcmp(how, "handlers")) {
        for (int i = 0; i < 40; i++) atexit(handler_allocates);
        exit(3);
    }
    if (!strcmp(how, "exit in thread")) {
        pthread_t thread;
        start_allocating(3);
        pthread_create(&thread, NULL, exits, NULL);
        pause();
    }
    if (!strcmp(how, "_exit in thread")) {
        pthread_t thread;
        start_allocating(3);
        pthread_create(&thread, NULL, leaves_exits, NULL);
        pause();
    }
    if (!strcmp(how, "exit while others allocate")) {
        start_allocating(4);
        exit(5);
    }
    if (!strcmp(how, "last thread")) {
        static pthread_t self, thread;
        self = pthread_self();
        pthread_create(&thread, NULL, outlives_main, &self);
        pthread_exit(NULL);
    }
    if (!strcmp(how, "destructors")) {
        pthread_key_create(&key, destructor);
        for (int round = 0; round < 100; round++) {
            pthread_t threads[8];
            for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, short_life, NULL);
            for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
        }
        say("joined\n");
        return 3;
    }
    return 99;
}
