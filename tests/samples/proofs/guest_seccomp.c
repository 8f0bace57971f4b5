/* Runs under a filter that kills the process for any system call except malloc's own: allocations of all kinds and
 * sizes, enough for new leaves of the agent's table and for growth of its stack store and spill table; first
 * allocations of threads; a synchronous signal whose handler allocates; the end, by `_exit` or by the bare system
 * call. `guest_seccomp exit|_exit|exit_group`. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest.h"

enum { THREADS = 4, LARGE = 600 };

static pthread_barrier_t there, begun, done;
static void* volatile kept[LARGE];

static void lock_up(void) {
#define ALLOW(NAME) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##NAME, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    static struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(mmap),
        ALLOW(munmap),
        ALLOW(mprotect),
        ALLOW(brk),
        ALLOW(mremap),
        ALLOW(futex),
        /* For the guest: return from its handler, and exit. */
        ALLOW(rt_sigreturn),
        ALLOW(exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    need(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0, "seccomp");
}

/* Each path of 17 steps to the left or right is a separate stack: 131,072 in total. */
static NOINLINE void tree(int depth, unsigned path);
static NOINLINE void left(int depth, unsigned path) { tree(depth, path); __asm__ volatile(""); }
static NOINLINE void right(int depth, unsigned path) { tree(depth, path); __asm__ volatile("nop"); }
static NOINLINE void tree(int depth, unsigned path) {
    if (depth == 0) {
        free(escape(malloc(33)));
    } else {
        left(depth - 1, path);
        right(depth - 1, path);
    }
    __asm__ volatile("");
}

static NOINLINE void deep(int frames) {
    if (frames > 0) deep(frames - 1);
    else free(escape(malloc(35)));
    __asm__ volatile("");
}

static void family(void) {
    void* out;
    for (size_t n = 0; n < 3000; ++n) free(escape(realloc(escape(malloc(n)), 2 * n + 1)));
    free(escape(calloc(7, 1001)));
    free(escape(memalign(512, 1003)));
    free(escape(aligned_alloc(64, 1024)));
    free(escape(valloc(1005)));
    free(escape(pvalloc(1007)));
    free(escape(reallocarray(NULL, 3, 1009)));
    need(posix_memalign(&out, 4096, 1011) == 0, "posix_memalign");
    free(out);
}

static void* thread(void* unused) {
    pthread_barrier_wait(&there);
    pthread_barrier_wait(&begun);
    family();
    deep(600);
    pthread_barrier_wait(&done);
    /* Never ends, because the end of a thread needs another system call. */
    for (;;) pthread_barrier_wait(&begun);
    return unused;
}

static void handler(int signal) {
    (void)signal;
    family();
}

static void* warm(void* unused) {
    free(escape(malloc(1)));
    return unused;
}

int main(int count, char** arguments) {
    pthread_t id;
    need(count == 2, "guest_seccomp exit|_exit|exit_group");
    signal(SIGTRAP, handler);
    pthread_barrier_init(&there, NULL, THREADS + 1);
    pthread_barrier_init(&begun, NULL, THREADS + 1);
    pthread_barrier_init(&done, NULL, THREADS + 1);
    /* When the first thread allocates, glibc counts the processors. */
    need(pthread_create(&id, NULL, warm, NULL) == 0, "pthread_create");
    pthread_join(id, NULL);
    for (int i = 0; i < THREADS; ++i) need(pthread_create(&id, NULL, thread, NULL) == 0, "pthread_create");
    pthread_barrier_wait(&there);
    puts("locked up");
    fflush(stdout);
    lock_up();

    pthread_barrier_wait(&begun);
    family();
    tree(17, 0);
    deep(600);
    for (int i = 0; i < LARGE; ++i) kept[i] = malloc((17 << 20) + (size_t)i);
    for (int i = 0; i < LARGE; i += 2) kept[i] = realloc(kept[i], 40 << 20);
    for (int i = 0; i < LARGE; ++i) free(kept[i]);
    __asm__ volatile("int3");
    pthread_barrier_wait(&done);
    if (!strcmp(arguments[1], "exit")) exit(42);
    if (!strcmp(arguments[1], "_exit")) _exit(42);
    syscall(SYS_exit_group, 42);
}
