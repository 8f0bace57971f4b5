/* Signals during allocation: `handlers` (a handler that allocates interrupts the hooks; runs above guest_bump),
 * `stopped` (signals stop threads at any point while others continue), `cancelled` (malloc is not a cancellation point,
 * and neither are the agent's own calls in `dlclose`, fork and boundaries). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "guest.h"

/* --- handlers -------------------------------------------------------------------------------------------------------------- */

enum { ROW = 73, HANDLER_ROW = 91, ROWS = 5000000, HITS = 1000, HITS_INSIDE = 5 };

static uintptr_t agent_start, agent_end;
static volatile long hits, inside;
static pthread_t worker;
static volatile int over;

static int find_agent(struct dl_phdr_info* info, size_t size, void* unused) {
    (void)size;
    if (!strstr(info->dlpi_name, "memgate")) return 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)* h = &info->dlpi_phdr[i];
        if (h->p_type == PT_LOAD && h->p_flags & PF_X) {
            agent_start = info->dlpi_addr + h->p_vaddr;
            agent_end = agent_start + h->p_memsz;
        }
    }
    return unused != NULL;
}

static void* volatile last[8];

static void allocate(int signal, siginfo_t* info, void* context) {
    (void)signal, (void)info;
    uintptr_t pc = (uintptr_t)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
    inside += pc >= agent_start && pc < agent_end;
    long n = hits++;
    /* Frees the block of eight calls before, so that frees of older blocks also interrupt other calls. */
    free(last[n % 8]);
    last[n % 8] = malloc(HANDLER_ROW);
    void* p = calloc(1, 41);
    p = realloc(p, 211);
    free(p);
    /* A block for the spill table. */
    if (n % 64 == 0) free(malloc(17 << 20));
}

/* If both threads share one processor, signals arrive at thread switches and rarely hit the agent. */
static int is_enough(void) { return hits >= HITS && (!agent_start || inside >= HITS_INSIDE); }

static void* shoot(void* unused) {
    while (!over && !is_enough()) {
        long before = hits;
        pthread_kill(worker, SIGUSR1);
        while (hits == before && !over) __builtin_ia32_pause();
        /* Varies the moment. */
        for (volatile long i = before * 7919 % 9973; i > 0; --i) {}
    }
    return unused;
}

static NOINLINE void row(int depth) {
    if (depth > 0) row(depth - 1);
    else free(escape(realloc(escape(malloc(ROW)), ROW + 2)));
    __asm__ volatile("");
}

static int handlers(void) {
    struct sigaction action = {.sa_sigaction = allocate, .sa_flags = SA_SIGINFO};
    pthread_t shooter;
    worker = pthread_self();
    dl_iterate_phdr(find_agent, NULL);
    sigaction(SIGUSR1, &action, NULL);
    void* volatile kept[5];
    for (int i = 0; i < 5; ++i) kept[i] = malloc(ROW);
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, NULL);
    need(pthread_create(&shooter, NULL, shoot, NULL) == 0, "pthread_create");
    pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
    /* Allocates until enough signals have hit. */
    for (int i = 0; i < ROWS && !is_enough(); ++i) row(i % 40);
    over = 1;
    pthread_join(shooter, NULL);
    /* The shooter has ended: no signal is in flight, at most one is pending for this thread, which takes it now. */
    sched_yield();
    need(kept[4] != NULL, "kept");
    printf("alive %d 5\nalive %d %ld\n", ROW, HANDLER_ROW, hits < 8 ? hits : 8);
    printf("# %ld interrupted, %ld of them in the agent\n", hits, inside);
    return 0;
}

/* --- stopped ---------------------------------------------------------------------------------------------------------------- */

enum { WORKERS = 3, STOPS = 60 };

static sem_t stopped;
static volatile sig_atomic_t go_on;

static void stop(int signal) {
    (void)signal;
    sigset_t wait;
    sigfillset(&wait);
    sigdelset(&wait, SIGUSR2);
    sem_post(&stopped);
    sigsuspend(&wait);
    sem_post(&stopped);
}

static void resume(int signal) { go_on = signal; }

static void* churn(void* unused) {
    while (!over) {
        row(30);
        free(escape(malloc(24)));
    }
    return unused;
}

static int stop_the_world(void) {
    pthread_t ids[WORKERS];
    struct sigaction action = {.sa_handler = stop};
    sigfillset(&action.sa_mask);
    sem_init(&stopped, 0, 0);
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGUSR2, resume);
    for (int i = 0; i < WORKERS; ++i) need(pthread_create(&ids[i], NULL, churn, NULL) == 0, "pthread_create");
    for (int n = 0; n < STOPS; ++n) {
        for (int i = 0; i < WORKERS; ++i) pthread_kill(ids[i], SIGUSR1);
        for (int i = 0; i < WORKERS; ++i) sem_wait(&stopped);
        /* Served from this thread's cache: a stopped thread may hold glibc's locks. The agent has no locks. */
        for (int i = 0; i < 10; ++i) free(escape(malloc(24)));
        for (int i = 0; i < WORKERS; ++i) pthread_kill(ids[i], SIGUSR2);
        for (int i = 0; i < WORKERS; ++i) sem_wait(&stopped);
    }
    over = 1;
    for (int i = 0; i < WORKERS; ++i) pthread_join(ids[i], NULL);
    tell("stops", STOPS);
    return 0;
}

/* --- cancelled -------------------------------------------------------------------------------------------------------------- */

static volatile int reached;

/* Cancellation is pending from the first line: functions that are not cancellation points must return. */
static void* doomed(void* library) {
    pthread_cancel(pthread_self());
    reached = 1;
    for (int i = 0; i < 300; ++i) {
        void* p = escape(malloc(100 + (size_t)i * 997));
        p = escape(realloc(p, 50 + (size_t)i * 1997));
        free(p);
        free(escape(malloc((16 << 20) + (size_t)i)));
        free(escape(aligned_alloc(4096, 8192)));
    }
    reached = 2;
    need(dlclose(library) == 0, "dlclose");
    reached = 3;
    pid_t child = fork();
    if (child == 0) {
        free(escape(malloc(77)));
        _exit(7);
    }
    reached = 4;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    int status = 0;
    waitpid(child, &status, 0);
    tell("the child's status", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    pthread_testcancel();
    reached = 5;
    return NULL;
}

static void* leaves(void* unused) {
    pthread_cancel(pthread_self());
    free(escape(malloc(79)));
    _exit(8);
    return unused;
}

static int cancelled(void) {
    pthread_t id;
    void* result;
    void* library = dlopen("libm.so.6", RTLD_NOW);
    need(library != NULL, "dlopen");
    need(pthread_create(&id, NULL, doomed, library) == 0, "pthread_create");
    pthread_join(id, &result);
    tell("cancelled", result == PTHREAD_CANCELED);
    tell("reached", reached);
    fflush(stdout);
    need(pthread_create(&id, NULL, leaves, NULL) == 0, "pthread_create");
    pthread_join(id, &result);
    tell("_exit was left by cancellation", result == PTHREAD_CANCELED);
    return 1;
}

int main(int count, char** arguments) {
    need(count == 2, "guest_signals handlers|stopped|cancelled");
    if (!strcmp(arguments[1], "handlers")) return handlers();
    if (!strcmp(arguments[1], "stopped")) return stop_the_world();
    return cancelled();
}
