/* Gives up a resource for good and continues to allocate: the time-stamp counter (by prctl or by syscall; in main, in a
 * signal handler, before main), or system calls: all but read, write and exit (SECCOMP's strict mode), or all but a few
 * (a filter). `guest_gives_up counter|strict|filter prctl|syscall|handler|early|child`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

static int by_syscall, by_filter;

static void give_up_counter(void) {
    if (by_syscall) need(syscall(SYS_prctl, PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) == 0, "SYS_prctl");
    else need(prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) == 0, "PR_SET_TSC");
}

/* Allows neither futex nor any call that maps memory. */
static void filter(void) {
#define ALLOW(NAME) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##NAME, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    static struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(openat),
        ALLOW(write),
        ALLOW(close),
        ALLOW(exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    if (by_syscall) need(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0, "SYS_seccomp");
    else need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "PR_SET_SECCOMP");
}

static void lock_up(void) {
    if (by_filter) {
        filter();
        return;
    }
    if (by_syscall) need(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL) == 0, "SYS_seccomp");
    else need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0, "PR_SET_SECCOMP");
}

/* More calls than the agent times one by one, and enough for several samples. */
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

/* malloc has all it needs already and makes no system call. */
static void locked_up(int status) {
    escape(malloc(1009));
    work();
    lock_up();
    work();
    escape(malloc(213));
    need(write(1, "locked up\n", 10) == 10, "write");
    if (by_filter) {
        int null = open("/dev/null", O_WRONLY);
        need(null >= 0 && close(null) == 0, "open");
        _exit(status);
    }
    syscall(SYS_exit, status);
}

/* Runs before the agent starts, which then finds the counter given up. */
__attribute__((constructor)) static void early(int count, char** arguments) {
    if (count == 3 && !strcmp(arguments[2], "early")) give_up_counter();
}

int main(int count, char** arguments) {
    need(count == 3, "guest_gives_up counter|strict|filter prctl|syscall|handler|early|child");
    const char* how = arguments[2];
    by_syscall = !strcmp(how, "syscall");
    by_filter = !strcmp(arguments[1], "filter");
    int locks_up = by_filter || !strcmp(arguments[1], "strict");
    int kept = 3;
    for (int i = 0; i < kept; ++i) escape(malloc(4241));
    if (locks_up && strcmp(how, "child") != 0) locked_up(42);
    pid_t child = strcmp(how, "child") ? -1 : fork();
    if (child == 0) {
        if (locks_up) locked_up(7);
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
