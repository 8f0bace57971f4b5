// A suite with a failing test: its result stays, and what the failing test leaves is not judged.
#include "sample.h"

namespace failing {

NOINLINE int lose_and_miscount() {
    char* block = new char[647];
    escape(block);
    return 3;
}

}  // namespace failing

TEST(Failing, Passes) { EXPECT_EQ(1 + 1, 2); }

TEST(Failing, Fails) { EXPECT_EQ(failing::lose_and_miscount(), 4); }
