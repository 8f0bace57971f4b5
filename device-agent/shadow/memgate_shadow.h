/* A shadow call stack: the stack of the calling thread in one copy, without an unwinder and without unwind tables.
 *
 * The compiler calls a hook at the start and at the end of each function (-finstrument-functions). The hooks keep the
 * thread's return addresses in its own array, which is filled from its end: the innermost frame comes first, as in
 * backtrace(). docs/shadow-stack.md describes the compile flags, the costs, and what such a stack cannot contain.
 *
 * A stack is never guessed. If exceptions, longjmp or coroutines left a frame that cannot be proven, the stack ends
 * before that frame and is marked as cut. All functions may be called in signal handlers and from an allocator: they
 * take no lock and allocate nothing.
 */
#ifndef MEMGATE_SHADOW_H
#define MEMGATE_SHADOW_H

#ifdef __cplusplus
extern "C" {
#endif

/* Deeper stacks are cut. */
enum { MEMGATE_SHADOW_FRAMES = 1024 };

/* Writes at most `most` return addresses, innermost first, and returns their number. The first one is in the caller of
 * this function. Returns 0 if nothing is known about this thread. */
int get_tls_backtrace(void **frames, int most);

/* Like get_tls_backtrace. *is_cut is 1 if frames are missing at the root, because they could not be proven or did not
 * fit. If it is 0, only frames of code that was compiled without the hooks are missing. */
int memgate_shadow_backtrace(void **frames, int most, int *is_cut);

#ifdef __cplusplus
}
#endif
#endif
