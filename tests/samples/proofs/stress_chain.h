/* The call chain as the program itself knows it, shared by the stress program and its plugins.
 *
 * Every function on the path to an allocation records its return address (from the compiler, not an unwinder), so the
 * hash of a chain covers all its return addresses. To learn the return address of the allocating call itself, `probe`
 * is first called through the same call instruction. */
#ifndef MEMGATE_STRESS_CHAIN_H
#define MEMGATE_STRESS_CHAIN_H

#include <stdint.h>

enum { CHAIN_DEPTH = 160 };

/* hash[i]: return addresses from the root to the i-th function; hash[0]: those above the thread's function. */
struct chain {
  uint32_t depth;
  uint64_t hash[CHAIN_DEPTH];
};

typedef uintptr_t (*stress_function)(uintptr_t, uintptr_t, uintptr_t);

/* One call of the allocation family, and its result. */
struct stress_call {
  stress_function function;
  uintptr_t a, b, c;
  uintptr_t result;
  uint64_t key; /* hash of the whole chain, including the allocating call */
};

static inline uint64_t chain_extend(uint64_t hash, uintptr_t address) {
  uint64_t mixed = (hash ^ address) * UINT64_C(0x9E3779B97F4A7C15);
  return mixed ^ (mixed >> 29);
}

#define CHAIN_ENTER(chain)                                                                        \
  do {                                                                                            \
    (chain)->hash[(chain)->depth + 1] =                                                           \
        chain_extend((chain)->hash[(chain)->depth], (uintptr_t)__builtin_return_address(0));      \
    ++(chain)->depth;                                                                             \
  } while (0)
#define CHAIN_LEAVE(chain) (--(chain)->depth)

#endif
