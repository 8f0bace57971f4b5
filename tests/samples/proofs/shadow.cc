// Proves the shadow call stack (device-agent/shadow): each of its stacks is compared with the system unwinder's.
//
// All functions here except those of `nothook` are compiled with the hooks and with frame pointers. Each frame stands
// for one return address, that of its caller. A stack that is not cut must contain all of these in the unwinder's
// order, and nothing that the unwinder does not find. A stack that is cut must be the beginning of such a stack.
//
// shadow SECTION ROUNDS prints: captures, how many were cut, how many were wrong. `plant` makes some stacks wrong, to
// prove that they are noticed.
#include "memgate_shadow.h"

#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#define NOT_HOOKED __attribute__((no_instrument_function, section("nothook")))
#define NOINLINE __attribute__((noinline))
#define INLINED inline __attribute__((always_inline))

extern "C" char __executable_start, etext, __start_nothook, __stop_nothook;
extern "C" void _start();

static std::atomic<long> captures, cut_ones, wrong_ones;
static int plants = 0;

struct Walk {
  void *all[4096];
  bool expected[4096];
  int count = 0;
  int skip = 1;
  int may_begin = 0;
  bool is_ours = false;
};

enum { MOST = 2048, LEVELS = 8 };
// A signal handler that interrupts a capture uses the next level.
static thread_local int level = 0;
static thread_local Walk walks[LEVELS];
static thread_local void *captured[LEVELS][MOST];

NOT_HOOKED static bool is_ours(uintptr_t pc) {
  auto lies = [pc](const void *from, const void *to) NOT_HOOKED {
    return pc >= reinterpret_cast<uintptr_t>(from) && pc < reinterpret_cast<uintptr_t>(to);
  };
  auto start = reinterpret_cast<const char *>(&_start);
  return lies(&__executable_start, &etext) && !lies(&__start_nothook, &__stop_nothook) && !lies(start, start + 64);
}

NOT_HOOKED static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *data) {
  auto walk = static_cast<Walk *>(data);
  int is_interrupted = 0;
  auto pc = _Unwind_GetIPInfo(context, &is_interrupted);
  if (walk->skip > 0) {
    walk->skip--;
    return _URC_NO_REASON;
  }
  if (walk->count < 4096) {
    walk->expected[walk->count] = walk->is_ours;
    walk->all[walk->count++] = reinterpret_cast<void *>(pc);
  }
  // A signal may interrupt the entry or exit of a function, outside of the part between the hooks, or a hook that the
  // function calls.
  if (is_interrupted) walk->may_begin = 2;
  walk->is_ours = is_ours(pc) && walk->may_begin == 0;
  if (walk->may_begin > 0) walk->may_begin--;
  return _URC_NO_REASON;
}

static thread_local bool reached[LEVELS][MOST + 1];

// Do the frames occur in the unwinder's order, with every expected one? The first frame is another call of the same
// function. A recursion has many equal frames: if the first match fails, all matches are tried.
NOT_HOOKED static bool fits(void **frames, int count, int is_cut, const Walk &walk) {
  if (count < 1) return false;
  int taken = 1;
  bool is_simple = true;
  for (int i = 1; is_simple && i < walk.count && (taken < count || !is_cut); i++) {
    if (taken < count && frames[taken] == walk.all[i])
      taken++;
    else
      is_simple = !walk.expected[i];
  }
  if (is_simple && taken == count) return true;
  bool *at = reached[level];
  memset(at, 0, sizeof reached[level]);
  at[1] = true;
  for (int i = 1; i < walk.count && !(is_cut && at[count]); i++)
    for (int next = count; next >= 1; next--)
      at[next] = (at[next] && !walk.expected[i]) || (next > 1 && at[next - 1] && frames[next - 1] == walk.all[i]);
  return at[count];
}

// Called from a macro, so that the capture starts at the caller's own frame.
NOT_HOOKED NOINLINE static void judge(void **frames, int count, int is_cut) {
  Walk &walk = walks[level];
  walk = Walk();
  _Unwind_Backtrace(step, &walk);
  captures++;
  if (is_cut) cut_ones++;
  if (plants > 0 && count > 2) {
    plants--;
    frames[2] = frames[1];
  }
  if (fits(frames, count, is_cut, walk)) return;
  if (wrong_ones++ > 2) return;
  fprintf(stderr, "wrong (%s, %d frames, the unwinder has %d):\n", is_cut ? "cut" : "whole", count, walk.count);
  for (int i = 0; i < std::max(count, walk.count) && i < 20; i++)
    fprintf(stderr, "  %p %p%s\n", i < count ? frames[i] : nullptr, i < walk.count ? walk.all[i] : nullptr, i < walk.count && walk.expected[i] ? " ours" : "");
}

#define CAPTURE()                                                               \
  do {                                                                          \
    level++;                                                                    \
    int is_cut_ = 0;                                                            \
    int count_ = memgate_shadow_backtrace(captured[level], MOST, &is_cut_);     \
    judge(captured[level], count_, is_cut_);                                    \
    level--;                                                                    \
  } while (0)

// Like an allocator: called by code without hooks that uses the frame pointer's register for something else.
extern "C" int through_other_code(int (*work)(int), int n);
__asm__(R"(
.pushsection nothook, "ax", @progbits
.type through_other_code, @function
through_other_code:
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  lea (%rsi,%rsi,2), %ebp
  mov %rdi, %rax
  mov %esi, %edi
  call *%rax
  add %ebp, %eax
  pop %rbp
  .cfi_def_cfa_offset 8
  .cfi_restore %rbp
  ret
  .cfi_endproc
.popsection
)");
NOINLINE static int captures_here(int n) {
  CAPTURE();
  return n + 1;
}

static unsigned long seed = 88172645463325252UL;
NOT_HOOKED static unsigned long draw(unsigned long below) {
  seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
  return seed % below;
}

// ---- exceptions

struct Guard {
  NOINLINE ~Guard() { CAPTURE(); }
};
NOINLINE static int throws(int depth) {
  Guard guard;
  volatile char room[64];
  room[0] = static_cast<char>(depth);
  if (depth == 0) {
    CAPTURE();
    throw std::runtime_error("planned");
  }
  int got = throws(depth - 1) + room[0];
  return got + 1;
}
NOINLINE static int catches(int depth) {
  try {
    return throws(static_cast<int>(draw(12))) + 1;
  } catch (const std::exception &) {
    CAPTURE();
    through_other_code(captures_here, depth);
    if (draw(3) == 0) {
      try {
        throws(static_cast<int>(draw(5)));
      } catch (...) {
        CAPTURE();
      }
    }
    delete new std::string(100, 'x');
    CAPTURE();
    if (depth > 0 && draw(2)) throw;
  }
  CAPTURE();
  return depth;
}
NOINLINE static int rethrows(int depth) {
  try {
    return depth > 0 ? rethrows(depth - 1) + 1 : catches(1);
  } catch (...) {
    CAPTURE();
    if (draw(2)) throw std::logic_error("another");
  }
  return through_other_code(captures_here, 2);
}
static void exceptions() {
  try {
    rethrows(static_cast<int>(draw(6)));
  } catch (...) {
    CAPTURE();
  }
  CAPTURE();
}

// ---- longjmp

static thread_local jmp_buf back;
NOINLINE static void jumps(int depth) {
  volatile char room[48];
  room[0] = 1;
  if (draw(3) == 0) CAPTURE();
  if (depth == 0) longjmp(back, 1);
  jumps(depth - 1);
  room[1] = room[0];
}
NOINLINE static void jumps_once() { longjmp(back, 1); }
NOINLINE static int comes_back(int n) {
  volatile int turns = n;
  if (setjmp(back) == 0) {
    if (draw(2)) jumps_once();
    jumps(static_cast<int>(draw(9)));
  }
  if (draw(2)) {
    volatile char *room = static_cast<volatile char *>(alloca(64 + draw(900)));
    room[0] = 1;
    through_other_code(captures_here, n);
    CAPTURE();
  }
  if (draw(2)) CAPTURE();
  if (draw(2)) through_other_code(captures_here, n);
  if (draw(2)) captures_here(n);
  CAPTURE();
  if (turns > 0) comes_back(turns - 1);
  CAPTURE();
  return turns;
}
static void longjumps() {
  comes_back(3);
  CAPTURE();
}

// ---- coroutines on separate stacks, which are unmapped while their frames are known

struct Coroutine {
  ucontext_t own, other;
  char *stack;
  bool is_over;
};
static thread_local Coroutine *now;
NOT_HOOKED static void yields() { swapcontext(&now->own, &now->other); }
NOINLINE static int inside(int depth) {
  CAPTURE();
  if (depth > 0) {
    int got = inside(depth - 1);
    if (draw(2)) yields();
    CAPTURE();
    return got + 1;
  }
  yields();
  CAPTURE();
  through_other_code(captures_here, 1);
  return 1;
}
static void begins() {
  inside(static_cast<int>(draw(8)));
  CAPTURE();
  now->is_over = true;
  yields();
}
enum { COROUTINE_BYTES = 64 << 10 };
NOINLINE static void resumes(Coroutine &coroutine) {
  now = &coroutine;
  swapcontext(&coroutine.other, &coroutine.own);
  CAPTURE();
  through_other_code(captures_here, 3);
}
static void coroutines() {
  Coroutine all[3];
  for (auto &coroutine : all) {
    coroutine.is_over = false;
    coroutine.stack = static_cast<char *>(mmap(nullptr, COROUTINE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    getcontext(&coroutine.own);
    coroutine.own.uc_stack.ss_sp = coroutine.stack;
    coroutine.own.uc_stack.ss_size = COROUTINE_BYTES;
    coroutine.own.uc_link = nullptr;
    makecontext(&coroutine.own, begins, 0);
  }
  for (int i = 0; i < 24; i++) {
    auto &coroutine = all[draw(3)];
    if (!coroutine.is_over) resumes(coroutine);
    captures_here(i);
  }
  // Some coroutines have not finished: nothing reports the end of their frames.
  for (auto &coroutine : all) munmap(coroutine.stack, COROUTINE_BYTES);
  CAPTURE();
  captures_here(1);
}

// ---- recursion beyond the available room, inlined functions, code without hooks in between

NOINLINE static int deep(int depth) {
  if (depth % 97 == 0) CAPTURE();
  return depth > 0 ? deep(depth - 1) + 1 : 0;
}
static void recursion() {
  deep(500);
  deep(1500);
  CAPTURE();
  if (setjmp(back) == 0) jumps(1200);
  captures_here(1);
  CAPTURE();
}
static INLINED int inner(int n) {
  CAPTURE();
  return n + 1;
}
static INLINED int outer(int n) { return inner(n) + inner(n + 1); }
static int folds(int n) { return n <= 0 ? captures_here(n) : folds(n - 1) + folds(n - 2) + 1; }
NOINLINE static int tail(int n) { return captures_here(n); }
NOINLINE static int lowers_its_stack(int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) {
    volatile char *room = static_cast<volatile char *>(alloca(16 + draw(300)));
    room[0] = 1;
    sum += captures_here(i) + through_other_code(captures_here, i);
    CAPTURE();
  }
  return sum;
}
static int compare(const void *a, const void *b) {
  if (draw(8) == 0) CAPTURE();
  return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}
static void shapes() {
  outer(1);
  folds(6);
  tail(2);
  lowers_its_stack(5);
  int values[40];
  for (int &value : values) value = static_cast<int>(draw(1000));
  qsort(values, 40, sizeof *values, compare);
  std::function<int(int)> call = [&](int n) { return n > 0 ? call(n - 1) : captures_here(n); };
  call(5);
  std::vector<int> some(20, 3);
  std::for_each(some.begin(), some.end(), [](int n) { captures_here(n); });
  through_other_code(tail, 4);
  CAPTURE();
}

// ---- signals at any moment, on the same stack and on another one

static void on_signal(int) { captures_here(1); }
static void signals() {
  stack_t other = {};
  static char room[256 << 10];
  other.ss_sp = room;
  other.ss_size = sizeof room;
  sigaltstack(&other, nullptr);
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = draw(2) ? SA_RESTART : SA_RESTART | SA_ONSTACK;
  sigaction(SIGALRM, &action, nullptr);
  struct itimerval every = {{0, 150}, {0, 150}};
  setitimer(ITIMER_REAL, &every, nullptr);
  for (int i = 0; i < 20; i++) {
    folds(7);
    shapes();
  }
  struct itimerval never = {};
  setitimer(ITIMER_REAL, &never, nullptr);
}

// ---- threads that end in the middle

static pthread_key_t at_end;
static void ends(void *) { captures_here(1); }
static void *thread(void *) {
  pthread_setspecific(at_end, &at_end);
  for (int i = 0; i < 3; i++) {
    shapes();
    exceptions();
    longjumps();
  }
  if (draw(2)) pthread_exit(nullptr);
  return nullptr;
}
static void threads() {
  pthread_t all[8];
  for (auto &one : all) pthread_create(&one, nullptr, thread, nullptr);
  for (auto &one : all) pthread_join(one, nullptr);
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  pthread_key_create(&at_end, ends);
  const struct {
    const char *name;
    void (*work)();
  } sections[] = {{"exceptions", exceptions}, {"longjumps", longjumps}, {"coroutines", coroutines}, {"recursion", recursion},
                  {"shapes", shapes},         {"signals", signals},     {"threads", threads},       {"plant", shapes}};
  bool is_planted = strcmp(argv[1], "plant") == 0;
  if (is_planted) plants = 3;
  for (auto &section : sections)
    if (strcmp(argv[1], section.name) == 0)
      for (long i = 0; i < atol(argv[2]); i++) section.work();
  printf("%ld captures, %ld cut, %ld wrong\n", captures.load(), cut_ones.load(), wrong_ones.load());
  return captures == 0 || (wrong_ones != 0) != is_planted;
}
