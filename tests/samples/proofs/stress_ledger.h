// The program's own ledger, in mapped memory, and its comparison with the agent's snapshot.
#pragma once

#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memgate.h>

#include "stress_family.h"

namespace stress {

// Prints without stdio's buffers, which are allocated.
__attribute__((format(printf, 1, 2))) inline void say(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length > 0 && write(STDOUT_FILENO, line, static_cast<size_t>(length) < sizeof line ? length : sizeof line) < 0) _exit(3);
}

[[noreturn]] inline void give_up(const char* what) {
  say("cannot run: %s\n", what);
  _exit(2);
}

// Private mappings: a forked child gets a copy of the ledger.
template <class T>
T* pages(size_t count) {
  void* at = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) give_up("no memory for the ledger");
  return static_cast<T*>(at);
}

struct Block {
  void* at;
  uint64_t size;
  uint64_t key;
  uint64_t origin;
};

// The code of a library that calls malloc for us.
struct Range {
  uintptr_t low, high;
  bool has(uintptr_t pc) const { return pc >= low && pc < high; }
};
inline Range c_library, cxx_library;

inline int find_libraries(dl_phdr_info* info, size_t, void*) {
  auto in = [&](const char* name) { return strstr(info->dlpi_name, name) != nullptr; };
  Range* range = in("/libc.so") ? &c_library : in("/libstdc++.so") ? &cxx_library : nullptr;
  if (!range) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X)) continue;
    *range = {info->dlpi_addr + segment.p_vaddr, info->dlpi_addr + segment.p_vaddr + segment.p_memsz};
  }
  return 0;
}

struct Record {
  size_t size, count;
  uintptr_t pcs[];
};

// A snapshot of the agent.
struct Snapshot {
  uint8_t* info;
  size_t overall, each, total, depth;

  Snapshot() { MemgateGetMallocLeakInfo(&info, &overall, &each, &total, &depth); }
  ~Snapshot() { MemgateFreeMallocLeakInfo(info); }
  size_t records() const { return each ? overall / each : 0; }
  const Record& at(size_t i) const { return *reinterpret_cast<const Record*>(info + i * each); }
  size_t frames(const Record& r) const {
    size_t n = 0;
    while (n < depth && r.pcs[n]) ++n;
    return n;
  }
  // Like `key_of`: library frames in front of our own frames only identify their library.
  uint64_t key(const Record& r) const {
    size_t n = frames(r), first = 0;
    uint64_t via = kDirect;
    while (first < n && (c_library.has(r.pcs[first]) || cxx_library.has(r.pcs[first]))) {
      via = cxx_library.has(r.pcs[first++]) ? kThroughCxx : kThroughC;
    }
    uint64_t hash = 0;
    for (size_t i = n; i > first; --i) hash = chain_extend(hash, r.pcs[i - 1] + 1);
    return hash ^ (via << 61);
  }
  // Did the C library allocate it for itself?
  bool is_foreign(const Record& r) const {
    for (size_t i = 0, n = frames(r); i < n; ++i) {
      if (r.pcs[i] + 1 == library_address) return true;
    }
    return false;
  }
};

struct Cell {
  uint64_t key, size;
  int64_t difference;
  uint64_t origin;
  int32_t record;  // index in the snapshot, plus one
  bool used;
};

// Counts per (site, size): the ledger's minus the snapshot's.
class Tally {
public:
  explicit Tally(uint32_t bits) : mask_((1u << bits) - 1), cells_(pages<Cell>(size_t{1} << bits)) {}

  void clear() { memset(cells_, 0, (size_t{mask_} + 1) * sizeof(Cell)); used_ = 0; }
  size_t used() const { return used_; }

  Cell& cell(uint64_t key, uint64_t size) {
    uint64_t hash = chain_extend(key, size);
    for (uint64_t at = hash & mask_;; at = (at + 1) & mask_) {
      Cell& c = cells_[at];
      if (c.used && c.key == key && c.size == size) return c;
      if (c.used) continue;
      if (++used_ > mask_ / 4 * 3) give_up("the tally is too small");
      c.used = true;
      c.key = key;
      c.size = size;
      return c;
    }
  }

  void add(const Block& block, int64_t by) {
    Cell& c = cell(block.key, block.size);
    c.difference += by;
    c.origin = block.origin;
  }

  void add(const Snapshot& snapshot, int64_t by, bool with_foreign) {
    for (size_t i = 0; i < snapshot.records(); ++i) {
      const Record& r = snapshot.at(i);
      if (!with_foreign && snapshot.is_foreign(r)) continue;
      Cell& c = cell(snapshot.key(r), r.size);
      c.difference += by * static_cast<int64_t>(r.count);
      if (by < 0) c.record = static_cast<int32_t>(i + 1);
    }
  }

  // Prints the differences; true if there are none.
  bool is_even(const char* where, const Snapshot& snapshot) const {
    int wrong = 0;
    for (size_t i = 0; i <= mask_; ++i) {
      const Cell& c = cells_[i];
      if (!c.difference || ++wrong > 5) continue;
      bool lost = c.difference > 0;
      say("DIFFERS at %s: %lld of %llu bytes, %s\n", where, static_cast<long long>(lost ? c.difference : -c.difference),
          static_cast<unsigned long long>(c.size),
          lost ? "in the ledger, not in the snapshot" : "in the snapshot, not in the ledger");
      if (c.origin) say("    allocated by %s, %llu calls deep\n", kKindName[kind_of(c.origin)], static_cast<unsigned long long>(c.origin >> 32 & 0xff));
      if (c.record == 0) continue;
      const Record& r = snapshot.at(static_cast<size_t>(c.record - 1));
      for (size_t f = 0, n = snapshot.frames(r); f < n && f < 8; ++f) say("    #%zu %p\n", f, reinterpret_cast<void*>(r.pcs[f]));
    }
    if (wrong) say("DIFFERS at %s: %d entries in all\n", where, wrong);
    return wrong == 0;
  }

private:
  uint32_t mask_;
  size_t used_ = 0;
  Cell* cells_;
};

// Is the snapshot consistent: padding, order, sum?
inline bool is_well_formed(const char* where, const Snapshot& s) {
  size_t sum = 0, before = SIZE_MAX;
  bool well = s.records() == 0 || s.each == (2 + s.depth) * sizeof(size_t);
  for (size_t i = 0; i < s.records(); ++i) {
    const Record& r = s.at(i);
    sum += r.size * r.count;
    well = well && r.count > 0 && r.size <= before;
    before = r.size;
    for (size_t f = s.frames(r); f < s.depth; ++f) well = well && r.pcs[f] == 0;
  }
  if (!well || sum != s.total) say("DIFFERS at %s: the snapshot is not well formed, or its sum is not %zu\n", where, s.total);
  return well && sum == s.total;
}

}  // namespace stress
