/* The hooks and the array of memgate_shadow.h.
 *
 * Data flow: a function is entered -> its frame pointer, its address and its return address are stored before those of
 * its caller -> a capture copies the return addresses. A frame belongs to the stack if the chain of frame pointers says
 * so: the word at a frame pointer is the caller's frame pointer, and the word after it is the return address. The hooks
 * compare these words with the stored values:
 *
 *   enter   If the caller is the newest frame, one comparison is enough. If it is an older one, the frames in between
 *           have ended (longjmp, an exception). If it is unknown, code without hooks is in between, or the thread is on
 *           another stack; then a frame stays only if its words in memory are the stored ones, and a mark shows where
 *           the proof ends.
 *   exit    The frame and all newer ones are removed. An unknown frame is ignored.
 *   capture Like enter, without adding a frame.
 *
 * Where another stack begins, or where a frame is not proven, the array contains a mark (a frame whose address is 1).
 * Captures end there. The mark is removed with the frame on top of it.
 *
 * Not detected: longjmp in a shared library over functions with hooks. Frames that it leaves are recognized by their
 * words in memory, which alloca can keep from being overwritten.
 *
 * The array is mapped when a thread enters its first function and unmapped at its end. This file is compiled without
 * the hooks.
 */
#define _GNU_SOURCE
#include "memgate_shadow.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define HOOK __attribute__((no_instrument_function, visibility("default")))
#define OWN static __attribute__((no_instrument_function))
#define FAST static inline __attribute__((always_inline, no_instrument_function))
#define COLD __attribute__((noinline, cold))
#define LIKELY(condition) __builtin_expect(!!(condition), 1)

enum { FRAMES = MEMGATE_SHADOW_FRAMES };
#define MARK ((void *)1)
/* Without bounds (a coroutine's stack), this is the largest accepted frame. Memory beyond it is not read. */
enum { LARGEST_FRAME = 64 << 10 };
/* Maximum number of unknown frames between two known ones. */
enum { MOST_LINKED = 8 };

typedef struct {
  uintptr_t frame; /* frame pointer; 0 for a mark */
  void *function;  /* for a mark: not NULL if frames below it may have ended */
  int inlined;     /* number of calls of the function that are inlined into itself */
  int floor;       /* place of the newest mark from here outwards; FRAMES: none */
} Proof;

typedef struct {
  int top;             /* place of the innermost frame; FRAMES: none */
  int too_deep;        /* number of functions without room in the array */
  int is_busy;         /* a hook is in the middle of a change: signal handlers change nothing */
  int jumped;          /* frames on top may have ended: a longjmp was seen */
  uintptr_t low, high; /* the thread's own stack */
  void *sites[FRAMES]; /* return addresses */
  Proof proofs[FRAMES];
} Shadow;

static pthread_key_t key;
static int has_key;
/* Code with the hooks but without frame pointers was found: from then on no frame is proven. */
static volatile int lacks_frames;

/* bionic's emulated thread-local variables allocate; its thread keys do not. */
#if defined(__ANDROID__)
FAST Shadow *own(void) { return has_key ? pthread_getspecific(key) : NULL; }
OWN void set_own(Shadow *shadow) { (void)shadow; }
#else
static __thread Shadow *own_shadow __attribute__((tls_model("initial-exec")));
FAST Shadow *own(void) { return own_shadow; }
OWN void set_own(Shadow *shadow) { own_shadow = shadow; }
#endif

OWN void thread_ends(void *shadow) {
  set_own(NULL);
  munmap(shadow, sizeof(Shadow));
}

OWN void bounds_of_thread(Shadow *shadow) {
  pthread_attr_t attributes;
  void *low;
  size_t size;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  if (pthread_attr_getstack(&attributes, &low, &size) == 0) {
    shadow->low = (uintptr_t)low;
    shadow->high = (uintptr_t)low + size;
  }
  pthread_attr_destroy(&attributes);
}

/* NULL: no memory, or called before the first constructor. */
OWN COLD Shadow *thread_begins(void) {
  if (!has_key) return NULL;
  void *memory = mmap(NULL, sizeof(Shadow), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  Shadow *made = memory;
  made->top = FRAMES;
  /* Set before any call that may enter this function again: an allocator may be compiled with the hooks. */
  set_own(made);
  if (pthread_setspecific(key, made) != 0) {
    set_own(NULL);
    munmap(made, sizeof(Shadow));
    return NULL;
  }
  bounds_of_thread(made);
  return made;
}

/* May code at `here` read the two words at `frame`? Frames lie further out and are aligned. */
FAST int readable(const Shadow *shadow, uintptr_t frame, uintptr_t here) {
  if (frame <= here || frame % (2 * sizeof(void *)) != 0) return 0;
  if (LIKELY(here >= shadow->low && here < shadow->high)) return frame < shadow->high - sizeof(void *);
  return frame - here < LARGEST_FRAME;
}

FAST uintptr_t caller_of(uintptr_t frame) { return ((const uintptr_t *)frame)[0]; }

FAST void *return_of(uintptr_t frame) {
#if defined(__aarch64__)
  /* Removes the signature of signed return addresses (xpaclri, which does nothing on other processors). */
  register void *site __asm__("x30") = ((void *const *)frame)[1];
  __asm__("hint #7" : "+r"(site));
  return site;
#else
  return ((void *const *)frame)[1];
#endif
}

/* Does memory still contain the frame at this place, seen from code at `here`? */
FAST int is_there(const Shadow *shadow, int place, uintptr_t here) {
  uintptr_t frame = shadow->proofs[place].frame;
  return readable(shadow, frame, here) && return_of(frame) == shadow->sites[place];
}

FAST int is_mark(const Shadow *shadow, int place) { return shadow->sites[place] == MARK; }

FAST int in_thread(const Shadow *shadow, uintptr_t address) { return address >= shadow->low && address < shadow->high; }

FAST int floor_of(const Shadow *shadow, int top) { return top < FRAMES ? shadow->proofs[top].floor : FRAMES; }

FAST void set_top(Shadow *shadow, int top) {
  /* A signal handler of this thread sees only complete frames. */
  __asm__ volatile("" ::: "memory");
  shadow->top = top;
  __asm__ volatile("" ::: "memory");
}

/* Puts a frame on top of the frame at `top`, whatever a signal handler has done since `top` was read. */
FAST void put(Shadow *shadow, int top, void *site, uintptr_t frame, void *function) {
  int place = top - 1;
  shadow->sites[place] = site;
  shadow->proofs[place] = (Proof){frame, function, 0, site == MARK ? place : floor_of(shadow, top)};
  set_top(shadow, place);
}

OWN COLD void put_mark(Shadow *shadow) {
  put(shadow, shadow->top, MARK, 0, shadow->jumped ? MARK : NULL);
  shadow->jumped = 0;
}

/* Removes the frames that are newer than `place`. */
OWN COLD void end_newer(Shadow *shadow, int place) {
  for (int mark = floor_of(shadow, shadow->top); mark < place; mark = floor_of(shadow, mark + 1))
    shadow->jumped = shadow->proofs[mark].function != NULL;
  shadow->too_deep = 0;
  set_top(shadow, place);
}

/* Removes the frame, all newer ones, and the mark below it. */
OWN COLD void end(Shadow *shadow, int place) {
  int below = place + 1;
  end_newer(shadow, below < FRAMES && is_mark(shadow, below) ? below + 1 : below);
}

/* Place of the frame with this frame pointer, seen from code at `here`; -1: none. */
OWN COLD int find(const Shadow *shadow, uintptr_t frame, uintptr_t here) {
  for (int place = shadow->top; place < FRAMES; place++) {
    if (!is_mark(shadow, place) && shadow->proofs[place].frame == frame) return is_there(shadow, place, here) ? place : -1;
  }
  return -1;
}

/* For code at `here` that is called by code without hooks. Removes the frames that have ended. 1: the newest one is
 * proven to be further out on the same stack. */
OWN COLD int settle(Shadow *shadow, uintptr_t here) {
  int top = shadow->top;
  if (top == FRAMES) return 1;
  if (is_mark(shadow, top) || !in_thread(shadow, here) || !in_thread(shadow, shadow->proofs[top].frame)) return 0;
  int jumped = shadow->jumped;
  /* From the outermost frame inward: a frame that was put on an ended frame has ended as well. */
  int place = floor_of(shadow, top);
  while (place > top && is_there(shadow, place - 1, here)) place--;
  if (place > top) end_newer(shadow, place);
  return !jumped;
}

/* For an unknown frame whose caller, or a caller further out, is known: code without hooks that keeps frame
 * pointers, such as a part that the compiler split off a function. The frame and those in between are added. 0: not
 * possible. */
OWN COLD int link(Shadow *shadow, uintptr_t frame, uintptr_t here) {
  uintptr_t unknown[MOST_LINKED];
  for (int count = 0; count < MOST_LINKED && in_thread(shadow, here) && readable(shadow, frame, here); count++) {
    unknown[count] = frame;
    here = frame;
    frame = caller_of(frame);
    int place = find(shadow, frame, here);
    if (place < 0) continue;
    if (place > shadow->top) end_newer(shadow, place);
    if (shadow->top < count + 3) return 0;
    for (; count >= 0; count--) put(shadow, shadow->top, return_of(unknown[count]), unknown[count], NULL);
    return 1;
  }
  return 0;
}

/* Makes the frame with this frame pointer the newest one. Code at `here` runs in it or was called from it. 1: it is
 * proven. */
OWN COLD int resynchronise(Shadow *shadow, uintptr_t frame, uintptr_t here) {
  int place = find(shadow, frame, here);
  if (place >= 0) {
    if (place > shadow->top) end_newer(shadow, place);
  } else if (!link(shadow, frame, here)) {
    return settle(shadow, here);
  }
  shadow->jumped = 0;
  return 1;
}

/* The unusual cases: another caller than the newest frame, no room, no frame pointer. */
OWN COLD void enter_slowly(Shadow *shadow, void *function, void *site, uintptr_t frame, uintptr_t here) {
  /* Room for a mark and a frame. */
  if (shadow->too_deep || shadow->top < 2) {
    shadow->too_deep++;
    return;
  }
  if (!readable(shadow, frame, here) || return_of(frame) != site) {
    if (in_thread(shadow, here)) lacks_frames = 1;
    if (shadow->top == FRAMES || !is_mark(shadow, shadow->top)) put_mark(shadow);
    return;
  }
  if (!resynchronise(shadow, caller_of(frame), frame)) put_mark(shadow);
  put(shadow, shadow->top, site, frame, function);
}

OWN COLD void exit_slowly(Shadow *shadow, void *function, uintptr_t frame) {
  int top = shadow->top;
  if (shadow->too_deep && top < FRAMES && frame < shadow->proofs[top].frame) {
    shadow->too_deep--;
    return;
  }
  for (int place = top; place < FRAMES; place++) {
    if (is_mark(shadow, place) || shadow->proofs[place].frame != frame || shadow->proofs[place].function != function) continue;
    end_newer(shadow, place);
    shadow->jumped = 0;
    end(shadow, place);
    return;
  }
}

FAST void busy(Shadow *shadow, int is_busy) {
  __asm__ volatile("" ::: "memory");
  shadow->is_busy = is_busy;
  __asm__ volatile("" ::: "memory");
}

HOOK void __cyg_profile_func_enter(void *function, void *site) {
  uintptr_t frame = (uintptr_t)__builtin_frame_address(1);
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  Shadow *shadow = own();
  if (__builtin_expect(!shadow, 0) && !(shadow = thread_begins())) return;
  int top = shadow->top;
  if (LIKELY((unsigned)top - 2 < FRAMES - 2 && !(shadow->too_deep | shadow->is_busy) && frame - here < LARGEST_FRAME &&
             frame % (2 * sizeof(void *)) == 0 && return_of(frame) == site)) {
    Proof *newest = &shadow->proofs[top];
    uintptr_t caller = caller_of(frame);
    if (LIKELY(caller == newest->frame && caller > frame && return_of(caller) == shadow->sites[top])) {
      put(shadow, top, site, frame, function);
      return;
    }
    /* Inlined into the function on top, whose frame represents it. */
    if (newest->frame == frame && shadow->sites[top] == site) {
      newest->inlined += newest->function == function;
      return;
    }
  }
  if (shadow->is_busy) return;
  busy(shadow, 1);
  enter_slowly(shadow, function, site, frame, here);
  busy(shadow, 0);
}

HOOK void __cyg_profile_func_exit(void *function, void *site) {
  (void)site;
  uintptr_t frame = (uintptr_t)__builtin_frame_address(1);
  Shadow *shadow = own();
  if (!shadow || shadow->is_busy) return;
  int top = shadow->top;
  if (LIKELY(top < FRAMES && shadow->proofs[top].frame == frame && !is_mark(shadow, top))) {
    Proof *newest = &shadow->proofs[top];
    if (newest->function != function) return;
    if (newest->inlined > 0) {
      newest->inlined--;
      return;
    }
    if (LIKELY(top + 1 == FRAMES || !is_mark(shadow, top + 1))) {
      set_top(shadow, top + 1);
      return;
    }
  }
  busy(shadow, 1);
  exit_slowly(shadow, function, frame);
  busy(shadow, 0);
}

/* Copies the return addresses of the frames that are proven for code at `here` with this frame pointer. *is_cut:
 * others may be missing. */
FAST int copy(uintptr_t frame, uintptr_t here, void **frames, int most, int *is_cut) {
  Shadow *shadow = own();
  *is_cut = 0;
  if (!shadow || shadow->top == FRAMES) return 0;
  int top = shadow->top;
  if (shadow->too_deep | shadow->is_busy | lacks_frames) {
    *is_cut = 1;
    return 0;
  }
  if (!LIKELY(frame == shadow->proofs[top].frame && is_there(shadow, top, here))) {
    busy(shadow, 1);
    int is_proven = resynchronise(shadow, frame, here);
    busy(shadow, 0);
    if (!is_proven) {
      *is_cut = 1;
      return 0;
    }
    top = shadow->top;
  }
  int floor = floor_of(shadow, top);
  int known = floor - top;
  *is_cut = floor < FRAMES || known > most;
  if (known > most) known = most;
  memcpy(frames, &shadow->sites[top], (size_t)known * sizeof *frames);
  return known;
}

HOOK int memgate_shadow_backtrace(void **frames, int most, int *is_cut) {
  if (most < 1) return 0;
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  int known = copy((uintptr_t)__builtin_frame_address(1), here, frames + 1, most - 1, is_cut);
  if (known == 0 && !*is_cut) return 0;
  frames[0] = return_of(here);
  return known + 1;
}

HOOK int get_tls_backtrace(void **frames, int most) {
  int is_cut;
  if (most < 1) return 0;
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  int known = copy((uintptr_t)__builtin_frame_address(1), here, frames + 1, most - 1, &is_cut);
  if (known == 0 && !is_cut) return 0;
  frames[0] = return_of(here);
  return known + 1;
}

/* For memgate's agent: the stack at a call with this return address, stack pointer and frame pointer. A cut stack
 * ends with the address 1. 0: nothing is known about this thread. */
OWN int stack_for_agent(uintptr_t pc, uintptr_t sp, uintptr_t frame, void **frames, int most) {
  int is_cut;
  if (most < 2) return 0;
  int known = copy(frame, sp, frames + 1, most - 2, &is_cut);
  if (known == 0 && !is_cut) return 0;
  frames[0] = (void *)pc;
  if (is_cut) frames[++known] = MARK;
  return known + 1;
}

/* Defined by the agent, if it is loaded. */
__attribute__((weak)) void memgate_set_shadow_stack(int (*stack)(uintptr_t, uintptr_t, uintptr_t, void **, int));

__attribute__((constructor(101))) OWN void begin(void) {
  has_key = pthread_key_create(&key, thread_ends) == 0;
  if (has_key && memgate_set_shadow_stack) memgate_set_shadow_stack(stack_for_agent);
}

__attribute__((destructor(101))) OWN void finish(void) {
  if (memgate_set_shadow_stack) memgate_set_shadow_stack(NULL);
}

/* The linker puts these functions before the program's own jumps (-Wl,--wrap): functions that a jump ends have no
 * exit. */
OWN void jumps(void) {
  Shadow *shadow = own();
  if (!shadow) return;
  /* A jump out of a signal handler that interrupted a hook: the state of the hook's change is unknown. */
  if (shadow->is_busy) {
    shadow->top = FRAMES;
    shadow->is_busy = shadow->too_deep = 0;
    put_mark(shadow);
  }
  shadow->jumped = 1;
}

#define WRAPPED_JUMP(name)                                                    \
  __attribute__((noreturn)) void __real_##name(void *where, int value);       \
  __attribute__((noreturn)) HOOK void __wrap_##name(void *where, int value) { \
    jumps();                                                                  \
    __real_##name(where, value);                                              \
  }
#if defined(MEMGATE_SHADOW_WRAPS)
WRAPPED_JUMP(longjmp)
WRAPPED_JUMP(siglongjmp)
WRAPPED_JUMP(_longjmp)
#endif
