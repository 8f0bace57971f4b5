/* The cost of taking one stack: the shadow call stack compared with libunwind and frame pointers.
 *
 *   shadow METHOD THREADS DEPTH CAPTURES   prints nanoseconds of CPU time per capture
 *
 * Compiled with the hooks and with frame pointers, for all methods.
 */
#define _GNU_SOURCE
#define UNW_LOCAL_ONLY
#include "memgate_shadow.h"

#include <libunwind.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOT_HOOKED __attribute__((no_instrument_function))
enum { MOST = 128 };
static __thread void *frames[MOST];
static __thread long taken, of_frames;

NOT_HOOKED static int nothing(void **to, int most) {
  (void)to, (void)most;
  __asm__ volatile("" ::: "memory");
  return 0;
}
NOT_HOOKED static int by_step(void **to, int most) {
  unw_context_t context;
  unw_cursor_t cursor;
  unw_word_t pc;
  int count = 0;
  unw_getcontext(&context);
  unw_init_local(&cursor, &context);
  do {
    unw_get_reg(&cursor, UNW_REG_IP, &pc);
    to[count++] = (void *)pc;
  } while (count < most && unw_step(&cursor) > 0);
  return count;
}
NOT_HOOKED static int by_frame_pointer(void **to, int most) {
  void **frame = __builtin_frame_address(0);
  int count = 0;
  while (frame && count < most) {
    to[count++] = frame[1];
    void **next = frame[0];
    if (next <= frame) break;
    frame = next;
  }
  return count;
}
NOT_HOOKED static int by_malloc(void **to, int most) {
  (void)most;
  to[0] = malloc(24);
  __asm__ volatile("" : : "r"(to[0]) : "memory");
  free(to[0]);
  return 1;
}
NOT_HOOKED static int by_unw_backtrace(void **to, int most) { return unw_backtrace(to, most); }

static const struct {
  const char *name;
  int (*take)(void **, int);
} methods[] = {{"empty", nothing},
               {"shadow", get_tls_backtrace},
               {"frame-pointers", by_frame_pointer},
               {"unw_backtrace", by_unw_backtrace},
               {"unw_step", by_step},
               {"malloc", by_malloc}};
static int (*take)(void **, int);
static long depth, captures;

NOT_HOOKED static double cpu_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

#define PATH(name, n)                                                        \
  static __attribute__((noinline, noclone)) long name(long level, long path) { return n + descend(level, path); }
static long descend(long level, long path);
PATH(left, 1)
PATH(right, 2)
static inline __attribute__((always_inline)) long descend(long level, long path) {
  if (level > 0) return path & 1 ? left(level - 1, path >> 1 | path << 5) : right(level - 1, path >> 1 | path << 5);
  for (int i = 0; i < 8; i++) of_frames += take(frames, MOST);
  taken += 8;
  return 0;
}

static void *work(void *ns) {
  take(frames, MOST);
  taken = of_frames = 0;
  double before = cpu_ns();
  for (long path = 0; taken < captures; path++) left(depth, path);
  *(double *)ns = (cpu_ns() - before) / (double)taken;
  return NULL;
}

NOT_HOOKED int main(int argc, char **argv) {
  if (argc < 5) return 2;
  long threads = atol(argv[2]);
  depth = atol(argv[3]);
  captures = atol(argv[4]);
  for (unsigned i = 0; i < sizeof methods / sizeof *methods; i++)
    if (strcmp(argv[1], methods[i].name) == 0) take = methods[i].take;
  if (!take || threads < 1 || threads > 64) return 2;
  pthread_t all[64];
  double ns[64], sum = 0;
  for (long i = 0; i < threads; i++) pthread_create(&all[i], NULL, work, &ns[i]);
  for (long i = 0; i < threads; i++) pthread_join(all[i], NULL), sum += ns[i];
  printf("%.1f\n", sum / (double)threads);
  return 0;
}
