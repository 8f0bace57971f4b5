// frames SECTION ROUNDS: allocates under the frames of one section and prints how many stacks the agent may cut, by
// reason.
#include "frames.h"

#include <alloca.h>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>
#include <vector>

volatile long expected[reasons];
volatile long planted;

void require(bool holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "frames: %s\n", what);
  _exit(3);
}

// Each case has its own return address; realloc and the aligned functions have their own hooks.
__attribute__((noinline)) void probe() {
  static thread_local unsigned turn;
  void* volatile p = nullptr;
  void* q = nullptr;
  switch (turn++ % 5) {
    case 0: p = malloc(turn % 300); break;
    case 1: p = calloc(turn % 7 + 1, 24); break;
    case 2: p = realloc(nullptr, 40); break;
    case 3: if (posix_memalign(&q, 64, 100) == 0) p = q; break;
    default: p = aligned_alloc(32, 96);
  }
  free(p);
}

__attribute__((noinline)) void probe_cut(Reason reason) {
  expected[reason] = expected[reason] + 1;
  probe();
}

static _Unwind_Reason_Code count(_Unwind_Context* context, void* frames) {
  // The entry after the root has address 0.
  if (_Unwind_GetIP(context) != 0) ++*static_cast<int*>(frames);
  return _URC_NO_REASON;
}

// Not counting its own frame.
__attribute__((noinline)) int depth() {
  int frames = 0;
  _Unwind_Backtrace(count, &frames);
  return frames - 1;
}

// ---- exceptions: thrown through frames whose destructors allocate, rethrown, nested, kept and thrown again

struct Guard {
  ~Guard() { probe(); }
};

struct Failure {
  int value;
  std::vector<int> baggage{1, 2, 3};
};

__attribute__((noinline)) static void fail_below(int levels) {
  Guard guard;
  std::string room(levels * 7 % 90, 'x');
  if (levels == 0) throw Failure{1};
  fail_below(levels - 1);
  probe();
}

__attribute__((noinline)) static void rethrow(int levels) {
  try {
    fail_below(levels % 9);
  } catch (Failure& failure) {
    probe();
    if (levels % 2) throw;
    throw std::to_string(failure.value);
  }
}

static void exceptions(int rounds) {
  for (int i = 0; i < rounds; i++) {
    std::exception_ptr kept;
    try {
      rethrow(i);
    } catch (Failure&) {
      kept = std::current_exception();
      probe();
    } catch (std::string& text) {
      probe();
      try {
        rethrow(i + 1);
      } catch (...) {
        probe();
      }
    }
    try {
      if (kept) std::rethrow_exception(kept);
    } catch (...) {
      probe();
    }
    probe();
  }
}

// ---- longjmp out of deep frames, then other frames at the same addresses

__attribute__((noinline)) static void dive(jmp_buf where, int levels, int kind) {
  volatile char room[200];
  room[levels % 200] = 1;
  probe();
  if (levels == room[0] - room[0]) longjmp(where, 1);
  thunks[(levels * 7 + kind) % thunk_count]([](unsigned) { probe(); }, levels);
  dive(where, levels - 1, kind);
  probe();
}

__attribute__((noinline)) static void left(Function f) { f(); probe(); }
__attribute__((noinline)) static void right(Function f) { f(); probe(); }

static void longjumps(int rounds) {
  for (volatile int i = 0; i < rounds; i++) {
    jmp_buf where;
    if (setjmp(where) == 0) dive(where, i % 40, i);
    // The same call with the same stack pointer, through functions with equal frame sizes.
    void (*const through[])(Function) = {left, right, rule_same};
    through[i % 3](probe);
    through[(i + i / 3) % 3](probe);
  }
}

// ---- frames of every size, and more frames than are kept

__attribute__((noinline)) static void variable(int bytes) {
  char* volatile room = static_cast<char*>(alloca(bytes + 1));
  room[bytes] = 1;
  probe();
  char more[bytes % 77 + 1];
  more[0] = room[bytes];
  asm volatile("" ::"r"(more) : "memory");
  if (bytes > 100) variable(bytes / 3);
  probe();
}

__attribute__((noinline)) static void large() {
  volatile char room[200000];
  room[0] = 1;
  probe();
  variable(int(40000 + room[0]));
}

// The compiler realigns the stack.
__attribute__((noinline)) static void realigned(int bytes) {
  alignas(64) volatile char wide[128];
  wide[bytes % 128] = 1;
  volatile char* room = static_cast<char*>(alloca(bytes + 1));
  room[bytes] = wide[0];
  probe();
  if (bytes > 500) realigned(bytes / 2);
  wide[1] = room[0];
}

static void sizes(int rounds) {
  for (int i = 0; i < rounds; i++) {
    variable(i % 3000);
    realigned(i * 7 % 5000);
    if (i % 8 == 0) large();
    if (i % 64 == 0) variable(1 << 20);
  }
}

// `frames`: number of frames on the stack, including this one. One more is recorded: probe's, the innermost.
__attribute__((noinline)) static void descend(int frames, int levels) {
  if (frames + 1 > 512) probe_cut(deep); else probe();
  if (levels > 0) descend(frames + 1, levels - 1);
  if (frames % 3 == 0 && frames + 1 <= 512) probe();
  asm volatile("" ::: "memory");
}

static void recursion(int rounds) {
  for (int i = 0; i < rounds; i++) descend(depth() + 1, 480 + i * 37 % 400);
}

// ---- trees of frames of all shapes; their random order sometimes repeats suffixes

static uint64_t dice = 88172645463325252;

static unsigned roll(unsigned sides) {
  dice ^= dice << 13;
  dice ^= dice >> 7;
  dice ^= dice << 17;
  return unsigned(dice >> 33) % sides;
}

__attribute__((noinline)) static void grow(unsigned levels) {
  probe();
  if (levels == 0) return;
  for (unsigned i = roll(3) + 1; i > 0; i--) {
    thunks[roll(unsigned(thunk_count))](grow, levels - 1);
    if (roll(2)) probe();
  }
}

static void shapes(int rounds) {
  for (int i = 0; i < rounds; i++) grow(roll(9));
  // The child writes its own figures.
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < rounds; i++) grow(roll(9));
    exit(0);
  }
  int status = -1;
  require(waitpid(child, &status, 0) == child && status == 0, "the child failed");
}

// ---- rules that are missing, lie, or are not followed

static void cut_no_rule() { probe_cut(no_rule); }
static void cut_exotic() { probe_cut(exotic); }
static void cut_bounds() { probe_cut(bounds); }

static void rules(int rounds) {
  for (int i = 0; i < rounds; i++) {
    rule_none(cut_no_rule);
    rule_data(cut_no_rule);
    rule_zero(probe);
    rule_skips(probe);
    rule_fake_rbp(cut_bounds);
    for (auto f : {rule_registers, rule_expression, rule_signal, rule_rip, rule_states, rule_rbx}) f(cut_exotic);
    for (auto f : {rule_drap, rule_far, rule_same, rule_long}) f(probe);
    probe();
  }
}

struct Section {
  const char* name;
  void (*run)(int rounds);
};

static const Section sections[] = {
    {"exceptions", exceptions}, {"longjumps", longjumps},   {"sizes", sizes},           {"recursion", recursion},
    {"shapes", shapes},         {"rules", rules},           {"signals", signals},       {"stepped", stepped},
    {"timers", timers},         {"coroutines", coroutines}, {"made_stacks", made_stacks}, {"edges", edges},
    {"threads", threads},       {"jit", jit},               {"reload", reload},         {"converters", converters},
    {"binding", binding},       {"plant", plant},
};

int main(int count, char** arguments) {
  for (const Section& section : sections) {
    if (count < 3 || strcmp(section.name, arguments[1]) != 0) continue;
    section.run(atoi(arguments[2]));
    printf("wrong %ld\ndeep %ld\nno_object %ld\nno_rule %ld\nexotic %ld\nbounds %ld\n", planted, expected[deep], expected[no_object],
           expected[no_rule], expected[exotic], expected[bounds]);
    return 0;
  }
  return 2;
}
