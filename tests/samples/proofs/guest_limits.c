/* Limits, selected by name: `guest_limits as|data|refusals|fsize|nofile|memlock`. The guest reaches it, continues
 * and prints live blocks (`alive SIZE COUNT`), which are compared with the agent's records. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

enum { ROW = 70001, MOST = 1 << 16 };

static void* rows[MOST];
static volatile size_t huge = (size_t)1 << 40;

static void limit(int which, rlim_t most) {
    struct rlimit r;
    need(getrlimit(which, &r) == 0, "getrlimit");
    r.rlim_cur = most;
    need(setrlimit(which, &r) == 0, "setrlimit");
}

static size_t status_kib(const char* name) {
    char line[200];
    size_t found = 0, length = strlen(name);
    FILE* f = fopen("/proc/self/status", "r");
    need(f != NULL, "status");
    while (fgets(line, sizeof line, f)) {
        if (!strncmp(line, name, length)) found = strtoul(line + length, NULL, 10);
    }
    fclose(f);
    return found;
}

/* Allocates blocks of an odd size until refused. Every refusal must be ENOMEM and keep the block it was about. */
static int fill(void) {
    int n = 0;
    for (errno = 0; n < MOST && (rows[n] = malloc(ROW)); ++n) memset(rows[n], 1, ROW);
    tell("refused with", errno);
    need(n > 100 && n < MOST, "the limit was reached");
    need(realloc(rows[0], huge) == NULL && errno == ENOMEM, "realloc is refused");
    need(calloc(huge, 3) == NULL && errno == ENOMEM, "calloc is refused");
    need(((char*)rows[0])[ROW - 1] == 1, "the block is whole");
    return n;
}

static void drain(int n, int keep) {
    for (int i = keep; i < n; ++i) free(rows[i]);
    for (int i = keep; i < keep + 50; ++i) free(escape(malloc(ROW)));
    printf("alive %d %d\n", ROW, keep);
}

static void memory(int which, const char* used) {
    limit(which, (status_kib(used) << 10) + (48 << 20));
    int n = fill();
    drain(n, 10);
    limit(which, RLIM_INFINITY);
    /* Without the limit, the guest continues as usual. */
    void* volatile large = malloc(256 << 20);
    tell("large again", large != NULL);
    free(large);
}

/* Large requests are refused, but there is room for everything else: the agent's records must be exact. */
static void refusals(void) {
    limit(RLIMIT_AS, (status_kib("VmSize:") << 10) + (256 << 20));
    for (int i = 0; i < 100; ++i) {
        rows[i] = malloc(ROW);
        errno = 0;
        need(malloc(1 << 30) == NULL && errno == ENOMEM, "malloc");
        need(realloc(rows[i], 1 << 30) == NULL && errno == ENOMEM, "realloc");
        need(reallocarray(rows[i], 1 << 20, 1 << 10) == NULL, "reallocarray");
        need(calloc(1 << 20, 1 << 10) == NULL && aligned_alloc(64, 1 << 30) == NULL, "calloc");
        void* out = rows;
        need(posix_memalign(&out, 64, 1 << 30) == ENOMEM && out == (void*)rows, "posix_memalign");
        if (i % 3 == 0) need((rows[i] = realloc(rows[i], ROW + 2)) != NULL, "a small realloc");
    }
    printf("alive %d %d\n", ROW, 66);
    printf("alive %d %d\n", ROW + 2, 34);
}

static volatile sig_atomic_t signals;
static void count(int signal) { signals += signal == SIGXFSZ; }

static void file_size(rlim_t most) {
    signal(SIGXFSZ, count);
    limit(RLIMIT_FSIZE, most);
    for (int i = 0; i < 1000; ++i) rows[i] = malloc(ROW);
    drain(1000, 10);
    pid_t child = fork();
    if (child == 0) {
        free(escape(malloc(ROW)));
        _exit(signals ? 1 : 7);
    }
    int status;
    waitpid(child, &status, 0);
    tell("child", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    tell("signals", signals);
}

/* All four numbers are in use; a number that the guest frees is its own again. */
static void descriptors(void) {
    limit(RLIMIT_NOFILE, 4);
    int fd = open("/dev/null", O_RDONLY);
    tell("the fourth", fd);
    need(open("/dev/null", O_RDONLY) < 0 && errno == EMFILE, "no fifth");
    for (int i = 0; i < 1000; ++i) rows[i] = malloc(ROW);
    drain(1000, 10);
    pid_t child = fork();
    if (child == 0) {
        close(fd);
        _exit(open("/dev/null", O_RDONLY) == fd ? 7 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    tell("child", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* Locks all present and future memory: at most `most` bytes, without the privilege to exceed it; 0: no limit. */
static void locked(rlim_t most) {
    if (most != 0) {
        struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
        struct rlimit r = {most, most};
        int raised = setrlimit(RLIMIT_MEMLOCK, &r) == 0;
        need(syscall(SYS_capset, &header, none) == 0, "capset");
        if (!raised) {
            puts("not possible here");
            return;
        }
    }
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        puts("not possible here");
        return;
    }
    /* Few blocks: the heap may need two parts of the agent's table, which are locked too. */
    int n = most ? 6 : 2000, kept = most ? 5 : 10;
    for (int i = 0; i < n; ++i) {
        need((rows[i] = malloc(ROW)) != NULL, "malloc");
        memset(rows[i], 1, ROW);
    }
    printf("# locked %zu KiB\n", status_kib("VmLck:"));
    drain(n, kept);
}

int main(int number, char** arguments) {
    need(number >= 2, "guest_limits LIMIT");
    const char* which = arguments[1];
    rlim_t most = number > 2 ? strtoul(arguments[2], NULL, 10) : 0;
    if (!strcmp(which, "as")) memory(RLIMIT_AS, "VmSize:");
    if (!strcmp(which, "data")) memory(RLIMIT_DATA, "VmData:");
    if (!strcmp(which, "refusals")) refusals();
    if (!strcmp(which, "fsize")) file_size(most);
    if (!strcmp(which, "nofile")) descriptors();
    if (!strcmp(which, "memlock")) locked(most);
    puts("done");
    return 0;
}
