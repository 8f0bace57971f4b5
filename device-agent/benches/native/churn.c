/* Allocates and frees, and does little else: the worst case for a tracker.
 *
 *   churn THREADS DEPTH OPERATIONS
 *
 * Each thread keeps 4096 live blocks. One operation frees one of them and allocates another: sizes are log-uniform
 * between 16 and 2047 bytes, one in a hundred is 8 to 64 KiB. OPERATIONS are divided among the threads. Prints the CPU
 * nanoseconds of the process at the end of the work, so that they include neither the exit nor a tracker's work at the
 * exit.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { SLOTS = 4096, SIZES = 8192 };

struct worker {
  uint64_t random;
  char *slots[SLOTS];
};

static uint32_t sizes[SIZES];
static long depth;
static long descents_per_thread;

#define OPERATE(state, site)                  \
  struct worker *w = state;                   \
  const uint64_t r = next_random(&w->random); \
  char **slot = &w->slots[r % SLOTS];         \
  free(*slot);                                \
  *slot = malloc(sizes[(r >> 20) % SIZES]);   \
  if (!*slot) abort();                        \
  **slot = site;
#include "paths.h"

static void *work(void *argument) {
  struct worker *w = argument;
  for (long i = 0; i < descents_per_thread; i++) straight(w, depth - 1, next_random(&w->random) >> 32);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  const long threads = atol(argv[1]);
  depth = atol(argv[2]);
  set_depth(depth);
  descents_per_thread = atol(argv[3]) / threads / OPERATIONS;
  uint64_t random = 88172645463325252;
  for (int i = 0; i < SIZES; i++) {
    random = random * 6364136223846793005 + 1442695040888963407;
    const double uniform = (double)(random >> 11) / 9007199254740992.0;
    const double low = i % 100 == 0 ? 8192 : 16, high = i % 100 == 0 ? 65536 : 2048;
    sizes[i] = (uint32_t)(low * pow(high / low, uniform));
  }
  struct worker *workers = calloc((size_t)threads, sizeof *workers);
  pthread_t *others = calloc((size_t)threads, sizeof *others);
  if (!workers || !others) return 2;
  for (long i = 0; i < threads; i++) workers[i].random = 0x9E3779B97F4A7C15u * (uint64_t)(i + 1);
  for (long i = 1; i < threads; i++)
    if (pthread_create(&others[i], NULL, work, &workers[i]) != 0) return 2;
  work(&workers[0]);
  for (long i = 1; i < threads; i++) pthread_join(others[i], NULL);
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  const long long microseconds =
      (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000LL + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
  printf("%lld\n", microseconds * 1000);
  return 0;
}
