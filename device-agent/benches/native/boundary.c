/* The cost of a boundary for the thread that reaches it, and its effect on other threads.
 *
 *   boundary SURVIVORS TIMES
 *
 * Each time a test begins, SURVIVORS blocks are allocated (512 stacks of depth 20; 16 to 1015 bytes, or 16 to 127 for
 * more than a million blocks, to save memory), and the test ends with all of them alive: hardly two of 100,000 are
 * alike. Another thread allocates and frees meanwhile and measures the time of every operation. Then the same is
 * repeated without boundaries; the calls are replaced by work of the same length. Prints
 *
 *   boundary WALL_NS CPU_NS PREEMPTIONS                              for each end of a test
 *   latency with|without COUNT P50 P99 P999 MAX MAX_UNDISTURBED      nanoseconds, while a boundary was going on
 *
 * An operation is disturbed if the kernel preempted its thread meanwhile: with more runnable threads than cores, that
 * says nothing about the boundary. A thread that waits (for a lock, or for the kernel's lock on mappings) is not
 * preempted, so its operation counts.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "memgate.h"

enum { DEPTH = 20, SLOTS = 512, BUCKETS = 64 * 16, CHECK_EVERY = 16, SUSPICIOUS_NS = 20000 };

struct survivors {
  uint64_t random;
  void **blocks;
  size_t count, most_bytes;
};

#define OPERATE(state, site)                                        \
  struct survivors *s = state;                                                \
  char *block = malloc(16 + (next_random(&s->random) >> 20) % s->most_bytes); \
  if (!block) abort();                                                        \
  *block = site;                                                              \
  s->blocks[s->count++] = block;
#include "paths.h"

static uint64_t now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Sixteen buckets for each power of two. */
struct histogram {
  uint64_t buckets[BUCKETS];
  uint64_t count, max, max_undisturbed;
};

static unsigned bucket_of(uint64_t ns) {
  if (ns < 16) return (unsigned)ns;
  const unsigned power = 63u - (unsigned)__builtin_clzll(ns);
  return (power - 3) * 16 + (unsigned)(ns >> (power - 4) & 15);
}

static uint64_t bucket_end(unsigned bucket) {
  if (bucket < 16) return bucket;
  return ((uint64_t)(16 + bucket % 16) + 1) << (bucket / 16 - 1);
}

static uint64_t quantile(const struct histogram *h, double part) {
  uint64_t seen = 0;
  for (unsigned i = 0; i < BUCKETS; i++) {
    seen += h->buckets[i];
    if ((double)seen >= part * (double)h->count) return bucket_end(i);
  }
  return h->max;
}

static struct histogram latencies[2];
static atomic_int going_on = -1; /* which histogram counts; -1: none */
static atomic_bool over;

static long preemptions(void) {
  struct rusage used;
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_nivcsw;
}

static void *allocate_and_free(void *unused) {
  (void)unused;
  static char *slots[SLOTS];
  uint64_t random = 88172645463325252;
  long known = preemptions();
  for (unsigned i = 0; !atomic_load_explicit(&over, memory_order_relaxed); i++) {
    if (i % CHECK_EVERY == 0) known = preemptions();
    const uint64_t r = next_random(&random);
    char **slot = &slots[r % SLOTS];
    const int which = atomic_load_explicit(&going_on, memory_order_relaxed);
    const uint64_t start = now(CLOCK_MONOTONIC);
    free(*slot);
    *slot = malloc(16 + (r >> 20) % 1000);
    const uint64_t took = now(CLOCK_MONOTONIC) - start;
    if (!*slot) abort();
    **slot = 1;
    if (which < 0) continue;
    struct histogram *h = &latencies[which];
    h->buckets[bucket_of(took)]++;
    h->count++;
    if (took > h->max) h->max = took;
    if (took > h->max_undisturbed && (took < SUSPICIOUS_NS || preemptions() == known)) h->max_undisturbed = took;
  }
  for (int i = 0; i < SLOTS; i++) free(slots[i]);
  return NULL;
}

static void survive(struct survivors *s, size_t wanted) {
  while (s->count < wanted) straight(s, DEPTH - 1, next_random(&s->random) >> 32);
}

static void forget(struct survivors *s) {
  while (s->count > 0) free(s->blocks[--s->count]);
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  const size_t wanted = (size_t)atoll(argv[1]);
  const long times = atol(argv[2]);
  set_depth(DEPTH);
  struct survivors s = {0x9E3779B97F4A7C15u, calloc(wanted + OPERATIONS, sizeof(void *)), 0, wanted > 1000000 ? 112 : 1000};
  if (!s.blocks) return 2;
  memset(s.blocks, 0, (wanted + OPERATIONS) * sizeof(void *));
  pthread_t other;
  if (pthread_create(&other, NULL, allocate_and_free, NULL) != 0) return 2;

  uint64_t all = 0;
  for (long i = 0; i < times; i++) {
    MemgateTestBegin("bench", "boundary");
    survive(&s, wanted);
    const long preempted = preemptions();
    const uint64_t wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID);
    atomic_store(&going_on, 1);
    MemgateTestEnd("bench", "boundary", MEMGATE_PASSED);
    atomic_store(&going_on, -1);
    const uint64_t took = now(CLOCK_MONOTONIC) - wall, used = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
    printf("boundary %llu %llu %ld\n", (unsigned long long)took, (unsigned long long)used, preemptions() - preempted);
    all += took;
    forget(&s);
  }
  for (long i = 0; i < times; i++) {
    survive(&s, wanted);
    const uint64_t end = now(CLOCK_MONOTONIC) + all / (uint64_t)times;
    atomic_store(&going_on, 0);
    while (now(CLOCK_MONOTONIC) < end)
      ;
    atomic_store(&going_on, -1);
    forget(&s);
  }
  atomic_store(&over, true);
  pthread_join(other, NULL);
  for (int with = 1; with >= 0; with--) {
    const struct histogram *h = &latencies[with];
    printf("latency %s %llu %llu %llu %llu %llu %llu\n", with ? "with" : "without", (unsigned long long)h->count,
           (unsigned long long)quantile(h, 0.5), (unsigned long long)quantile(h, 0.99),
           (unsigned long long)quantile(h, 0.999), (unsigned long long)h->max, (unsigned long long)h->max_undisturbed);
  }
  free(s.blocks);
  return 0;
}
