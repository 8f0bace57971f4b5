// Tests that leave so much that samples of one byte in 512 KiB cannot miss it, or so little that they can. Each waits a
// moment, so that a confirmation repeats it hundreds of times, not a hundred thousand.
#include <gtest/gtest.h>
#include <poll.h>
#include <cstdlib>

#define NOINLINE __attribute__((noinline))

namespace paint {
NOINLINE void* tile(size_t bytes) {
    void* at = malloc(bytes);
    asm volatile("" : : "r"(at) : "memory");  // Keeps the allocation.
    return at;
}
NOINLINE int strokes(int count, size_t bytes) {
    int made = 0;
    while (made < count) made += tile(bytes) != nullptr;
    return poll(nullptr, 0, 2);
}
}  // namespace paint

// 8 MB: no sample in one of ten million runs.
TEST(Leaks, Much) { EXPECT_EQ(paint::strokes(8000, 1000), 0); }
TEST(Leaks, Large) { EXPECT_EQ(paint::strokes(1, 64 << 20), 0); }
// 16 bytes: a sample in one of thirty thousand runs.
TEST(Leaks, Unseen) { EXPECT_EQ(paint::strokes(1, 16), 0); }
TEST(Clean, Frees) {
    for (int i = 0; i < 20000; i++) free(paint::tile(1000));
    EXPECT_EQ(paint::strokes(0, 0), 0);
}
TEST(Clean, Moves) {
    void* at = paint::tile(100);
    for (size_t bytes = 100; bytes < 4 << 20; bytes *= 2) at = realloc(at, bytes);
    free(at);
    EXPECT_EQ(paint::strokes(0, 0), 0);
}
