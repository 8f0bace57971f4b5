// A suite whose second test ends it with a segmentation fault.
#include "sample.h"

namespace crash {

NOINLINE void lose_early() {
    char* block = new char[701];  // LEAK: before the crash
    escape(block);
}

int* volatile nowhere = nullptr;

NOINLINE int read_nowhere() { return *nowhere; }  // CRASH: segv

}  // namespace crash

TEST(Crash, Before) { crash::lose_early(); }

TEST(Crash, Segfault) { EXPECT_EQ(crash::read_nowhere(), 1); }

TEST(Crash, After) {}
