/* Creates processes, in one way per argument. Children keep blocks of odd sizes and end in different ways. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char** environ;
static void* volatile kept[8];
static volatile int stop;

static void say(const char* text) {
    if (write(1, text, strlen(text)) < 0) abort();
}

static void tell(const char* what, int status) {
    char line[200];
    if (WIFSIGNALED(status)) snprintf(line, sizeof line, "%s: signal %d\n", what, WTERMSIG(status));
    else snprintf(line, sizeof line, "%s: status %d\n", what, WEXITSTATUS(status));
    say(line);
}

static int wait_for(pid_t child) {
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    return status;
}

static void work(int n) {
    for (int i = 0; i < n; i++) free(realloc(malloc(50 + (size_t)i % 100), 300));
}

static void leave_at_once(int signal) {
    exit(signal == SIGUSR1 ? 14 : 15);
}

/* Calls `leave_at_once` after this many microseconds. */
static void leave_in(long microseconds) {
    timer_t timer;
    struct sigevent by_signal = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec once = {.it_value = {.tv_nsec = (microseconds + 1) * 1000}};
    signal(SIGUSR1, leave_at_once);
    if (timer_create(CLOCK_MONOTONIC, &by_signal, &timer) || timer_settime(timer, 0, &once, NULL)) abort();
}

static void* allocate_for_ever(void* argument) {
    while (!stop) work(10);
    return argument;
}

/* Forks repeatedly and returns how many children ended as expected. */
static void* fork_often(void* argument) {
    uintptr_t good = 0;
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        if (child == 0) {
            work(200);
            kept[0] = malloc(4253);
            if (i % 3 == 0) _exit(11);
            if (i % 3 == 1) exit(12);
            quick_exit(13);
        }
        int status = wait_for(child);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 11 + i % 3;
    }
    (void)argument;
    return (void*)good;
}

/* Runs the program from a child that shares our memory until then. */
__attribute__((noinline)) static int vforked(char* const* program) {
    pid_t child = vfork();
    if (child == 0) {
        if (program) execv(program[0], program);
        _exit(16);
    }
    return wait_for(child);
}

static int in_shared_memory(void* argument) {
    work(100);
    *(int*)argument = 1;
    _exit(14);
}

int main(int count, char** arguments) {
    const char* how = count > 1 ? arguments[1] : "";
    char* const printer[] = {"/bin/echo", "from the new program", NULL};
    for (int i = 0; i < 3; i++) kept[i] = malloc(4241);
    int status = 0;
    if (!strcmp(how, "threads fork")) {
        pthread_t forking[4], allocating[2];
        uintptr_t good = 0;
        for (int i = 0; i < 2; i++) pthread_create(&allocating[i], NULL, allocate_for_ever, NULL);
        for (int i = 0; i < 4; i++) pthread_create(&forking[i], NULL, fork_often, NULL);
        for (int i = 0; i < 4; i++) {
            void* result;
            pthread_join(forking[i], &result);
            good += (uintptr_t)result;
        }
        stop = 1;
        for (int i = 0; i < 2; i++) pthread_join(allocating[i], NULL);
        char line[60];
        snprintf(line, sizeof line, "%d of 160 children are right\n", (int)good);
        say(line);
    } else if (!strcmp(how, "signal")) {
        /* A handler ends the process at some moment around a fork: before, during or after it. */
        int good = 0;
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        for (int i = 0; i < 300; i++) {
            pid_t child = fork();
            if (child == 0) {
                alarm(20);
                leave_in(i % 100 * 10);
                if (fork() == 0) _exit(0);
                for (;;) pause();
            }
            int end = wait_for(child);
            good += WIFEXITED(end) && WEXITSTATUS(end) == 14;
        }
        while (wait(NULL) > 0) continue; /* the grandchildren */
        say(good == 300 ? "all are right\n" : "some hang or die\n");
    } else if (!strcmp(how, "storm")) {
        /* 7 generations: 127 descendants; none waits before it has forked. */
        pid_t children[7];
        int made = 0, generation = 0;
        for (; generation < 7; generation++) {
            pid_t child = fork();
            if (child == 0) {
                made = 0;
                work(20);
                kept[3] = malloc(4253);
            } else {
                children[made++] = child;
            }
        }
        int bad = 0;
        for (int i = 0; i < made; i++) bad += wait_for(children[i]) != 0;
        if (made < 7) exit(bad);
        say(bad ? "some are wrong\n" : "all are right\n");
    } else if (!strcmp(how, "vfork")) {
        char* const nowhere[] = {"/nowhere/program", NULL};
        for (int i = 0; i < 20; i++) status |= vforked(printer);
        tell("a child that only left", vforked(NULL));
        tell("a child without a program", vforked(nowhere));
        work(1000);
        kept[3] = malloc(4241); /* the parent's blocks; recording continues */
        tell("all programs", status);
    } else if (!strcmp(how, "spawn")) {
        for (int i = 0; i < 20; i++) {
            pid_t child;
            if (posix_spawn(&child, printer[0], NULL, NULL, printer, environ)) abort();
            status |= wait_for(child);
        }
        tell("all programs", status);
        tell("system", system("exit 17"));
        FILE* pipe = popen("echo by popen", "r");
        char line[60] = "";
        if (!pipe || !fgets(line, sizeof line, pipe)) abort();
        say(line);
        tell("popen", pclose(pipe));
    } else if (!strcmp(how, "clone")) {
        static char stack[256 << 10] __attribute__((aligned(64)));
        static int seen;
        /* A separate process that shares our memory and all mappings of the agent. */
        pid_t child = clone(in_shared_memory, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &seen);
        tell("a child in our memory", wait_for(child));
        say(seen ? "it was there\n" : "it was not there\n");
        child = (pid_t)syscall(SYS_fork); /* bypasses every fork handler */
        if (child == 0) {
            work(500);
            kept[3] = malloc(4253);
            exit(18);
        }
        tell("a child past the handlers", wait_for(child));
        work(1000);
    } else if (!strcmp(how, "daemon")) {
        int ends[2];
        if (pipe(ends)) abort();
        pid_t child = fork();
        if (child == 0) {
            close(ends[0]);
            if (fork()) _exit(0);
            setsid();
            if (fork()) _exit(0);
            kept[3] = malloc(4253);
            work(500);
            if (write(ends[1], "the daemon\n", 11) < 0) abort();
            exit(0);
        }
        close(ends[1]);
        tell("the first child", wait_for(child));
        char line[20];
        ssize_t got = read(ends[0], line, sizeof line);
        if (got > 0 && write(1, line, (size_t)got) < 0) abort();
        if (read(ends[0], line, 1) != 0) abort(); /* waits until the daemon has ended */
    } else if (!strcmp(how, "exec")) {
        execv(printer[0], printer);
        return 98;
    } else if (!strcmp(how, "exec in thread")) {
        pthread_t allocating;
        pthread_create(&allocating, NULL, allocate_for_ever, NULL);
        execv(printer[0], printer);
        return 98;
    } else if (!strcmp(how, "exec that fails")) {
        char* const nothing[] = {"/nowhere", NULL};
        if (execv(nothing[0], nothing) < 0) say("still here\n");
    } else if (!strcmp(how, "exec itself")) {
        char* const again[] = {arguments[0], "exec that fails", NULL};
        execv(arguments[0], again);
        return 98;
    } else {
        return 99;
    }
    say("done\n");
    return 3;
}
