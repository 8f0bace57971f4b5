// The allocation family, called from many sites: which function, through which call sites, with which request.
#pragma once

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <new>

#include "stress_chain.h"

namespace stress {

inline __thread chain own_chain;

// Must come first in every function that can send a request: every frame in between is recorded.
struct Entered {
  __attribute__((always_inline)) explicit Entered(void* return_address) {
    own_chain.hash[own_chain.depth + 1] =
        chain_extend(own_chain.hash[own_chain.depth], reinterpret_cast<uintptr_t>(return_address));
    ++own_chain.depth;
  }
  __attribute__((always_inline)) ~Entered() { --own_chain.depth; }
};
#define ENTERED Entered entered(__builtin_return_address(0))
// A function that keeps its own frame, whatever the optimiser does.
#define A_FRAME __attribute__((noinline, noclone))

// xorshift64*: random choices must not depend on the C library.
struct Random {
  uint64_t state;
  uint64_t next() {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545F4914F6CDD1Dull;
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((next() >> 32) * n >> 32); }
};

A_FRAME inline uintptr_t probe(uintptr_t, uintptr_t, uintptr_t) {
  return reinterpret_cast<uintptr_t>(__builtin_return_address(0));
}

// --- call sites: frames of many sizes, with and without a frame pointer

constexpr int kSites = 12;
inline uintptr_t site_address[kSites];

template <int N>
A_FRAME void site(stress_call& call) {
  ENTERED;
  volatile char fixed[8 + 40 * N];
  fixed[0] = N;
  (void)fixed;
  if (N % 2 == 1) {
    // alloca makes the compiler address the frame by rbp.
    volatile char* more = static_cast<char*>(__builtin_alloca(16 + (own_chain.depth & 7) * 16));
    more[0] = N;
    (void)more;
  }
  call.result = call.function(call.a, call.b, call.c);
  if (call.function == probe) site_address[N] = call.result;
  call.key = chain_extend(own_chain.hash[own_chain.depth], site_address[N]);
}

using Site = void (*)(stress_call&);
inline constexpr Site kSite[kSites] = {site<0>, site<1>, site<2>, site<3>, site<4>,  site<5>,
                                       site<6>, site<7>, site<8>, site<9>, site<10>, site<11>};

template <int K>
A_FRAME void hop(stress_call& call, uint32_t path, int depth) {
  ENTERED;
  volatile char fixed[16 + 56 * K];
  fixed[0] = K;
  (void)fixed;
  uint32_t rest = path >> 2 | path << 30;
  if (depth <= 0) {
    kSite[path % kSites](call);
  } else if ((path & 3) == 0) {
    hop<0>(call, rest, depth - 1);
  } else if ((path & 3) == 1) {
    hop<1>(call, rest, depth - 1);
  } else if ((path & 3) == 2) {
    hop<2>(call, rest, depth - 1);
  } else {
    hop<(K + 1) % 3>(call, rest, depth - 2);
  }
  fixed[1] = K;
}

// Calls of C library functions that may allocate for themselves (dlopen, pthread_create, fork) go through here. Their
// allocations are not in the ledger, and are recognized by this address.
inline uintptr_t library_address;

A_FRAME inline uintptr_t through_library(stress_function function, uintptr_t a = 0, uintptr_t b = 0, uintptr_t c = 0,
                                         uintptr_t d = 0) {
  using Four = uintptr_t (*)(uintptr_t, uintptr_t, uintptr_t, uintptr_t);
  uintptr_t result = reinterpret_cast<Four>(reinterpret_cast<void (*)()>(function))(a, b, c, d);
  if (function == probe) library_address = result;
  __asm__ volatile("");
  return result;
}

template <class F>
stress_function function_of(F* f) {
  return reinterpret_cast<stress_function>(reinterpret_cast<void (*)()>(f));
}

template <class T>
uintptr_t word(T* p) {
  return reinterpret_cast<uintptr_t>(p);
}

// --- requests

// The library whose code is between our call and malloc.
enum Via : uint8_t { kDirect = 0, kThroughC = 1, kThroughCxx = 2 };

struct Request {
  stress_call call;
  size_t size;  // as the tracker must see it
  Via via;
  void* out;  // posix_memalign
};

constexpr size_t kHuge = SIZE_MAX / 2 - 4096;
constexpr size_t kLongest = 4000;
inline char text[kLongest + 1];
inline wchar_t wide_text[kLongest + 1];

constexpr uint32_t kKinds = 15;
constexpr const char* kKindName[kKinds] = {"malloc", "calloc", "realloc", "reallocarray", "posix_memalign",
                                           "aligned_alloc", "memalign", "valloc", "pvalloc", "strdup",
                                           "strndup", "wcsdup", "operator new", "operator new[]", "aligned new"};

// Describes a block for a person: kind 8 | depth 8 | path 32.
inline uint64_t origin(uint32_t kind, int depth, uint32_t path) {
  return uint64_t{kind} << 40 | static_cast<uint64_t>(depth) << 32 | path;
}
inline uint32_t kind_of(uint64_t origin) { return static_cast<uint32_t>(origin >> 40); }

// Makes a request of `size` bytes or a little more, for the given member of the family.
inline void make(Request& r, uint32_t kind, size_t size, Random& random) {
  size_t align = size_t{16} << random.below(6);
  size_t length = size < kLongest ? size : kLongest;
  r.via = kDirect;
  r.size = size;
  r.out = nullptr;
  stress_call& c = r.call;
  c = {};
  switch (kind) {
    case 1: {
      size_t count = 1 + random.below(7);
      size_t each = size / count;
      c = {function_of(calloc), count, each, 0, 0, 0};
      r.size = count * each;
      break;
    }
    case 2: c = {function_of(realloc), 0, size, 0, 0, 0}; break;
    case 3: {
      size_t count = 1 + random.below(7);
      size_t each = size / count;
      c = {function_of(reallocarray), 0, count, each, 0, 0};
      r.size = count * each;
      break;
    }
    case 4: c = {function_of(posix_memalign), word(&r.out), align, size, 0, 0}; break;
    case 5: c = {function_of(aligned_alloc), align, size, 0, 0, 0}; break;
    case 6: c = {function_of(memalign), align, size, 0, 0, 0}; break;
    case 7: c = {function_of(valloc), size, 0, 0, 0, 0}; break;
    case 8: c = {function_of(pvalloc), size, 0, 0, 0, 0}; break;
    case 9:
      c = {function_of(strdup), word(text + kLongest - length), 0, 0, 0, 0};
      r.size = length + 1;
      r.via = kThroughC;
      break;
    case 10:
      c = {function_of(strndup), word(text), length, 0, 0, 0};
      r.size = length + 1;
      r.via = kThroughC;
      break;
    case 11:
      length /= 4;
      c = {function_of(wcsdup), word(wide_text + kLongest - length), 0, 0, 0, 0};
      r.size = (length + 1) * sizeof(wchar_t);
      r.via = kThroughC;
      break;
    case 12:
      // `new` of zero bytes requests one byte.
      c = {function_of(static_cast<void* (*)(size_t)>(::operator new)), size, 0, 0, 0, 0};
      r.size = size ? size : 1;
      r.via = kThroughCxx;
      break;
    case 13:
      c = {function_of(static_cast<void* (*)(size_t)>(::operator new[])), size, 0, 0, 0, 0};
      r.size = size ? size : 1;
      r.via = kThroughCxx;
      break;
    case 14:
      // libstdc++ rounds up to the alignment first.
      r.size = (size + align) / align * align;
      c = {function_of(static_cast<void* (*)(size_t, std::align_val_t)>(::operator new)), r.size, align, 0, 0, 0};
      r.via = kThroughCxx;
      break;
    default: c = {function_of(malloc), size, 0, 0, 0, 0};
  }
}

// Requests that must fail and change nothing.
inline void make_failing(Request& r, uint32_t kind, void* block) {
  uintptr_t p = word(block);
  r.via = kDirect;
  r.size = 0;
  r.out = nullptr;
  stress_call& c = r.call;
  switch (kind % 4) {
    case 0: c = {function_of(realloc), p, kHuge, 0, 0, 0}; break;
    case 1: c = {function_of(reallocarray), p, SIZE_MAX / 3, 5, 0, 0}; break;
    case 2: c = {function_of(reallocarray), p, kHuge / 8, 8, 0, 0}; break;
    default: c = {function_of(realloc), p, PTRDIFF_MAX - 64, 0, 0, 0};
  }
}

// Requests without a block that must fail.
inline void make_impossible(Request& r, uint32_t kind) {
  r.via = kDirect;
  r.size = 0;
  r.out = nullptr;
  stress_call& c = r.call;
  switch (kind % 6) {
    case 0: c = {function_of(malloc), kHuge, 0, 0, 0, 0}; break;
    case 1: c = {function_of(calloc), SIZE_MAX / 3, 5, 0, 0, 0}; break;
    case 2: c = {function_of(memalign), 64, kHuge, 0, 0, 0}; break;
    case 3: c = {function_of(posix_memalign), word(&r.out), 24, 100, 0, 0}; break;
    case 4: c = {function_of(realloc), 0, kHuge, 0, 0, 0}; break;
    default: c = {function_of(pvalloc), kHuge, 0, 0, 0, 0};
  }
}

// Sends a request through a chain of calls. Null: the request failed.
__attribute__((always_inline)) inline void* send(Request& r, uint32_t path, int depth) {
  hop<0>(r.call, path, depth);
  return r.call.function == function_of(posix_memalign) ? r.out : reinterpret_cast<void*>(r.call.result);
}

inline uint64_t key_of(const Request& r) { return r.call.key ^ (uint64_t{r.via} << 61); }

inline void learn_sites() {
  memset(text, 'x', kLongest);
  wmemset(wide_text, L'x', kLongest);
  through_library(probe);
  for (int i = 0; i < kSites; ++i) {
    stress_call c{probe, 0, 0, 0, 0, 0};
    kSite[i](c);
  }
}

}  // namespace stress
