// A suite for builds in which the agent cannot find GoogleTest itself (stripped, statically linked): it adds memgate's
// header-only listener (device-agent/include).
#include <memgate_gtest.h>

#include "sample.h"

namespace listener {

NOINLINE int lose_index() {
    char* index = new char[251];  // LEAK: listener
    escape(index);
    return 1;
}

}  // namespace listener

TEST(Listener, Leaks) { EXPECT_EQ(listener::lose_index(), 1); }

TEST(Listener, Clean) {}

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    testing::UnitTest::GetInstance()->listeners().Append(new memgate::Listener);
    return RUN_ALL_TESTS();
}
