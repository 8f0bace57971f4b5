/* Gives something up for good, and goes on allocating: the time-stamp counter (by prctl or by syscall; in main, in a signal handler,
 * before main), or, in SECCOMP's strict mode, all system calls but read, write and exit.
 * `guest_gives_up counter|strict prctl|syscall|handler|early|child`. */
#define _GNU_SOURCE
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

static int by_syscall;

static void give_up_counter(void) {
    if (by_syscall) need(syscall(SYS_prctl, PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) == 0, "SYS_prctl");
    else need(prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) == 0, "PR_SET_TSC");
}

static void lock_up(void) {
    if (by_syscall) need(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL) == 0, "SYS_seccomp");
    else need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0, "PR_SET_SECCOMP");
}

/* More than are all timed, and several samples. */
static NOINLINE void work(void) {
    for (int i = 0; i < 5000; ++i) free(escape(malloc(100 + (size_t)(i % 500))));
}

static void* thread(void* unused) {
    work();
    return unused;
}

static void handler(int signal) {
    (void)signal;
    give_up_counter();
    work();
}

/* What malloc itself needs is there already: nothing is asked of the kernel. */
static void locked_up(int status) {
    escape(malloc(1009));
    work();
    lock_up();
    work();
    escape(malloc(213));
    need(write(1, "locked up\n", 10) == 10, "write");
    syscall(SYS_exit, status);
}

/* Before the agent has begun: it finds the counter given up. */
__attribute__((constructor)) static void early(int count, char** arguments) {
    if (count == 3 && !strcmp(arguments[2], "early")) give_up_counter();
}

int main(int count, char** arguments) {
    need(count == 3, "guest_gives_up counter|strict prctl|syscall|handler|early|child");
    const char* how = arguments[2];
    by_syscall = !strcmp(how, "syscall");
    int kept = 3;
    for (int i = 0; i < kept; ++i) escape(malloc(4241));
    if (!strcmp(arguments[1], "strict") && strcmp(how, "child") != 0) locked_up(42);
    pid_t child = strcmp(how, "child") ? -1 : fork();
    if (child == 0) {
        if (!strcmp(arguments[1], "strict")) locked_up(7);
        give_up_counter();
        work();
        _exit(7);
    }
    if (child > 0) {
        int status;
        waitpid(child, &status, 0);
        need(WIFEXITED(status), "the child lives to its end");
        tell("child", WEXITSTATUS(status));
    } else if (!strcmp(how, "handler")) {
        signal(SIGUSR1, handler);
        raise(SIGUSR1);
    } else if (strcmp(how, "early") != 0) {
        work();
        give_up_counter();
    }
    work();
    pthread_t id;
    need(pthread_create(&id, NULL, thread, NULL) == 0, "pthread_create");
    pthread_join(id, NULL);
    setvbuf(stdout, NULL, _IONBF, 0);
    printf("alive 4241 %d\n", kept);
    exit(42);
}
