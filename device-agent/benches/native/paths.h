/* Call paths for allocations: `straight` descends DEPTH calls on one of 64 paths and then runs eight operations,
 * each with its own call site. The includer defines OPERATE(state, site) first. Built without frame pointers.
 */
#ifndef PATHS_H
#define PATHS_H

#include <stdint.h>

enum { PATH_BITS = 6, OPERATIONS = 8 };

static uint64_t next_random(uint64_t *random) {
  *random ^= *random << 13;
  *random ^= *random >> 7;
  *random ^= *random << 17;
  return *random;
}

#define NOINLINE __attribute__((noinline, noclone))
#define OPERATION(n) \
  static NOINLINE void operation##n(void *state) { OPERATE(state, n); }
OPERATION(0) OPERATION(1) OPERATION(2) OPERATION(3) OPERATION(4) OPERATION(5) OPERATION(6) OPERATION(7)

static long fork_every = 1;

static long descend(void *state, long level, uint64_t path);

/* The sums prevent tail calls: the compiler would turn a last call into a jump. */
static NOINLINE long left(void *state, long level, uint64_t path) { return 1 + descend(state, level, path); }
static NOINLINE long right(void *state, long level, uint64_t path) { return 2 + descend(state, level, path); }
static NOINLINE long straight(void *state, long level, uint64_t path) { return 3 + descend(state, level, path); }

/* Six of the levels, evenly distributed, are forks of the path. */
static inline __attribute__((always_inline)) long descend(void *state, long level, uint64_t path) {
  if (level == 0) {
    operation0(state), operation1(state), operation2(state), operation3(state);
    operation4(state), operation5(state), operation6(state), operation7(state);
    return 1;
  }
  if (level % fork_every != 0) return straight(state, level - 1, path);
  return path >> (level / fork_every % PATH_BITS) & 1 ? right(state, level - 1, path) : left(state, level - 1, path);
}

static void set_depth(long depth) { fork_every = depth < PATH_BITS ? 1 : depth / PATH_BITS; }

#endif
