/* Checks the descriptors, threads and output of a guest from outside, at each of its system calls.
 *
 * `guest_descriptors trace LIBRARY` runs `guest_descriptors work` under ptrace with LIBRARY preloaded: a test with
 * enough survivors for several windows of the spool, a second thread, a fork. The tracer follows all of them and
 * prints violations:
 *  - a descriptor of the agent below 500 that the guest's code can see: with a second thread in the process, or with
 *    signals unblocked;
 *  - an open descriptor of the agent while the guest runs its own code;
 *  - a thread that the guest did not start;
 *  - a system call between start, boundaries and end that malloc does not make;
 *  - a write to a descriptor, except the guest's own marks. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

/* --- the guest -------------------------------------------------------------------------------------------------------------- */

static void mark(char what) { need(write(1, &what, 1) == 1, "mark"); }

/* Checks that the lowest free number is the guest's. */
static void look(void) {
    int fd = open("/dev/null", O_RDONLY);
    if (fd != 3) printf("the lowest number is %d\n", fd), fflush(stdout);
    close(fd);
}

static volatile int over;

static void* busy(void* unused) {
    while (!over) free(escape(malloc(60)));
    return unused;
}

/* Each depth has its own stack and each block its own size, so each block is a record of the snapshot. */
static NOINLINE void leak(int depth) {
    if (depth > 0) leak(depth - 1);
    else for (size_t n = 1; n <= 250; ++n) escape(malloc(n));
    __asm__ volatile("");
}

static void test(void (*begin)(const char*, const char*), void (*end)(const char*, const char*, int), const char* name, int depths) {
    if (begin) begin("Guest", name);
    mark('(');
    for (int depth = 0; depth < depths; ++depth) leak(depth);
    for (size_t i = 0; i < 50; ++i) free(escape(malloc(i << 16)));
    mark(')');
    if (end) end("Guest", name, 0);
    look();
}

static int work(void) {
    void (*begin)(const char*, const char*) = NULL;
    void (*end)(const char*, const char*, int) = NULL;
    *(void**)&begin = dlsym(RTLD_DEFAULT, "memgate_test_begin");
    *(void**)&end = dlsym(RTLD_DEFAULT, "memgate_test_end");
    /* The C library requests random bytes once. */
    free(escape(malloc(1)));
    /* Writes spools with one thread, then with two, each time into new windows. */
    look();
    test(begin, end, "alone", 100);
    pthread_t id;
    need(pthread_create(&id, NULL, busy, NULL) == 0, "pthread_create");
    test(begin, end, "together", 400);
    over = 1;
    pthread_join(id, NULL);
    pid_t child = fork();
    if (child == 0) {
        look();
        mark('(');
        for (size_t i = 0; i < 1000; ++i) escape(malloc(1 + i));
        mark(')');
        _exit(0);
    }
    waitpid(child, NULL, 0);
    look();
    return 0;
}

/* --- the tracer ------------------------------------------------------------------------------------------------------------- */

enum { TASKS = 16, NUMBERS = 1024 };

static struct task {
    pid_t id, process;
    int entered, own_code;
    unsigned long call, argument;
} tasks[TASKS];
static int count, violations, opened, threads_of_guest, in_spools, calls_between;

static void violation(pid_t id, const char* what, long value) {
    if (violations++ < 20) printf("violation in %s: %s %ld\n", id ? "the guest" : "it", what, value);
}

static struct task* task_of(pid_t id) {
    for (int i = 0; i < count; ++i) {
        if (tasks[i].id == id) return &tasks[i];
    }
    need(count < TASKS, "room for tasks");
    tasks[count] = (struct task){.id = id, .process = id};
    return &tasks[count++];
}

static void drop(pid_t id) {
    for (int i = 0; i < count; ++i) {
        if (tasks[i].id == id) tasks[i] = tasks[--count];
    }
}

static unsigned long long blocked(pid_t id) {
    char path[64], line[200];
    unsigned long long mask = 0;
    snprintf(path, sizeof path, "/proc/%d/status", id);
    FILE* f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) sscanf(line, "SigBlk: %llx", &mask);
    if (f) fclose(f);
    return mask;
}

static int threads(pid_t process) {
    char path[64];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR* dir = opendir(path);
    for (struct dirent* e; dir && (e = readdir(dir));) n += e->d_name[0] != '.';
    if (dir) closedir(dir);
    return n;
}

/* Number of open descriptors of the agent: spools, and files of /proc that it reads. */
static int agents(pid_t process, int* lowest) {
    char path[64], target[300], entry[400];
    int n = 0;
    *lowest = NUMBERS;
    snprintf(path, sizeof path, "/proc/%d/fd", process);
    DIR* dir = opendir(path);
    for (struct dirent* e; dir && (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        snprintf(entry, sizeof entry, "%s/%s", path, e->d_name);
        ssize_t length = readlink(entry, target, sizeof target - 1);
        if (length <= 0) continue;
        target[length] = 0;
        if (!strstr(target, ".mgf") && !strstr(target, "/cmdline")) continue;
        ++n;
        if (atoi(e->d_name) < *lowest) *lowest = atoi(e->d_name);
    }
    if (dir) closedir(dir);
    return n;
}

static int is_mallocs(unsigned long call) {
    return call == SYS_mmap || call == SYS_munmap || call == SYS_mprotect || call == SYS_brk || call == SYS_futex || call == SYS_mremap;
}

static void at_call(struct task* t, struct user_regs_struct* r) {
    int lowest;
    if (!t->entered) {
        t->entered = 1;
        t->call = r->orig_rax;
        if (t->call == SYS_write || t->call == SYS_writev || t->call == SYS_pwrite64 || t->call == SYS_sendto) {
            long word = t->call == SYS_write ? ptrace(PTRACE_PEEKDATA, t->id, r->rsi, 0) & 0xff : 0;
            if (r->rdi != 1 || (word != '(' && word != ')' && word != 't')) violation(t->id, "a write to descriptor", (long)r->rdi);
            t->own_code = word == '(';
            if (t->own_code && agents(t->process, &lowest)) violation(t->id, "open in the guest's own code:", lowest);
        } else if (t->own_code) {
            ++calls_between;
            if (!is_mallocs(t->call)) violation(t->id, "between boundaries: system call", (long)t->call);
        }
        return;
    }
    t->entered = 0;
    int n = agents(t->process, &lowest);
    opened += n > 0;
    if (n > 0 && lowest < 500) {
        in_spools += 1;
        int crowd = threads(t->process);
        if (crowd > 1) violation(t->id, "a low number, seen by threads:", crowd);
        if (!(blocked(t->id) & 1ULL << (SIGUSR1 - 1))) violation(t->id, "a low number, seen by handlers:", lowest);
    }
}

static int trace(const char* library) {
    pid_t first = fork();
    if (first == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        setenv("LD_PRELOAD", library, 1);
        raise(SIGSTOP);
        execl("/proc/self/exe", "guest_descriptors", "work", NULL);
        _exit(99);
    }
    int status;
    need(waitpid(first, &status, 0) == first, "waitpid");
    if (ptrace(PTRACE_SETOPTIONS, first, 0,
               PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL) != 0) {
        puts("not possible here");
        return 0;
    }
    task_of(first);
    ptrace(PTRACE_SYSCALL, first, 0, 0);
    int ended = -1;
    for (pid_t id; (id = waitpid(-1, &status, __WALL)) > 0;) {
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (id == first) ended = status;
            drop(id);
            continue;
        }
        struct task* t = task_of(id);
        int signal = WSTOPSIG(status), event = status >> 16;
        if (signal == (SIGTRAP | 0x80)) {
            struct user_regs_struct r;
            ptrace(PTRACE_GETREGS, id, 0, &r);
            at_call(t, &r);
            signal = 0;
        } else if (event == PTRACE_EVENT_CLONE) {
            unsigned long other;
            ptrace(PTRACE_GETEVENTMSG, id, 0, &other);
            task_of((pid_t)other)->process = t->process;
            ++threads_of_guest;
            signal = 0;
        } else if (event) {
            if (event == PTRACE_EVENT_EXEC) t->entered = 1;
            signal = 0;
        } else if (signal == SIGSTOP || signal == SIGTRAP) {
            signal = 0;
        }
        ptrace(PTRACE_SYSCALL, id, 0, signal);
    }
    tell("status", ended);
    tell("threads", threads_of_guest);
    tell("violations", violations);
    printf("# a descriptor of the agent's was open behind %d system calls, behind %d below 500; between boundaries %d calls\n", opened,
           in_spools, calls_between);
    return violations != 0;
}

int main(int number, char** arguments) {
    setvbuf(stdout, NULL, _IOLBF, 1024);
    if (number == 3 && !strcmp(arguments[1], "trace")) return trace(arguments[2]);
    need(number == 2 && !strcmp(arguments[1], "work"), "guest_descriptors trace LIBRARY");
    return work();
}
