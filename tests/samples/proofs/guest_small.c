/* Small stacks, each with an unmapped page below it: threads with 16 KiB, coroutines with 8 KiB, minimal alternate
 * signal stacks. What fits plain must fit tracked: allocations of every kind, and the exits and forks that the agent
 * replaces. `guest_small WHERE WHAT`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "guest.h"

static const char* what;
static void* volatile kept[64];
static volatile size_t huge = SIZE_MAX / 2;
static void* library;
static size_t extra;

static void allocate(void) {
    for (int i = 0; i < 32; ++i) kept[i] = malloc(1001 + 1000 * (size_t)i * i);
    for (int i = 0; i < 32; i += 2) kept[i] = realloc(kept[i], 2003 + 5000 * (size_t)i);
    for (int i = 0; i < 32; ++i) free(kept[i]);
    kept[0] = malloc(17 << 20);
    kept[1] = calloc(3, 7);
    kept[2] = aligned_alloc(4096, 8192);
    need(posix_memalign((void**)&kept[3], 256, 11) == 0, "posix_memalign");
    kept[4] = valloc(13);
    kept[5] = reallocarray(NULL, 5, 5);
    need(realloc(kept[5], huge) == NULL, "huge realloc");
    for (int i = 0; i < 6; ++i) free(kept[i]);
}

/* Not stdio: it needs 8 KiB of stack for an unbuffered stream. */
static void say(const char* text, int number) {
    char line[64];
    size_t n = strlen(text);
    memcpy(line, text, n);
    line[n] = (char)('0' + number);
    line[n + 1] = '\n';
    need(write(1, line, n + 2) > 0, "write");
}

/* Runs on the small stack. */
static void work(void) {
    if (!strcmp(what, "allocate")) {
        allocate();
    } else if (!strcmp(what, "fork")) {
        kept[0] = malloc(1009);
        pid_t child = fork();
        if (child == 0) {
            kept[1] = malloc(1013);
            _exit(7);
        }
        int status;
        waitpid(child, &status, 0);
        say("child's status ", WEXITSTATUS(status));
        say("child's signal ", WTERMSIG(status));
    } else if (!strcmp(what, "_exit")) {
        kept[0] = malloc(1019);
        _exit(8);
    } else if (!strcmp(what, "_Exit")) {
        kept[0] = malloc(1021);
        _Exit(9);
    } else if (!strcmp(what, "dlclose")) {
        kept[0] = malloc(1031);
        say("dlclose ", dlclose(library));
    }
}

static void* guarded(size_t bytes) {
    char* at = mmap(NULL, bytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(at != MAP_FAILED && mprotect(at + 4096, bytes, PROT_READ | PROT_WRITE) == 0, "stack");
    return at + 4096;
}

static void* thread(void* unused) {
    work();
    return unused;
}

static void handler(int signal) {
    (void)signal;
    work();
}

static void in_thread(size_t bytes) {
    pthread_t id;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    need(pthread_attr_setstack(&attributes, guarded(bytes), bytes) == 0, "setstack");
    need(pthread_create(&id, &attributes, thread, NULL) == 0, "pthread_create");
    pthread_join(id, NULL);
}

static void in_coroutine(size_t bytes) {
    static ucontext_t back, there;
    getcontext(&there);
    there.uc_stack.ss_sp = guarded(bytes);
    there.uc_stack.ss_size = bytes;
    there.uc_link = &back;
    makecontext(&there, work, 0);
    swapcontext(&back, &there);
}

/* Room for the kernel's frame (AT_MINSIGSTKSZ), and for what the C library guarantees in addition. */
static void on_alternate_stack(void) {
    size_t frame = getauxval(AT_MINSIGSTKSZ), bytes = ((frame ? frame : 1024) + extra + 15) & ~(size_t)15;
    size_t pages = (bytes + 4095) & ~(size_t)4095;
    stack_t alternate = {.ss_sp = (char*)guarded(pages), .ss_size = pages};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    /* Its lowest byte is directly above the unmapped page. */
    alternate.ss_size = bytes;
    need(sigaltstack(&alternate, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0, "sigaltstack");
    raise(SIGUSR1);
}

int main(int count, char** arguments) {
    need(count >= 3, "guest_small WHERE WHAT");
    what = arguments[2];
    /* Once with enough stack: at first use, the C library binds its own calls of realloc and free (3 KiB of stack). */
    allocate();
    extra = count > 3 ? atoi(arguments[3]) : 2048;
    if (!strcmp(what, "dlclose")) need((library = dlopen("libm.so.6", RTLD_NOW)) != NULL, "dlopen");
    if (!strcmp(arguments[1], "thread")) in_thread(sysconf(_SC_THREAD_STACK_MIN) > 16384 ? 20480 : 16384);
    if (!strcmp(arguments[1], "coroutine")) in_coroutine(8192);
    if (!strcmp(arguments[1], "handler")) on_alternate_stack();
    puts("done");
    return 0;
}
