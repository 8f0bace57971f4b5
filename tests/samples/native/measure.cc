// Measured truth.json, without memgate: replaces malloc and its relatives in a sample suite, counts the requests that
// are not freed yet, and prints the live totals at the end of each test of each iteration. README.md has the command
// line.
#include <gtest/gtest.h>
#include <pthread.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace {

struct Entry {
    void* block;
    size_t size;
};

// Open addressing in static memory. A freed entry keeps a mark, so that searches continue after it.
constexpr size_t kEntries = size_t{1} << 22;
Entry entries[kEntries];
void* const kFreed = &entries;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
long live_bytes = 0;
long live_count = 0;

size_t home(void* block) { return (reinterpret_cast<uintptr_t>(block) >> 4) * 0x9E3779B97F4A7C15u >> 42; }

void* born(void* block, size_t size) {
    if (!block) return block;
    pthread_mutex_lock(&lock);
    size_t i = home(block);
    while (entries[i].block && entries[i].block != kFreed) i = (i + 1) % kEntries;
    entries[i] = {block, size};
    live_bytes += static_cast<long>(size);
    ++live_count;
    pthread_mutex_unlock(&lock);
    return block;
}

void died(void* block) {
    if (!block) return;
    pthread_mutex_lock(&lock);
    for (size_t i = home(block); entries[i].block; i = (i + 1) % kEntries) {
        if (entries[i].block != block) continue;
        live_bytes -= static_cast<long>(entries[i].size);
        --live_count;
        entries[i].block = kFreed;
        break;
    }
    pthread_mutex_unlock(&lock);
}

class Printer : public testing::EmptyTestEventListener {
    void OnTestIterationStart(testing::UnitTest const&, int number) override { iteration = number; }
    void OnTestEnd(testing::TestInfo const& test) override {
        std::fprintf(stderr, "%d\t%s.%s\t%ld\t%ld\n", iteration, test.test_case_name(), test.name(), live_bytes, live_count);
    }
    int iteration = 0;
};

}  // namespace

extern "C" {
void* malloc(size_t size) { return born(__libc_malloc(size), size); }
void* calloc(size_t n, size_t size) { return born(__libc_calloc(n, size), n * size); }
void* memalign(size_t align, size_t size) { return born(__libc_memalign(align, size), size); }
void* aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void** block, size_t align, size_t size) { return (*block = memalign(align, size)) ? 0 : ENOMEM; }
void free(void* block) {
    died(block);
    __libc_free(block);
}
void* realloc(void* block, size_t size) {
    died(block);
    return born(__libc_realloc(block, size), size);
}
}

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    testing::UnitTest::GetInstance()->listeners().Append(new Printer);
    return RUN_ALL_TESTS();
}
