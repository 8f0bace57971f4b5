// Other stacks: signal handlers, single steps, coroutines, threads, hand-made stacks.
#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include "frames.h"

static char* map(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(at != MAP_FAILED, "mmap");
  return static_cast<char*>(at);
}

static void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  require(sigaction(signal, &action, nullptr) == 0, "sigaction");
}

// ---- handlers that allocate, on the same and on another stack, nested

static volatile int nested;

static void on_signal(int signal) {
  probe();
  if (nested < 6) {
    nested = nested + 1;
    raise(signal == SIGUSR1 ? SIGUSR2 : SIGUSR1);
    nested = nested - 1;
  }
  probe();
}

static void on_bare_signal(int) { probe_cut(exotic); }

__attribute__((noinline)) static void raise_below(unsigned levels) {
  if (levels == 0) raise(SIGUSR1);
  else thunks[levels % thunk_count](raise_below, levels - 1);
  probe();
}

// The kernel's own structure: a C library would replace our restorer.
struct KernelAction {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  unsigned long mask;
};

void signals(int rounds) {
  stack_t other = {};
  other.ss_size = 256 << 10;
  other.ss_sp = map(other.ss_size);
  require(sigaltstack(&other, nullptr) == 0, "sigaltstack");
#ifdef __x86_64__
  const unsigned long sa_restorer = 0x04000000;
  KernelAction bare = {on_bare_signal, sa_restorer, bare_restorer, 0};
  require(syscall(SYS_rt_sigaction, SIGWINCH, &bare, nullptr, 8) == 0, "rt_sigaction");
#else
  // There is only the kernel's signal return, which has no unwind rules.
  handle(SIGWINCH, [](int) { probe(); }, 0);
#endif
  for (int i = 0; i < rounds; i++) {
    handle(SIGUSR1, on_signal, SA_NODEFER | (i % 2 ? SA_ONSTACK : 0));
    handle(SIGUSR2, on_signal, SA_NODEFER | (i % 4 > 1 ? SA_ONSTACK : 0));
    raise_below(i % 40);
    raise(SIGWINCH);
  }
}

// ---- a signal after each instruction of frames of all shapes, including function entry and exit

static long steps;

static void on_step(int, siginfo_t*, void* context) {
  const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#ifdef __x86_64__
  auto* at = reinterpret_cast<const char*>(registers.gregs[REG_RIP]);
#else
  auto* at = reinterpret_cast<const char*>(registers.pc);
#endif
  bool in_r10 = (at >= drap_begin && at < drap_end) || (at >= drap_leaves && at < drap_left);
  if (in_r10) probe_cut(exotic); else probe();
  steps++;
}

static void nothing() { asm volatile(""); }
static void nothing_with(unsigned) { asm volatile(""); }

__attribute__((noinline)) static void step_through(Function inner, size_t thunk) {
  // Bound now, so that the single steps do not go through the loader.
  getppid();
  steps_on();
  rule_drap(inner);
  rule_same(inner);
  // Of the functions that realign the stack, only rule_drap marks the instructions where the CFA is in r10.
  auto* at = thunks + thunk;
  if (at < thunks_realigned || at >= thunks_realigned_end) (*at)(nothing_with, 3);
  getppid();
  steps_off();
}

void stepped(int rounds) {
  struct sigaction action = {};
  action.sa_sigaction = on_step;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  stack_t other = {};
  other.ss_size = 256 << 10;
  other.ss_sp = map(other.ss_size);
  require(sigaltstack(&other, nullptr) == 0, "sigaltstack");
  require(sigaction(SIGTRAP, &action, nullptr) == 0, "sigaction");
  for (int i = 0; i < rounds; i++) step_through(nothing, i % thunk_count);
  require(steps > rounds * 20, "no single steps");
}

// ---- a timer that interrupts anywhere except in the allocator

static volatile long ticks;
static void on_tick(int) {
  probe();
  ticks = ticks + 1;
}

__attribute__((noinline)) static unsigned busy(unsigned levels, unsigned seed) {
  for (int i = 0; i < 200; i++) seed = seed * 1664525 + 1013904223;
  if (levels == 0) return seed;
  char text[64];
  memset(text, int(seed & 0x7f), sizeof text);
  return busy(levels - 1, seed) + unsigned(strnlen(text, sizeof text));
}

void timers(int rounds) {
  handle(SIGPROF, on_tick, SA_RESTART);
  itimerval every = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_PROF, &every, nullptr);
  volatile unsigned sum = 0;
  while (ticks < rounds) sum = sum + busy(unsigned(ticks % 50), sum);
  itimerval never = {};
  setitimer(ITIMER_PROF, &never, nullptr);
}

// ---- coroutines on stacks that are mapped and unmapped

static ucontext_t scheduler, contexts[16];

static void coroutine(int id) {
  for (int i = 0; i < 4; i++) {
    probe();
    thunks[(id + i) % 7]([](unsigned) { probe(); }, unsigned(i));
    swapcontext(&contexts[id], &scheduler);
  }
}

void coroutines(int rounds) {
  for (volatile int round = 0; round < rounds; round = round + 1) {
    char* stacks[16];
    auto bytes = [&](int i) { return size_t(i + round) % 2 ? 8192 : 65536; };
    for (int i = 0; i < 16; i++) {
      stacks[i] = map(bytes(i));
      getcontext(&contexts[i]);
      contexts[i].uc_stack.ss_sp = stacks[i];
      contexts[i].uc_stack.ss_size = bytes(i);
      contexts[i].uc_link = &scheduler;
      makecontext(&contexts[i], reinterpret_cast<Function>(coroutine), 1, i);
    }
    for (int turn = 0; turn < 5; turn++)
      for (int i = 0; i < 16; i++) {
        swapcontext(&scheduler, &contexts[i]);
        probe();
      }
    for (int i = 0; i < 16; i++) munmap(stacks[i], bytes(i));
  }
}

// ---- hand-made stacks

static void cut_bounds() { probe_cut(bounds); }
static void cut_no_rule() { probe_cut(no_rule); }
static char* inner_top;
static void switch_again() { call_on_stack_zero(probe, inner_top); }

void made_stacks(int rounds) {
  for (int i = 0; i < rounds; i++) {
    size_t bytes = size_t(i % 3 + 1) << 14;
    char* stack = map(bytes);
    char* top = stack + bytes;
    // By its rules it returns to another stack: not followed.
    call_on_stack(cut_bounds, top);
    call_on_stack_zero(probe, top);
    call_on_stack_data(cut_no_rule, top);
    inner_top = top - 8192;
    call_on_stack(switch_again, top);
    munmap(stack, bytes);
    // A stack inside the thread's own stack: the rules lead inwards.
    alignas(64) char room[16384];
    call_on_stack(cut_bounds, room + sizeof room);
    call_on_stack_zero(probe, room + sizeof room);
    call_on_stack_data(cut_no_rule, room + sizeof room);
    probe();
  }
}

// Stacks whose rules lead to unmapped memory.
void edges(int rounds) {
  for (int i = 0; i < rounds; i++) {
    char* stack = map(3 << 14);
    munmap(stack + (1 << 14), 1 << 14);
    call_on_stack_end(cut_bounds, stack + (1 << 14));
    call_on_stack_zero(probe, stack + (1 << 14));
    munmap(stack, 3 << 14);
    probe();
  }
}

// ---- threads with small, large and own stacks

__attribute__((noinline)) static void far_down(void (*at_bottom)()) {
  volatile char room[2 << 20];
  room[0] = 1;
  at_bottom();
  room[1] = room[0];
}

struct Plan {
  void (*work)();
  size_t bytes;
  bool own_memory;
};

static void* thread_main(void* plan) {
  static_cast<Plan*>(plan)->work();
  return nullptr;
}

static void small_work() {
  for (unsigned i = 0; i < 8; i++) thunks[i]([](unsigned) { probe(); }, i);
}

static void deep_work() {
  far_down(probe);
  far_down([] { far_down(probe); });
}

// Deeper than a stack of the default size (8 MiB): at that depth, a frame this large is not followed.
static void very_deep_work() {
#ifdef __x86_64__
  far_down([] { far_down([] { far_down([] { probe(), far_down(cut_bounds); }); }); });
#else
  // If the compiler saves x30 at the bottom of the last frame, the frame may be followed.
  far_down([] { far_down([] { far_down(probe); }); });
#endif
}

void threads(int rounds) {
  rlimit limit;
  require(getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur == 8 << 20, "needs ulimit -s 8192");
  for (int i = 0; i < rounds; i++) {
    // arm64 requires 128 KiB.
    const size_t least = std::max<size_t>(16384, PTHREAD_STACK_MIN), small = std::max<size_t>(65536, least);
    const Plan plans[] = {{probe, least, false},        {small_work, small, false},   {small_work, small, true},
                          {deep_work, 6 << 20, false}, {deep_work, 6 << 20, true}, {very_deep_work, 24 << 20, false}};
    for (Plan plan : plans) {
      pthread_attr_t attributes;
      pthread_attr_init(&attributes);
      char* memory = plan.own_memory ? map(plan.bytes) : nullptr;
      int set = memory ? pthread_attr_setstack(&attributes, memory, plan.bytes) : pthread_attr_setstacksize(&attributes, plan.bytes);
      require(set == 0, "stack attributes");
      pthread_t thread;
      require(pthread_create(&thread, &attributes, thread_main, &plan) == 0, "pthread_create");
      pthread_join(thread, nullptr);
      pthread_attr_destroy(&attributes);
      if (memory) munmap(memory, plan.bytes);
    }
  }
}
