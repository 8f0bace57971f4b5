/* memgate's C API: test boundaries, marks, and a snapshot of live allocations.
 *
 * All functions are weak: a program that is compiled with this header runs unchanged without the agent,
 * and needs no library to link. Strings are UTF-8 and end with 0; they are copied at once. Boundary calls block until
 * the snapshot is taken. All functions may be called from any thread, but not from signal handlers.
 */
#ifndef MEMGATE_H
#define MEMGATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
#define MEMGATE_WEAK __attribute__((weak))
#else
#error "memgate.h needs weak symbols (GCC or Clang)"
#endif

enum memgate_outcome { MEMGATE_PASSED = 0, MEMGATE_FAILED = 1, MEMGATE_SKIPPED = 2 };

MEMGATE_WEAK int memgate_active(void);
MEMGATE_WEAK void memgate_test_begin(const char *suite, const char *test);
MEMGATE_WEAK void memgate_test_end(const char *suite, const char *test, int outcome);
MEMGATE_WEAK void memgate_iteration(uint32_t iteration);
MEMGATE_WEAK void memgate_mark(const char *name);
MEMGATE_WEAK void memgate_settle(void);
MEMGATE_WEAK void memgate_get_malloc_leak_info(uint8_t **info, size_t *overall_size, size_t *info_size,
                                               size_t *total_memory, size_t *backtrace_size);
MEMGATE_WEAK void memgate_free_malloc_leak_info(uint8_t *info);

/* 1 if this process is recorded. 0 if it is not, or if the agent is not loaded. */
static inline int MemgateActive(void) { return memgate_active ? memgate_active() : 0; }

/* Start and end of a test. Reports show its suite and test name. The outcome is one of memgate_outcome. */
static inline void MemgateTestBegin(const char *suite, const char *test) {
  if (memgate_test_begin) memgate_test_begin(suite, test);
}
static inline void MemgateTestEnd(const char *suite, const char *test, int outcome) {
  if (memgate_test_end) memgate_test_end(suite, test, outcome);
}

/* The runner starts the given iteration of its selected tests, counted from 0. Growth is judged only if the program
 * runs its tests again and again in one process, because memgate cannot select or repeat them. */
static inline void MemgateIteration(uint32_t iteration) {
  if (memgate_iteration) memgate_iteration(iteration);
}

/* Marks a named point in time, which curves show. */
static inline void MemgateMark(const char *name) {
  if (memgate_mark) memgate_mark(name);
}

/* Waits at most 50 ms until other threads have stopped allocating and freeing. */
static inline void MemgateSettle(void) {
  if (memgate_settle) memgate_settle();
}

/* All live allocations, by the contract of bionic's get_malloc_leak_info: *overall_size / *info_size records of
 * {size_t size; size_t count; uintptr_t pcs[*backtrace_size]}, largest first, one for each size and stack.
 * *total_memory is the sum of size * count. Program counters are inside the call (the return address less one byte),
 * innermost first; unused ones are 0. Bit 31 of size marks allocations of a child of Android's zygote; it is never set
 * below 2 GiB. All five results are written, or none if any pointer is null. A null *info means that nothing is alive
 * or nothing is recorded. */
static inline void MemgateGetMallocLeakInfo(uint8_t **info, size_t *overall_size, size_t *info_size, size_t *total_memory,
                                            size_t *backtrace_size) {
  *info = NULL;
  *overall_size = *info_size = *total_memory = *backtrace_size = 0;
  if (memgate_get_malloc_leak_info)
    memgate_get_malloc_leak_info(info, overall_size, info_size, total_memory, backtrace_size);
}
static inline void MemgateFreeMallocLeakInfo(uint8_t *info) {
  if (memgate_free_malloc_leak_info) memgate_free_malloc_leak_info(info);
}

#ifdef __cplusplus
}
#endif
#endif
