// Allocates and frees with the whole family from many threads and keeps its own ledger outside malloc. It compares the
// ledger with the agent's snapshot, entry by entry: size, count and every return address of the stack.
//
// Workers keep blocks in slots, hand some to each other, and reallocate in chains, sometimes with requests that fail.
// Meanwhile one thread forks, and one loads and unloads libraries. At barriers all threads wait: the snapshot must
// equal the ledger, here and in forked children, which then continue alone and are compared again. A child forked in
// between cannot know what other threads did: the difference between two snapshots must equal what the child did.
//
//   stress [--threads=32] [--operations=10000000] [--rounds=10] [--forks=4] [--loads=8] --plugins=FOLDER
//
// Exit code 0: everything agreed. 1: something differed. 2: could not run (no agent).
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <sys/wait.h>

#include <atomic>

#include "stress_ledger.h"

namespace stress {
namespace {

constexpr uint32_t kSlots = 640, kQueue = 128, kMostThreads = 64;
constexpr size_t kBig = size_t{33} << 20;  // more than glibc serves from an arena and than a table slot can hold
constexpr int kMostBig = 6;

struct Options {
  uint32_t threads = 32, rounds = 10, forks = 4, loads = 8;
  uint64_t operations = 10'000'000;
  const char* plugins = nullptr;
} options;

struct Figures {
  std::atomic<uint64_t> operations, handed, refused, moved, threads, forks, loads;
} figures;

// Blocks that one thread passes to another.
struct Queue {
  pthread_mutex_t lock;
  uint32_t count;
  Block blocks[kQueue];
};

struct Worker {
  pthread_t thread;
  Random random;
  Block slots[kSlots];
  Queue queue;
};

Worker* workers;  // the workers, then the forker, the loader, the main thread
uint32_t round_now;
std::atomic<int> big_blocks;
pthread_barrier_t barrier;

Worker& forker() { return workers[options.threads]; }
Worker& loader() { return workers[options.threads + 1]; }
Worker& self() { return workers[options.threads + 2]; }
uint32_t everybody() { return options.threads + 3; }

// --- one block

void stamp(const Block& b) {
  if (b.size >= 8) memcpy(b.at, &b.key, 8);
}

// Detects writes by others to our block.
void check_stamp(const Block& b) {
  if (b.size >= 8 && memcmp(b.at, &b.key, 8) != 0) {
    say("DIFFERS: the contents of a block of %llu bytes\n", static_cast<unsigned long long>(b.size));
    _exit(1);
  }
}

void count_big(uint64_t size, int by) {
  if (size >= kBig) big_blocks.fetch_add(by, std::memory_order_relaxed);
}

size_t some_size(Random& random) {
  uint32_t dice = random.below(4096);
  if (dice == 0 && big_blocks.load(std::memory_order_relaxed) < kMostBig) return kBig + random.below(99);
  if (dice < 64) return random.below(200'000);
  if (dice < 128) return 0;
  return dice < 1024 ? 2 * random.below(400) + 1 : 8 * random.below(40) + 3;
}

// Every round has its own call paths, so that new stacks are stored all the time.
uint32_t some_path(Random& random) { return (round_now * 2654435761u) ^ (random.below(1024) * 40503u); }
int some_depth(Random& random) { return random.below(2048) == 0 ? 60 + static_cast<int>(random.below(40)) : random.below(12); }

__attribute__((always_inline)) inline Block sent(Request& r, uint32_t kind, uint32_t path, int depth) {
  Block b{send(r, path, depth), r.size, 0, origin(kind, depth, path)};
  b.key = key_of(r);
  if (b.at && r.size) stamp(b);
  return b;
}

A_FRAME Block allocate(Random& random) {
  ENTERED;
  Request r;
  uint32_t kind = random.below(kKinds);
  size_t size = some_size(random);
  make(r, kind, size, random);
  Block b = sent(r, kind, some_path(random), some_depth(random));
  if (!b.at) give_up("an ordinary allocation failed");
  count_big(b.size, 1);
  return b;
}

void release(Block& b) {
  check_stamp(b);
  count_big(b.size, -1);
  uint32_t kind = kind_of(b.origin);
  if (kind == 12) {
    ::operator delete(b.at);
  } else if (kind == 13) {
    ::operator delete[](b.at);
  } else {
    free(b.at);
  }
  b = {};
}

A_FRAME void reallocate(Block& b, Random& random) {
  ENTERED;
  if (kind_of(b.origin) >= 12) return release(b);
  size_t links = 1 + random.below(4);
  for (size_t i = 0; i < links; ++i) {
    size_t size = some_size(random);
    bool array = random.below(4) == 0;
    if (size == 0 || (array && size < 3)) {
      // glibc frees the block and returns null.
      check_stamp(b);
      count_big(b.size, -1);
      Request r{{function_of(realloc), word(b.at), 0, 0, 0, 0}, 0, kDirect, nullptr};
      if (send(r, some_path(random), some_depth(random))) give_up("realloc to nothing gave a block");
      b = {};
      return;
    }
    check_stamp(b);
    auto old = word(b.at);
    Request r{{function_of(realloc), old, size, 0, 0, 0}, size, kDirect, nullptr};
    if (array) r = {{function_of(reallocarray), old, 3, size / 3, 0, 0}, size / 3 * 3, kDirect, nullptr};
    uint64_t old_size = b.size;
    Block moved = sent(r, 2 + array, some_path(random), some_depth(random));
    if (!moved.at) give_up("an ordinary realloc failed");
    count_big(old_size, -1);
    count_big(moved.size, 1);
    if (moved.at != b.at) figures.moved.fetch_add(1, std::memory_order_relaxed);
    b = moved;
  }
}

A_FRAME void reallocate_in_vain(Block& b, Random& random) {
  ENTERED;
  Request r;
  make_failing(r, static_cast<uint32_t>(random.next() >> 32), b.at);
  if (send(r, some_path(random), some_depth(random))) give_up("an impossible realloc succeeded");
  check_stamp(b);
  figures.refused.fetch_add(1, std::memory_order_relaxed);
}

// --- one thread

bool hand_over(Block& b, Queue& to) {
  pthread_mutex_lock(&to.lock);
  bool fits = to.count < kQueue;
  if (fits) to.blocks[to.count++] = b;
  pthread_mutex_unlock(&to.lock);
  if (fits) b = {};
  return fits;
}

bool receive(Block& b, Queue& from) {
  pthread_mutex_lock(&from.lock);
  bool any = from.count != 0;
  if (any) b = from.blocks[--from.count];
  pthread_mutex_unlock(&from.lock);
  return any;
}

void learn_root(uintptr_t own) {
  void* frames[64];
  int n = static_cast<int>(through_library(function_of(backtrace), word(frames), 64));
  int at = 0;
  while (at < n && word(frames[at]) != own) ++at;
  if (at == n) give_up("backtrace() does not find the thread's function");
  own_chain.depth = 0;
  own_chain.hash[0] = 0;
  for (int i = n - 1; i > at; --i) {
    own_chain.hash[0] = chain_extend(own_chain.hash[0], word(frames[i]));
  }
}

// Blocks that a short-lived thread leaves to the thread that started it.
struct Legacy {
  Random random;
  Block blocks[4];
};

A_FRAME void* short_life(void* argument) {
  learn_root(word(__builtin_return_address(0)));
  ENTERED;
  Legacy& legacy = *static_cast<Legacy*>(argument);
  for (Block& b : legacy.blocks) b = allocate(legacy.random);
  return nullptr;
}

void keep_or_release(Worker& w, Block& b) {
  Block& slot = w.slots[w.random.below(kSlots)];
  if (slot.at) {
    release(b);
  } else {
    slot = b;
  }
}

void start_short_life(Worker& w) {
  Legacy legacy{{w.random.next() | 1}, {}};
  pthread_t thread;
  if (through_library(function_of(pthread_create), word(&thread), 0, word(short_life), word(&legacy))) give_up("no thread");
  pthread_join(thread, nullptr);
  for (Block& b : legacy.blocks) keep_or_release(w, b);
  figures.threads.fetch_add(1, std::memory_order_relaxed);
}

// `alone`: in a forked child, where no other thread runs and locks may be held forever.
A_FRAME void step(Worker& w, bool alone) {
  ENTERED;
  Random& random = w.random;
  Block& b = w.slots[random.below(kSlots)];
  uint32_t dice = random.below(100);
  if (!b.at) {
    if (dice == 0) {
      Request r;
      make_impossible(r, static_cast<uint32_t>(random.next() >> 32));
      if (send(r, some_path(random), some_depth(random))) give_up("an impossible allocation succeeded");
      figures.refused.fetch_add(1, std::memory_order_relaxed);
    } else if (dice < 15 && !alone) {
      if (receive(b, w.queue) && dice < 8) release(b);
    } else {
      b = allocate(random);
    }
  } else if (dice < 45 || (dice >= 80 && alone)) {
    release(b);
  } else if (dice < 75) {
    reallocate(b, random);
  } else if (dice < 80) {
    reallocate_in_vain(b, random);
  } else if (hand_over(b, workers[random.below(options.threads)].queue)) {
    figures.handed.fetch_add(1, std::memory_order_relaxed);
  }
}

A_FRAME void* work(void* argument) {
  learn_root(word(__builtin_return_address(0)));
  ENTERED;
  Worker& w = *static_cast<Worker*>(argument);
  uint64_t share = options.operations / options.rounds / options.threads;
  for (uint32_t round = 0; round < options.rounds; ++round) {
    pthread_barrier_wait(&barrier);
    for (uint64_t i = 0; i < share; ++i) {
      step(w, false);
      if (w.random.below(20'000) == 0) start_short_life(w);
    }
    figures.operations.fetch_add(share, std::memory_order_relaxed);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
  }
  return nullptr;
}

// --- comparisons

Tally* tally;

bool agrees(const char* where) {
  tally->clear();
  for (uint32_t i = 0; i < everybody(); ++i) {
    for (const Block& b : workers[i].slots) {
      if (b.at) tally->add(b, 1);
    }
    for (uint32_t q = 0; q < workers[i].queue.count; ++q) tally->add(workers[i].queue.blocks[q], 1);
  }
  Snapshot snapshot;
  tally->add(snapshot, -1, false);
  return is_well_formed(where, snapshot) & tally->is_even(where, snapshot);
}

void release_everything() {
  for (uint32_t i = 0; i < everybody(); ++i) {
    for (Block& b : workers[i].slots) {
      if (b.at) release(b);
    }
    for (uint32_t& q = workers[i].queue.count; q > 0; --q) release(workers[i].queue.blocks[q - 1]);
  }
}

// Runs `body` in a forked child; false: the child found a difference, hung or crashed.
A_FRAME bool in_child(const char* what, bool (*body)()) {
  ENTERED;
  auto pid = static_cast<pid_t>(through_library(function_of(fork)));
  if (pid == 0) {
    alarm(60);
    if (!MemgateActive()) give_up("a forked child is not recorded (is there room for its stream?)");
    _exit(body() ? 0 : 1);
  }
  if (pid < 0) give_up("no fork");
  int status = 0;
  waitpid(pid, &status, 0);
  figures.forks.fetch_add(1, std::memory_order_relaxed);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) _exit(2);
  if (status != 0) say("DIFFERS: %s ended with status %x\n", what, status);
  return status == 0;
}

bool grandchild() { return agrees("a grandchild's start"); }

// While all threads wait, the child's copy must equal the ledger, and stay equal.
A_FRAME bool child_at_a_barrier() {
  ENTERED;
  if (!agrees("a child's start")) return false;
  for (int i = 0; i < 2000; ++i) step(self(), true);
  if (!agrees("a child's own work") || !in_child("the grandchild", grandchild)) return false;
  release_everything();
  return agrees("a child's end");
}

void add_slots(Worker& w, int64_t by) {
  for (const Block& b : w.slots) {
    if (b.at) tally->add(b, by);
  }
}

// Forked while other threads run: what the child does must be the difference of two snapshots.
A_FRAME bool child_of_a_storm() {
  ENTERED;
  tally->clear();
  {
    Snapshot before;
    tally->add(before, 1, true);
  }
  add_slots(forker(), -1);
  for (int i = 0; i < 500; ++i) step(forker(), true);
  add_slots(forker(), 1);
  Snapshot after;
  tally->add(after, -1, true);
  return is_well_formed("a storm", after) & tally->is_even("a storm", after);
}

// --- storms

A_FRAME void* fork_storm(void*) {
  learn_root(word(__builtin_return_address(0)));
  ENTERED;
  for (uint32_t round = 0; round < options.rounds; ++round) {
    pthread_barrier_wait(&barrier);
    for (uint32_t i = 0; i < options.forks; ++i) {
      for (int s = 0; s < 300; ++s) step(forker(), false);
      if (!in_child("the child of a storm", child_of_a_storm)) _exit(1);
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
  }
  return nullptr;
}

// Loads a plugin, allocates through it and unloads it; the blocks stay.
A_FRAME void visit_plugin(Worker& w) {
  ENTERED;
  char path[512];
  snprintf(path, sizeof path, "%s/plugin%u.so", options.plugins, w.random.below(3));
  auto handle = reinterpret_cast<void*>(through_library(function_of(dlopen), word(path), RTLD_NOW));
  if (!handle) give_up("a plugin does not load");
  auto found = through_library(function_of(dlsym), word(handle), word("plugin_call"));
  auto plugin_call = reinterpret_cast<void (*)(chain*, stress_call*, stress_function)>(found);
  for (int i = 0; i < 4; ++i) {
    Request r;
    uint32_t kind = w.random.below(9);
    make(r, kind, 1 + w.random.below(900), w.random);
    stress_call learn{probe, 0, 0, 0, 0, 0};
    // Both turns use the same call instruction.
    for (int turn = 0; turn < 2; ++turn) plugin_call(&own_chain, turn ? &r.call : &learn, probe);
    void* at = kind == 4 ? r.out : reinterpret_cast<void*>(r.call.result);
    Block b{at, r.size, key_of(r), origin(kind, 0xff, 0)};
    if (r.size) stamp(b);
    keep_or_release(w, b);
  }
  through_library(function_of(dlclose), word(handle));
  figures.loads.fetch_add(1, std::memory_order_relaxed);
}

A_FRAME void* load_storm(void*) {
  learn_root(word(__builtin_return_address(0)));
  ENTERED;
  for (uint32_t round = 0; round < options.rounds; ++round) {
    pthread_barrier_wait(&barrier);
    for (uint32_t i = 0; i < options.loads; ++i) {
      for (int s = 0; s < 100; ++s) step(loader(), false);
      visit_plugin(loader());
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
  }
  return nullptr;
}

// --- the run

void start(Worker& w, void* (*body)(void*)) {
  if (through_library(function_of(pthread_create), word(&w.thread), 0, word(body), word(&w))) give_up("no thread");
}

A_FRAME int run() {
  ENTERED;
  uint64_t compared = 0, most = 0;
  pthread_barrier_init(&barrier, nullptr, options.threads + 3);
  for (uint32_t i = 0; i < everybody(); ++i) {
    workers[i].random.state = 0x9E3779B97F4A7C15ull * (i + 1);
    pthread_mutex_init(&workers[i].queue.lock, nullptr);
  }
  for (uint32_t i = 0; i < options.threads; ++i) start(workers[i], work);
  start(forker(), fork_storm);
  start(loader(), load_storm);
  for (uint32_t round = 0; round < options.rounds; ++round) {
    round_now = round;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 1000; ++i) step(self(), false);
    pthread_barrier_wait(&barrier);
    char where[32];
    snprintf(where, sizeof where, "barrier %u", round + 1);
    if (!agrees(where)) return 1;
    compared += tally->used();
    most = tally->used() > most ? tally->used() : most;
    if (!in_child("the child at a barrier", child_at_a_barrier)) return 1;
    pthread_barrier_wait(&barrier);
  }
  for (uint32_t i = 0; i + 1 < everybody(); ++i) pthread_join(workers[i].thread, nullptr);
  release_everything();
  if (!agrees("the end")) return 1;
  auto n = [](const std::atomic<uint64_t>& figure) { return static_cast<unsigned long long>(figure.load()); };
  say("%llu operations in %u threads; %u barriers, %llu entries compared, %llu at most at once; 0 differ\n", n(figures.operations),
      options.threads, options.rounds, static_cast<unsigned long long>(compared), static_cast<unsigned long long>(most));
  say("%llu handed over, %llu moved by realloc, %llu refused, %llu short-lived threads, %llu forks, %llu libraries loaded and unloaded\n",
      n(figures.handed), n(figures.moved), n(figures.refused), n(figures.threads), n(figures.forks), n(figures.loads));
  return 0;
}

bool parse(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    auto value = [&](const char* name) {
      size_t length = strlen(name);
      return strncmp(arguments[i], name, length) == 0 ? arguments[i] + length : nullptr;
    };
    auto number = [&](const char* name, auto& to) {
      const char* text = value(name);
      if (text) to = static_cast<std::remove_reference_t<decltype(to)>>(strtoull(text, nullptr, 10));
      return text != nullptr;
    };
    if (const char* folder = value("--plugins=")) {
      options.plugins = folder;
    } else if (!number("--threads=", options.threads) && !number("--operations=", options.operations) &&
               !number("--rounds=", options.rounds) && !number("--forks=", options.forks) && !number("--loads=", options.loads)) {
      return false;
    }
  }
  return options.plugins && options.rounds && options.threads && options.threads <= kMostThreads;
}

}  // namespace
}  // namespace stress

int main(int count, char** arguments) {
  using namespace stress;
  if (!parse(count, arguments)) give_up("stress [--threads=N] [--operations=N] [--rounds=N] [--forks=N] [--loads=N] --plugins=FOLDER");
  if (!MemgateActive()) give_up("the agent does not record here");
  workers = pages<Worker>(everybody());
  static Tally books(17);
  tally = &books;
  dl_iterate_phdr(find_libraries, nullptr);
  learn_sites();
  learn_root(word(__builtin_return_address(0)));
  ENTERED;
  // Without exit handlers, whose frees do not matter here.
  _exit(run());
}
